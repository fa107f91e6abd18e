"""Checkpoints: everything that a training needs, and a refusal of what belongs to another one or is damaged."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import CheckpointError
from bayesprop.inference import SGD, Adam
from bayesprop.inference.method import state_tensors
from bayesprop.training import checkpoint as checkpoints
from bayesprop.training.checkpoint import describe_run


def test_what_is_saved_is_loaded(model, method, pair, started, path):
    run = describe_run(model(), method(), bp.Data(*pair()), seed=3, batch_size=None)
    there = started(seed=3)
    there.epoch, there.index, there.step, there.best_epoch, there.best_score = 4, 2, 14, 1, 0.1 + 0.2
    there.history = [{"elbo": -1.25, "epoch": 1}]
    there.first_bad[1] = 11
    there.best = {name: tensor + 1 for name, tensor in state_tensors(there.state).items()}
    assert checkpoints.save(path, there, run) == path
    here = started(seed=9)
    checkpoints.load(path, here, run, model().layout)
    for field in ("epoch", "index", "step", "best_epoch", "best_score", "history"):
        assert getattr(here, field) == getattr(there, field)
    for field in ("total", "first_bad", "best"):
        assert_close(getattr(here, field), getattr(there, field), rtol=0.0, atol=0.0)
    assert_close(state_tensors(here.state), state_tensors(there.state), rtol=0.0, atol=0.0)


def test_no_best_score_yet_is_a_number_too(model, method, pair, started, path):
    run = describe_run(model(), method(), bp.Data(*pair()))
    checkpoints.save(path, started(), run)
    here = started()
    here.best_score = 0.0
    checkpoints.load(path, here, run, model().layout)
    assert here.best_score == float("inf")
    assert here.best == {}


# -- another run ------------------------------------------------------------------------------------------------------


def other_padding() -> nn.Module:
    network = nn.Sequential(nn.Embedding(4, 2, padding_idx=0), nn.Flatten(), nn.Linear(4, 1)).double()
    network[0].weight.data[0] = 1.0
    return network


CHANGES: dict[str, tuple[Any, str]] = {
    "seed": (lambda fit, model, method: fit(seed=1), "seed: 0 in the file, 1 now"),
    "starts": (lambda fit, model, method: fit(starts=2), "starts: 1 in the file, 2 now"),
    "batch size": (lambda fit, model, method: fit(batch_size=6), "batch_size: 8 in the file, 6 now"),
    "all rows": (lambda fit, model, method: fit(batch_size=None), "batch_size: 8 in the file, None now"),
    "autocast": (
        lambda fit, model, method: fit(autocast=torch.bfloat16),
        "autocast: 'None' in the file, 'torch.bfloat16' now",
    ),
    "rows": (lambda fit, model, method: fit(validation=0.5), "num_data: 24 in the file, 12 now"),
    "rate": (
        lambda fit, model, method: fit(how=method(learning_rate=0.02)),
        "method.learning_rate: 0.01 in the file, 0.02 now",
    ),
    "rates": (
        lambda fit, model, method: fit(how=method(learning_rate=torch.tensor([0.02]))),
        "method.learning_rate: 0.01 in the file, {'tensor': 'method.learning_rate'} now",
    ),
    "optimiser": (
        lambda fit, model, method: fit(how=method(optimizer=SGD(0.5))),
        "method.optimizer: 'adam' in the file, SGD now",
    ),
    "prior": (lambda fit, model, method: fit(model(prior=priors.Laplace())), "prior: Normal in the file, Laplace now"),
    "scale": (
        lambda fit, model, method: fit(model(prior=priors.Normal(scale=2.0))),
        "prior.scale: 1.0 in the file, 2.0 now",
    ),
    "tensors": (
        lambda fit, model, method: fit(model("linear", prior=priors.Normal(loc=torch.zeros(1, 3)), random="weight")),
        "0.weight is in the file, not in the network",
    ),
    "likelihood": (
        lambda fit, model, method: fit(model(likelihood=likelihoods.Gaussian(0.4))),
        "likelihood.scale: 0.3 in the file, 0.4 now",
    ),
    "learnt noise": (
        lambda fit, model, method: fit(model(likelihood=likelihoods.Gaussian())),
        "likelihood.scale is in the network, not in the file",
    ),
    "network": (lambda fit, model, method: fit(model("norm")), "3.weight is in the network, not in the file"),
    "precision": (
        lambda fit, model, method: fit(model(dtype=torch.float32)),
        "0.weight: float32 in the network, float64 in the file",
    ),
    "point estimates": (
        lambda fit, model, method: fit(model(random="0.*")),
        "2.weight: point [1, 4] in the network, random [1, 4] in the file",
    ),
}


@pytest.mark.parametrize("name", list(CHANGES))
def test_a_checkpoint_of_another_run_is_refused(fit, model, method, path, name):
    call, difference = CHANGES[name]
    fit(checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=f"{path} belongs to another run") as caught:
        call(lambda *a, **k: fit(*a, **{**k, "checkpoint": path, "resume": True}), model, method)
    assert difference in str(caught.value)
    assert "expected: the same network, prior, method and settings" in str(caught.value)
    assert 'write: checkpoint="another/path"' in str(caught.value)
    assert path.read_bytes() == before


def test_settings_inside_of_an_optimiser_are_told_by_their_path(fit, method, path):
    fit(how=method(optimizer=Adam(beta1=0.9)), checkpoint=path)
    with pytest.raises(CheckpointError, match=r"method\.optimizer\.beta1: 0\.9 in the file, 0\.8 now"):
        fit(how=method(optimizer=Adam(beta1=0.8)), checkpoint=path, resume=True)


def test_tensors_of_a_prior_are_compared_by_value(fit, model, path):
    def made(value: float) -> bp.Model:
        return model("linear", prior={"weight": priors.Normal(loc=torch.full((1, 3), value)), "*": priors.Flat()})

    fit(made(0.5), checkpoint=path)
    with pytest.raises(CheckpointError, match=r"tensors of prior, likelihood and method: '\w+' in the file, '\w+' now"):
        fit(made(0.6), checkpoint=path, resume=True)
    assert fit(made(0.5), checkpoint=path, resume=True).particles == 1


def test_fixed_parameters_and_padding_rows_are_compared_by_value(fit, model, path):
    frozen = model("tanh", fixed="0.*")
    fit(frozen, checkpoint=path)
    frozen.network[0].weight.data[0, 0] += 1e-9
    with pytest.raises(CheckpointError, match=r"fixed parameters\.sha256: '\w+' in the file, '\w+' now"):
        fit(frozen, checkpoint=path, resume=True)
    words, data = (other_padding() for _ in range(2)), (torch.arange(24).reshape(12, 2) % 4, torch.zeros(12))
    first, second = (bp.Model(network, likelihood=likelihoods.Gaussian(0.3)) for network in words)
    second.network[0].weight.data[0] = 2.0
    fit(first, data, checkpoint=path)
    with pytest.raises(CheckpointError, match=r"padding rows: '\w+' in the file, '\w+' now"):
        fit(second, data, checkpoint=path, resume=True)


def test_a_posterior_is_no_checkpoint(fit, path):
    fit().save(path)
    with pytest.raises(CheckpointError, match="holds no training") as caught:
        fit(checkpoint=path, resume=True)
    assert "received: a file of kind 'posterior'" in str(caught.value)
    assert f'write: bp.load("{path}", network=...)' in str(caught.value)
    fit(checkpoint=path)
    with pytest.raises(CheckpointError, match="holds no posterior"):
        bp.load(path, network=nn.Linear(3, 1))


# -- when -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("every", "steps"), [(0, [0, *range(2, 10), 9]), (2.5, [0, 4, 7, 9]), (1e9, [0, 9])])
def test_it_is_written_at_the_start_every_so_many_seconds_and_at_the_end(fit, path, monkeypatch, every, steps):
    """On a clock that goes on by one second after each of the nine steps."""
    seconds = 0.0

    def tick(event) -> None:
        nonlocal seconds
        seconds += event.kind == "step"

    clock = types.SimpleNamespace(perf_counter=lambda: seconds)
    monkeypatch.setattr(sys.modules["bayesprop.training.fit"], "time", clock)
    written: list[int] = []
    original = checkpoints.save

    def save(target, progress, run):
        written.append(progress.step)
        return original(target, progress, run)

    monkeypatch.setattr(checkpoints, "save", save)
    fit(checkpoint=path, checkpoint_every=every, observers=[tick])
    assert written == steps
