"""Models of every shape that columns can take, and Gaussians over them with random moments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesprop as bp
from bayesprop import likelihoods, priors


class Words(nn.Module):
    """An embedding with a padding row that is not zero, and a tied output."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5, 3, padding_idx=0)
        self.head = nn.Linear(3, 2)
        self.again = self.head
        with torch.no_grad():
            self.words.weight[0] = 7.0

    def forward(self, indices: Tensor) -> Tensor:
        return self.head(self.words(indices).mean(1)) + self.again(self.words(indices)[:, 0])


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))


PLAIN = {"likelihood": likelihoods.Gaussian(0.5), "prior": priors.Normal(0.1, 0.7)}
SCALES = {"0.*": priors.Normal(0.3, priors.HalfNormal(0.5)), "*": priors.Horseshoe(0.2)}
MODELS: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
    "plain": (lambda: nn.Linear(3, 2), PLAIN),
    "noise": (layers, {"likelihood": likelihoods.Gaussian(), "prior": priors.Laplace(scale=0.5)}),
    "points": (layers, {"likelihood": likelihoods.Gaussian(), "random": "0.*", "fixed": "3.bias"}),
    "scales": (layers, {"likelihood": likelihoods.StudentT(4.0), "prior": SCALES}),
    "words": (Words, {"likelihood": likelihoods.Gaussian(0.5), "prior": priors.ScaleMixture(0.25, 1.0, 0.1)}),
}


@pytest.fixture
def network() -> Callable[..., nn.Module]:
    """The network of a model by its name, with weights of a seed."""

    def make(name: str, dtype: torch.dtype = torch.float64, seed: int = 0) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return MODELS[name][0]().to(dtype)

    return make


@pytest.fixture
def model(network) -> Callable[..., bp.Model]:
    """A model by its name."""

    def make(name: str, dtype: torch.dtype = torch.float64) -> bp.Model:
        return bp.Model(network(name, dtype), **MODELS[name][1])

    return make


@pytest.fixture
def gaussian() -> Callable[..., bp.posteriors.DiagonalGaussian]:
    """A Gaussian over a model's columns: means N(0, 1), deviations between 0.1 and 0.3, buffers as they are."""

    def make(model: bp.Model, particles: int = 1, *, seed: int = 0) -> bp.posteriors.DiagonalGaussian:
        generator = torch.Generator().manual_seed(seed)
        mean = torch.randn(particles, model.layout.size, generator=generator, dtype=model.dtype)
        std = 0.1 + 0.2 * torch.rand(particles, model.layout.latent, generator=generator, dtype=model.dtype)
        return bp.posteriors.DiagonalGaussian(model, mean, std, model.initial_buffers(particles))

    return make


@pytest.fixture
def rows() -> Callable[..., Tensor]:
    """Inputs for a model of that name."""

    def make(name: str, count: int = 6, dtype: torch.dtype = torch.float64) -> Tensor:
        if name == "words":
            return torch.arange(3 * count).reshape(count, 3) % 5
        return torch.randn(count, 3, generator=torch.Generator().manual_seed(1), dtype=dtype)

    return make
