"""Small problems, and a method whose settings are all named: what a default is, is nothing that these tests rely on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesprop as bp
from bayesprop import inference, likelihoods, priors, random_weights
from bayesprop.rng import Rng
from bayesprop.training.checkpoint import Progress

NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(3, 1),
    "tanh": lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)),
    "dropout": lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 1)),
    "norm": lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)),
}


@pytest.fixture
def model() -> Callable[..., bp.Model]:
    """A model of one of the networks, with weights of a fixed seed; noise of 0.3 and prior N(0, 1)."""

    def make(name: str = "tanh", dtype: torch.dtype = torch.float64, **arguments: Any) -> bp.Model:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            network = NETWORKS[name]().to(dtype)
        return bp.Model(network, **{"likelihood": likelihoods.Gaussian(0.3), "prior": priors.Normal(), **arguments})

    return make


@pytest.fixture
def method() -> Callable[..., inference.BayesByBackprop]:
    """Bayes by Backprop with Adam, one sample, a rate of 0.01 and a narrow start, where nothing else is said."""

    def make(**changes: Any) -> inference.BayesByBackprop:
        settings = {
            "learning_rate": 1e-2,
            "scale_learning_rate": None,
            "optimizer": "adam",
            "estimator": random_weights.SharedWeights(1),
            "kl": "auto",
            "kl_weights": "uniform",
            "temperature": 1.0,
            "stick_the_landing": False,
            "initial_mean": "fan_in",
            "initial_scale": 0.02,
            "schedule": inference.Constant(),
            "clip_norm": None,
        }
        return inference.BayesByBackprop(**{**settings, **changes})

    return make


@pytest.fixture
def pair() -> Callable[..., tuple[Tensor, Tensor]]:
    """24 rows of three inputs and one target that depends on them."""

    def make(rows: int = 24, dtype: torch.dtype = torch.float64, seed: int = 1) -> tuple[Tensor, Tensor]:
        inputs = torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
        return inputs, torch.sin(inputs[:, 0]) + 0.5 * inputs[:, 1]

    return make


@pytest.fixture
def fit(model, pair, method) -> Callable[..., bp.posteriors.Posterior]:
    """Three epochs of three batches of 8 rows, and everything else named, where nothing else is said."""

    def run(made: bp.Model | None = None, data: Any = None, how: Any = None, **changes: Any) -> Any:
        settings = {"epochs": 3, "batch_size": 8, "seed": 0, "starts": 1, "report_every": 1, "progress": False}
        made = model() if made is None else made
        data = pair(dtype=made.dtype) if data is None else data
        return bp.fit(made, data, method() if how is None else how, **{**settings, **changes})

    return run


@pytest.fixture
def same() -> Callable[..., None]:
    """Two posteriors have the same tensors, buffers and history, to the last bit."""

    def check(first: bp.posteriors.Posterior, second: bp.posteriors.Posterior, *, history: bool = True) -> None:
        assert first.tensors().keys() == second.tensors().keys()
        for mine, theirs in ((first.tensors(), second.tensors()), (first.buffers, second.buffers)):
            torch.testing.assert_close(dict(mine), dict(theirs), rtol=0.0, atol=0.0)
        if history:
            assert first.context.history == second.context.history

    return check


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a checkpoint goes."""
    return tmp_path / "run.ckpt"


@pytest.fixture
def started(model, method) -> Callable[..., Progress]:
    """A training that has not taken a step; the seed decides its state."""

    def make(seed: int = 0, particles: int = 2) -> Progress:
        state = method().init(model(), Rng.create(seed, particles))
        total = torch.arange(float(particles)).double() - 7.5
        return Progress(state, total, torch.full((particles,), 2**62))

    return make
