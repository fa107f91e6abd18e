"""Bayesian linear regression: the one model whose posterior is known, and what each kind of approximation makes of it.

With design matrix X (a column of ones behind the inputs), noise s and prior N(0, 1) the posterior is N(m, L^-1) with

    L = X^T X / s^2 + 1,        m = L^-1 X^T y / s^2                                                            (1)

The inputs are correlated, so that the marginal variances (L^-1)_ii and the variances 1 / L_ii of the best mean-field
Gaussian are far apart. Everything is float64.
"""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor, nn

from bayesprop import likelihoods, priors
from bayesprop.model import Batch, Model
from bayesprop.rng import Rng, Stream

__all__ = ["LinearRegression"]

NOISE = 0.5


class LinearRegression:
    """`rows` examples of three inputs; `model`, `inputs` and `targets` make the problem, the rest is its answer."""

    def __init__(self, rows: int = 24, seed: int = 0) -> None:
        mixing = torch.tensor([[1.0, 0.8, 0.0], [0.0, 0.6, 0.5], [0.0, 0.0, 0.7]], dtype=torch.float64)
        drawn = Rng.create(seed).normal(4 * rows, Stream.INITIAL, dtype=torch.float64)[0, 0].reshape(rows, 4)
        self.inputs = drawn[:, :3] @ mixing
        truth = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
        self.targets = (self.inputs @ truth + 0.3 + NOISE * drawn[:, 3])[:, None]
        likelihood, prior = likelihoods.Gaussian(scale=NOISE), priors.Normal(0.0, 1.0)
        self.model = Model(nn.Linear(3, 1).double(), likelihood=likelihood, prior=prior)
        self.model.probe(self.inputs[:8], self.targets)
        self.model.set_mode(True)

    @property
    def data(self) -> tuple[Tensor, Tensor]:
        return self.inputs, self.targets

    @cached_property
    def design(self) -> Tensor:
        """X: the columns follow the order of theta, weights first and the bias last."""
        return torch.cat((self.inputs, torch.ones_like(self.inputs[:, :1])), dim=1)

    @cached_property
    def precision(self) -> Tensor:
        """L of equation (1)."""
        return self.design.T @ self.design / NOISE**2 + torch.eye(4, dtype=torch.float64)

    @cached_property
    def covariance(self) -> Tensor:
        """L^-1."""
        return torch.linalg.inv(self.precision)

    @cached_property
    def mean(self) -> Tensor:
        """m of equation (1)."""
        return torch.linalg.solve(self.precision, self.design.T @ self.targets[:, 0] / NOISE**2)

    @cached_property
    def least_squares(self) -> Tensor:
        """The weights of greatest likelihood."""
        return torch.linalg.lstsq(self.design, self.targets[:, 0]).solution

    @cached_property
    def log_evidence(self) -> float:
        """log p(y): y ~ N(0, s^2 + X X^T)."""
        rows = len(self.targets)
        covariance = NOISE**2 * torch.eye(rows, dtype=torch.float64) + self.design @ self.design.T
        factor = torch.linalg.cholesky(covariance)
        white = torch.linalg.solve_triangular(factor, self.targets, upper=False)
        log_det = 2.0 * factor.diagonal().log().sum()
        return float(-0.5 * (white.square().sum() + log_det + rows * math.log(2.0 * math.pi)))

    def batch(self, particles: int = 1, rows: slice = slice(None), **place: float) -> Batch:
        """Some rows, the same for all particles."""
        inputs, targets = (t[rows].expand(particles, *t[rows].shape) for t in self.data)
        return Batch(inputs, targets, len(self.targets), **place)  # type: ignore[arg-type]
