"""Chains on targets of any density, and what their moments say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bayesprop import priors
from bayesprop.diagnostics import effective_sample_size, r_hat
from bayesprop.likelihoods import Gaussian
from bayesprop.model import Batch, Model
from bayesprop.rng import Rng


@dataclass(frozen=True)
class Density(Gaussian):
    """The network's output is the log density itself."""

    def log_prob(self, outputs: Tensor, targets: Tensor, latents: Any) -> Tensor:
        return outputs[:, 0]


class Position(nn.Module):
    """A network without inputs: log density of its one parameter."""

    def __init__(self, size: int, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.place, self.function = nn.Parameter(torch.ones(size, dtype=torch.float64)), function

    def forward(self, inputs: Tensor) -> Tensor:
        return self.function(self.place).expand(inputs.shape[0], 1)


def problem(size: int, function: Callable[[Tensor], Tensor], chains: int) -> tuple[Model, Batch]:
    """A model whose posterior has this log density, and its one row of data."""
    model = Model(Position(size, function), likelihood=Density(1.0), prior=priors.Flat())
    row = torch.zeros(1, 1, dtype=torch.float64)
    model.probe(row, row)
    wide = row.expand(chains, 1, 1)
    return model, Batch(wide, wide, 1)


def run(method: Any, model: Model, batch: Batch, *, seed: int = 0, steps: int | None = None) -> Any:
    """The state after all trajectories, or after some."""
    rng = Rng.create(seed, method.chains)
    state = method.init(model, rng)
    for step in range(method.steps if steps is None else steps):
        state, _ = method.update(model, state, batch, rng.at(step))
    return state


def check_moments(samples: Tensor, mean: Tensor, variance: Tensor, *, errors: float = 4.0) -> None:
    """Chains have met (R-hat <= 1.01), and means and variances lie within so many standard errors of what is known.

    The standard error of a mean is that of the samples themselves: std / sqrt(ESS), for the values and for their
    squared distances from the mean. For n numbers at four errors one choice of seeds in 16,000 / n fails.
    """
    assert float(r_hat(samples).max()) <= 1.01
    for values, expected in ((samples, mean), ((samples - mean).square(), variance)):
        ess = effective_sample_size(values)
        error = values.flatten(0, 1).std(0) / ess.sqrt()
        assert float(ess.min()) > 200.0
        assert float(((values.mean((0, 1)) - expected) / error).abs().max()) < errors
