"""A training that goes on from a checkpoint ends where the training without a pause ends, bit for bit."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing import assert_close
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

import bayesprop as bp
from bayesprop import inference, likelihoods, priors, random_weights, storage
from bayesprop.inference import SGD, Cosine, Torch


class Pause:
    """An observer that puts the checkpoint aside after a number of steps: what a machine that stopped would have."""

    def __init__(self, path: Any, step: int) -> None:
        self.path, self.step, self.aside = path, step, path.with_name("aside.ckpt")

    def __call__(self, event: bp.observers.Event) -> None:
        if event.kind == "step" and event.step == self.step:
            shutil.copy(self.path, self.aside)


def shuffled(inputs: torch.Tensor, targets: torch.Tensor) -> DataLoader:
    return DataLoader(TensorDataset(inputs, targets), batch_size=8, shuffle=True)


def given_a_generator(inputs: torch.Tensor, targets: torch.Tensor) -> DataLoader:
    dataset = TensorDataset(inputs, targets)
    return DataLoader(dataset, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(3))


def sampled(inputs: torch.Tensor, targets: torch.Tensor) -> DataLoader:
    return DataLoader(TensorDataset(inputs, targets), batch_size=5, sampler=SubsetRandomSampler(range(17)))


# Network, arguments of the model, changes to the method, changes to the call, what makes the data of the pair.
RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], Callable[..., Any]]] = {
    "adam": ("tanh", {}, {}, {}, lambda *pair: pair),
    "adamw": ("tanh", {}, {"optimizer": "adamw"}, {}, lambda *pair: pair),
    "momentum": ("tanh", {}, {"optimizer": SGD(momentum=0.9), "learning_rate": 1e-3}, {}, lambda *pair: pair),
    "rmsprop": ("tanh", {}, {"optimizer": Torch(torch.optim.RMSprop, {"momentum": 0.5})}, {}, lambda *pair: pair),
    "torch's adam": ("tanh", {}, {"optimizer": Torch(torch.optim.Adam, {"amsgrad": True})}, {}, lambda *pair: pair),
    "nadam": ("tanh", {}, {"optimizer": torch.optim.NAdam}, {}, lambda *pair: pair),
    "torch's momentum": ("tanh", {}, {"optimizer": Torch(torch.optim.SGD, {"momentum": 0.9})}, {}, lambda *pair: pair),
    "adagrad": (
        "tanh",
        {},
        {"optimizer": Torch(torch.optim.Adagrad, {"initial_accumulator_value": 0.1})},
        {},
        lambda *pair: pair,
    ),
    "schedules": ("tanh", {}, {"schedule": Cosine(0.1), "kl_weights": "geometric"}, {}, lambda *pair: pair),
    "clipped": ("tanh", {}, {"clip_norm": 0.5, "kl": "monte_carlo"}, {}, lambda *pair: pair),
    "dropout": ("dropout", {}, {}, {}, lambda *pair: pair),
    "dropout in two starts": ("dropout", {}, {}, {"starts": 2}, lambda *pair: pair),
    "batch norm": ("norm", {}, {}, {"starts": 2}, lambda *pair: pair),
    "flipout": ("tanh", {}, {"estimator": random_weights.Flipout(2)}, {}, lambda *pair: pair),
    "local": ("dropout", {}, {"estimator": random_weights.LocalReparameterization(1)}, {}, lambda *pair: pair),
    "scales": (
        "tanh",
        {"prior": priors.Horseshoe(0.5), "likelihood": likelihoods.Gaussian()},
        {},
        {"starts": 3},
        lambda *pair: pair,
    ),
    "point estimates": ("tanh", {"random": "2.*", "fixed": "0.bias"}, {}, {}, lambda *pair: pair),
    "all rows": ("tanh", {}, {}, {"batch_size": None, "epochs": 8}, lambda *pair: pair),
    "standardised": ("tanh", {}, {}, {}, lambda *pair: bp.Data(*pair, standardize=True)),
    "early stopping": ("tanh", {}, {}, {"validation": 0.25, "patience": 2, "batch_size": 6}, lambda *pair: pair),
    "loader": ("dropout", {}, {}, {}, shuffled),
    "loader with a generator": ("tanh", {}, {}, {"starts": 2}, given_a_generator),
    "loader with a sampler": ("tanh", {}, {}, {}, sampled),
    "stream": (
        "tanh",
        {},
        {},
        {"num_data": 30},
        lambda x, y: bp.data.Stream([(x[:10], y[:10]), (x[10:], y[10:]), (x, y)], 30),
    ),
}


@pytest.mark.parametrize("name", list(RUNS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_resumed_training_is_the_training_without_a_pause(fit, model, method, pair, same, tmp_path, name, dtype):
    """float32 takes the native step where there is one. Compared are posterior, history, optimiser and buffers."""
    network, arguments, how, changes, source = RUNS[name]
    path = tmp_path / "run.ckpt"
    pause = Pause(path, 5)  # in the middle of an epoch

    def run(**more: Any) -> Any:
        return fit(model(network, dtype, **arguments), source(*pair(dtype=dtype)), method(**how), **{**changes, **more})

    whole = run()
    watched = run(checkpoint=path, checkpoint_every=0, observers=[pause])
    same(watched, whole)
    resumed = run(checkpoint=pause.aside, resume=True)
    same(resumed, whole)
    assert len(resumed.context.history) >= 3
    # Both files hold the end of the training now: the optimiser's moments are in them.
    (there, tensors), (here, others) = storage.read(path), storage.read(pause.aside)
    assert there["place"] == here["place"]
    assert any(name.startswith("state.moments/") for name in tensors)
    assert_close(others, tensors, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("step", [1, 3, 4, 6, 8, 9])
def test_it_does_not_matter_where_it_stopped(fit, model, same, tmp_path, step):
    """After the first step of an epoch, in its middle, and after its last, when nothing has been reported of it yet."""
    pause = Pause(tmp_path / "run.ckpt", step)
    whole = fit(model("dropout"), checkpoint=pause.path, checkpoint_every=0, observers=[pause])
    assert storage.read(pause.aside)[0]["place"]["step"] == step
    same(fit(model("dropout"), checkpoint=pause.aside, resume=True), whole)


def test_several_pauses(fit, model, same, tmp_path):
    """Each process takes two steps and is stopped."""
    path, whole = tmp_path / "run.ckpt", fit(model("dropout"))

    def two_steps():
        count = 0

        def stop(event):
            nonlocal count
            count += event.kind == "step"
            return bp.observers.Stop if count == 2 else None

        return stop

    for _ in range(5):
        resumed = fit(model("dropout"), checkpoint=path, resume=True, observers=[two_steps()])
    same(resumed, whole)
    assert storage.read(path)[0]["place"]["step"] == 9


def test_a_training_that_is_over_is_given_again(fit, same, tmp_path):
    for changes in ({}, {"starts": 2}, {"validation": 0.25, "patience": 1, "batch_size": 6}):
        path = tmp_path / f"{len(changes)}.ckpt"
        whole = fit(checkpoint=path, **changes)
        events: list[bp.observers.Event] = []
        again = fit(checkpoint=path, resume=True, observers=[events.append], **changes)
        same(again, whole)
        assert [event.kind for event in events] == ["start", "end"]


def test_resuming_without_a_file_is_starting(fit, same, tmp_path):
    path = tmp_path / "folder" / "run.ckpt"
    same(fit(checkpoint=path, resume=True), fit())
    assert path.is_file()


def test_without_resume_an_old_checkpoint_is_overwritten(fit, same, tmp_path):
    path = tmp_path / "run.ckpt"
    fit(checkpoint=path, seed=1)
    same(fit(checkpoint=path, seed=2), fit(seed=2))
    assert storage.read(path)[0]["run"]["seed"] == 2


# -- more epochs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tanh", "dropout"])
def test_more_epochs_go_on_as_if_they_had_been_asked_for(fit, model, same, tmp_path, name):
    path = tmp_path / "run.ckpt"
    fit(model(name), checkpoint=path, epochs=2)
    same(fit(model(name), checkpoint=path, resume=True, epochs=5), fit(model(name), epochs=5))


def test_a_schedule_is_measured_against_the_new_number_of_epochs(fit, method, same, tmp_path):
    """What was trained stays; the rates of the other epochs are those of the longer training."""
    path, rates = tmp_path / "run.ckpt", []

    class Recorded(Cosine):
        def __call__(self, progress: float) -> float:
            rates.append(round(progress, 9))
            return super().__call__(progress)

    fit(how=method(schedule=Recorded(0.0)), checkpoint=path, epochs=2)
    assert rates == pytest.approx([0.0, 1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6])
    rates.clear()
    resumed = fit(how=method(schedule=Recorded(0.0)), checkpoint=path, resume=True, epochs=4)
    assert rates == pytest.approx([6 / 12, 7 / 12, 8 / 12, 9 / 12, 10 / 12, 11 / 12])
    assert [entry["epoch"] for entry in resumed.context.history] == [1, 2, 3, 4]
    assert inference.Cosine(0.0)(0.5) == pytest.approx(0.5)


def test_fewer_epochs_than_were_trained_change_nothing(fit, same, tmp_path):
    path = tmp_path / "run.ckpt"
    whole = fit(checkpoint=path, epochs=3)
    same(fit(checkpoint=path, resume=True, epochs=1), whole)
