"""Many chains on Bayesian linear regression, and what a z-test says of where they end."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bayesprop.rng import Rng
from bayesprop.testing import LinearRegression


def ends(method: Any, problem: LinearRegression, chains: int, steps: int, *, seed: int = 0) -> Any:
    """The state of independent chains after so many steps with all rows."""
    rng = Rng.create(seed, chains)
    state = method.init(problem.model, rng)
    for step in range(steps):
        batch = problem.batch(chains, epoch=step, epochs=steps, progress=step / steps)
        state, _ = method.update(problem.model, state, batch, rng.at(step))
    return state


def check_law(theta: Tensor, mean: Tensor, covariance: Tensor, errors: float = 5.0) -> None:
    """z-tests of all first and second moments of independent rows of theta, in coordinates where they are 0 and 1.

    14 numbers for 4 columns at five standard errors: one choice of seeds in 120,000 fails.
    """
    count, width = theta.shape
    factor = torch.linalg.cholesky(covariance)
    white = torch.linalg.solve_triangular(factor, (theta - mean).T, upper=False).T
    assert float(white.mean(0).abs().max()) * math.sqrt(count) < errors
    second = (white.T @ white / count - torch.eye(width, dtype=theta.dtype)).abs()
    scale = torch.ones_like(second) + torch.eye(width, dtype=theta.dtype)
    assert float((second / scale.sqrt()).max()) * math.sqrt(count) < errors
