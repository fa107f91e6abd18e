"""What fit refuses before anything is computed, each with the line to write instead."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import bayesprop as bp
from bayesprop import inference
from bayesprop.errors import ConfigurationError
from bayesprop.training.arguments import check_call, check_settings, whole_number


def refused(call, *parts: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        call()
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("value", [3, np.int64(3), np.int32(3), torch.tensor(3)])
def test_whole_numbers_of_any_kind(value):
    found = whole_number("epochs", value)
    assert found == 3
    assert type(found) is int


@pytest.mark.parametrize("value", [1.5, 2.0, "3", None, True, np.float64(2.0), [1], torch.tensor(2.5)])
def test_what_is_no_whole_number(value):
    refused(
        lambda: whole_number("epochs", value),
        "fit: epochs must be a whole number",
        f"received: {value!r}",
        "write: epochs=1",
    )


def test_limits():
    assert whole_number("seed", -5, least=None) == -5
    assert whole_number("starts", 0, least=0) == 0
    refused(lambda: whole_number("starts", 0), "fit: starts must be at least 1", "received: 0", "write: starts=1")
    refused(lambda: whole_number("seed", 0.5, least=None), "fit: seed must be a whole number", "write: seed=1")


@pytest.mark.parametrize("name", ["epochs", "starts", "batch_size", "report_every"])
def test_fit_counts_in_whole_numbers_from_one_on(fit, name):
    for value in (0, -1, 2.5, True):
        refused(
            lambda value=value: fit(**{name: value}),
            f"fit: {name} must be ",
            f"received: {value!r}",
            f"write: {name}=1",
        )


@pytest.mark.filterwarnings("ignore:the fit is worse than")  # a few steps are not meant to fit
def test_patience_and_seed_are_whole_numbers_too(fit):
    refused(lambda: fit(patience=0, validation=0.25), "fit: patience must be at least 1", "write: patience=1")
    refused(lambda: fit(seed=0.5), "fit: seed must be a whole number", "write: seed=1")
    assert fit(seed=-3, epochs=1).context.seed == -3
    assert fit(seed=np.int64(7), epochs=1, batch_size=np.int32(8)).context.seed == 7


def test_a_network_is_no_model(pair):
    refused(
        lambda: bp.fit(nn.Linear(3, 1), pair(), epochs=1),
        "fit needs a model",
        "received: a Linear",
        "write: bp.fit(bp.Model(network, likelihood=...), data)",
    )


@pytest.mark.parametrize("targets", [torch.zeros(4), np.zeros(4)], ids=["tensor", "array"])
def test_targets_are_no_method(model, targets):
    refused(
        lambda: bp.fit(model(), torch.zeros(4, 3), targets, epochs=1),
        "fit takes inputs and targets as one pair",
        "received: an array where the method belongs",
        "write: bp.fit(model, (inputs, targets))",
    )


def test_a_class_is_no_method_and_neither_is_anything_else(model, pair):
    refused(
        lambda: bp.fit(model(), pair(), inference.BayesByBackprop, epochs=1),
        "fit needs a method",
        "received: the class BayesByBackprop",
        "expected: an object of it",
        "write: bp.fit(model, data, bp.inference.BayesByBackprop())",
    )
    refused(
        lambda: bp.fit(model(), pair(), torch.optim.Adam, epochs=1), "received: the class Adam", "BayesByBackprop()"
    )
    refused(lambda: bp.fit(model(), pair(), "adam", epochs=1), "fit needs a method", "received: 'adam'")
    refused(
        lambda: bp.fit(model(), bp.inference.BayesByBackprop(), pair(), epochs=1),
        "fit takes the data first and the method after them",
        "received: a tuple where the method belongs",
        "write: bp.fit(model, (inputs, targets), bp.inference.BayesByBackprop())",
    )


@pytest.mark.parametrize("observers", [print, [print, 3], "print", {print}])
def test_observers_are_a_list_of_functions(fit, observers):
    refused(
        lambda: fit(observers=observers),
        "fit: observers are a list of functions of an event",
        f"received: {observers!r}",
        "write: observers=[print]",
    )


def test_no_and_several_observers_are_fine(model, method):
    for observers in ((), [], (print,), [print, repr]):
        assert check_call(model(), method(), observers) is None


def test_early_stopping_needs_data(fit):
    refused(
        lambda: fit(patience=3),
        "fit: early stopping needs data to decide on",
        "received: patience=3",
        "write: validation=0.1",
    )


def test_resuming_needs_a_file(fit):
    refused(
        lambda: fit(resume=True),
        "fit: there is no file to resume from",
        "received: resume=True",
        'write: checkpoint="run.ckpt", resume=True',
    )


def test_a_checkpoint_is_the_path_of_a_file(fit, tmp_path):
    refused(
        lambda: fit(checkpoint=3),
        "fit: a checkpoint is the path of a file",
        "received: 3",
        'write: checkpoint="run.ckpt"',
    )
    for folder in (tmp_path, str(tmp_path)):
        refused(
            lambda folder=folder: fit(checkpoint=folder),
            "fit: a checkpoint is a file and not a folder",
            f"received: checkpoint={str(tmp_path)!r}",
            f'write: checkpoint="{tmp_path / "run.ckpt"}"',
        )


@pytest.mark.parametrize("autocast", [True, "bfloat16", torch.float32, torch.int8])
def test_autocast_is_a_short_float(fit, autocast):
    refused(
        lambda: fit(autocast=autocast),
        "fit: autocast is the dtype of the forward pass",
        f"received: {autocast!r}",
        "write: autocast=torch.bfloat16",
    )


def test_settings_that_go_together():
    for autocast in (None, torch.bfloat16, torch.float16):
        found = check_settings(patience=2, validation=0.1, resume=True, checkpoint="run.ckpt", autocast=autocast)
        assert found is None


def test_nothing_is_computed_before(fit, method, monkeypatch):
    def never(*_):
        raise AssertionError("a refusal must come first")

    monkeypatch.setattr(bp.Model, "probe", never)
    for arguments in (
        {"epochs": 0},
        {"patience": 1},
        {"resume": True},
        {"observers": print},
        {"autocast": "half"},
        {"checkpoint": 1},
    ):
        refused(lambda arguments=arguments: fit(**arguments), "fit: ")
