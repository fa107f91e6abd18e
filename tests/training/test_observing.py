"""Observers of a training: all are told everything, any of them may end it, none can change it."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import bayesprop as bp
from bayesprop.training.observers import Event, Stop


def stop_at(kind: str, step: int):
    return lambda event: Stop if event.kind == kind and event.step == step else None


def test_what_is_told(fit):
    events: list[Event] = []
    posterior = fit(observers=[events.append])
    told = [(event.kind, event.epoch, event.step) for event in events]
    assert told == [
        ("start", 0, 0),
        *[("step", 0, 1), ("step", 0, 2), ("step", 0, 3), ("epoch", 0, 3)],
        *[("step", 1, 4), ("step", 1, 5), ("step", 1, 6), ("epoch", 1, 6)],
        *[("step", 2, 7), ("step", 2, 8), ("step", 2, 9), ("epoch", 2, 9)],
        ("end", 3, 9),
    ]
    assert all(event.epochs == event.steps_per_epoch == 3 for event in events)
    seconds = [event.seconds for event in events]
    assert seconds == sorted(seconds)
    assert seconds[0] >= 0.0
    reports = [dict(event.metrics) for event in events if event.kind == "epoch"]
    assert reports == posterior.context.history
    assert all(not event.metrics for event in events if event.kind != "epoch")


def test_what_is_believed_can_be_looked_at(fit):
    """The posterior at the end of each epoch, a copy that goes on being what it was."""
    seen = []
    result = fit(observers=[lambda event: seen.append(event.posterior()) if event.kind == "epoch" else None])
    stopped = fit(observers=[stop_at("epoch", 6)])
    assert len(seen) == 3
    torch.testing.assert_close(dict(seen[-1].tensors()), dict(result.tensors()), rtol=0.0, atol=0.0)
    torch.testing.assert_close(dict(seen[1].tensors()), dict(stopped.tensors()), rtol=0.0, atol=0.0)


def test_epochs_without_a_report_are_told_without_numbers(fit):
    events: list[Event] = []
    fit(epochs=5, report_every=2, observers=[events.append])
    epochs = [event for event in events if event.kind == "epoch"]
    assert [bool(event.metrics) for event in epochs] == [False, True, False, True, True]


def test_a_stream_of_unknown_length_has_no_number_of_steps(fit, pair):
    events: list[Event] = []
    inputs, targets = pair()
    stream = bp.data.Stream([(inputs[:9], targets[:9]), (inputs[9:], targets[9:])], 24)
    fit(data=Uncounted(stream), batch_size=None, num_data=24, observers=[events.append])
    assert all(event.steps_per_epoch is None for event in events)
    events.clear()
    fit(data=DataLoader(TensorDataset(inputs, targets), batch_size=9), observers=[events.append])
    assert all(event.steps_per_epoch == 3 for event in events)


class Uncounted:
    """Batches that can be iterated over and not counted."""

    def __init__(self, batches) -> None:
        self.batches = batches

    def __iter__(self):
        return iter(self.batches.batches)


def test_a_resumed_training_starts_where_it_is(fit, tmp_path):
    events: list[Event] = []
    fit(checkpoint=tmp_path / "run.ckpt", observers=[stop_at("step", 5)])
    fit(checkpoint=tmp_path / "run.ckpt", resume=True, observers=[events.append])
    assert [(event.kind, event.epoch, event.step) for event in events[:3]] == [
        ("start", 1, 5),
        ("step", 1, 6),
        ("epoch", 1, 6),
    ]


@pytest.mark.parametrize(
    ("kind", "step", "reports"),
    [("start", 0, 0), ("step", 1, 0), ("step", 3, 0), ("epoch", 3, 1), ("step", 5, 1), ("end", 9, 3)],
)
def test_stop_ends_the_training_after_what_it_was_told(fit, model, kind, step, reports):
    posterior = fit(model("norm"), observers=[stop_at(kind, step)])
    assert len(posterior.context.history) == reports
    assert posterior.buffers["1.num_batches_tracked"].item() == step


def test_all_are_told_whoever_asks_to_stop(fit):
    first, second = [], []
    fit(observers=[first.append, stop_at("step", 2), second.append])
    assert [event.kind for event in first] == ["start", "step", "step", "end"]
    assert first == second


def test_an_instance_of_stop_is_not_the_class_and_other_answers_mean_nothing(fit):
    events: list[Event] = []
    fit(observers=[events.append, lambda event: True, lambda event: "stop", lambda event: event])
    assert events[-1].step == 9


class Broken(Exception):
    pass


@pytest.mark.parametrize("kind", ["start", "step", "epoch"])
def test_the_end_is_told_also_after_an_error(fit, kind):
    kinds: list[str] = []

    def fail(event: Event) -> None:
        if event.kind == kind:
            raise Broken(kind)

    with pytest.raises(Broken, match=kind):
        fit(observers=[lambda event: kinds.append(event.kind), fail])
    assert kinds[-2:] == [kind, "end"]


def test_the_end_is_told_after_an_error_of_the_network(fit, pair):
    class Fails(torch.nn.Linear):
        steps = 0

        def forward(self, x):
            if self.training and x.shape[0] == 8 and torch.is_grad_enabled():
                type(self).steps += 1
                if type(self).steps == 40:
                    raise Broken("in the network")
            return super().forward(x)

    kinds: list[str] = []
    made = bp.Model(Fails(3, 1).double(), likelihood=bp.likelihoods.Gaussian(0.3))
    with pytest.raises(Broken, match="in the network"):
        fit(made, epochs=50, observers=[lambda event: kinds.append(event.kind)])
    assert kinds[0] == "start"
    assert kinds[-1] == "end"
    assert kinds.count("step") > 3


def test_observers_change_nothing(fit, same):
    """An event's numbers are a copy that cannot be written to."""

    def meddle(event: Event) -> None:
        with pytest.raises(TypeError, match="does not support item assignment"):
            event.metrics["elbo"] = 0.0
        with pytest.raises(dataclasses.FrozenInstanceError):
            event.step = 0
        assert math.isfinite(event.seconds)

    same(fit(observers=[meddle]), fit())


def test_a_progress_bar_is_an_observer_that_is_there_when_asked_for(fit, monkeypatch, capsys):
    fit(progress=True)
    shown = capsys.readouterr().err
    assert "epoch    3/3" in shown
    assert "ELBO" in shown
    fit(progress=False)
    fit(progress=None)  # standard error is no terminal here
    assert capsys.readouterr().err == ""
