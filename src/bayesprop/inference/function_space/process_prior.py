"""Priors over functions: Gaussian processes with mean 0, as covariances between measured inputs.

A function prior says how smooth functions are and how large they become, in the units of the network's outputs, which
no prior over weights says directly. Outputs are independent under it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.model import Model
from bayesprop.posteriors.wide_network import WideNetwork

__all__ = ["RBF", "FunctionPrior", "WidePrior", "gaussian_divergence"]


@runtime_checkable
class FunctionPrior(Protocol):
    """`covariance(model, inputs)`: float64 (n, n) between rows (n, ...) for one output; `check` refuses a model that it
    cannot work with."""

    def check(self, model: Model) -> None: ...

    def covariance(self, model: Model, inputs: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class RBF:
    """amplitude^2 exp(-|x - x'|^2 / (2 length^2)).

    `length` None is sqrt(d) for d features, half of the squared distance that two standardised rows are apart.
    """

    amplitude: float = 1.0
    length: float | None = None

    def __post_init__(self) -> None:
        if not self.amplitude > 0 or not (self.length is None or self.length > 0):
            raise ConfigurationError(
                "RBF needs a positive amplitude and length",
                received=f"amplitude={self.amplitude}, length={self.length}",
                write="RBF(amplitude=1.0, length=1.0)",
            )

    def check(self, model: Model) -> None:
        """Every model will do."""

    def covariance(self, model: Model, inputs: Tensor) -> Tensor:
        rows = inputs.flatten(1).double()
        length = math.sqrt(rows.shape[1]) if self.length is None else self.length
        square = (rows[:, None] - rows).square().sum(-1)
        return self.amplitude**2 * torch.exp(-0.5 * square / length**2)


@dataclass(frozen=True)
class WidePrior:
    """The process that the user's own network and prior become when they are infinitely wide (`NNGP`): what the prior
    over weights says about functions, without its dependence between outputs and on the width. For dense networks with
    a normal prior; scales that are learnt stand at their starting values."""

    def check(self, model: Model) -> None:
        WideNetwork(model)

    def covariance(self, model: Model, inputs: Tensor) -> Tensor:
        columns = [latent.initial_column() for latent in model.latents for _ in range(latent.size)]
        hyper = torch.tensor([columns], dtype=torch.float64, device=inputs.device).reshape(1, -1)
        return WideNetwork(model).own(hyper, inputs[None])[0]


def gaussian_divergence(mean: Tensor, covariance: Tensor, prior: Tensor) -> Tensor:
    """KL(N(mean, covariance) || N(0, 1 x prior)) in nats.

    mean (K, n); covariance (K n, K n) among all outputs of all rows, outputs first; prior (n, n) for each output:

        1/2 [tr(P^-1 C) + m' P^-1 m - K n + log det P - log det C]                                                 (1)
    """
    outputs, rows = mean.shape
    lower = torch.linalg.cholesky(prior)
    white = torch.linalg.solve_triangular(lower, mean.T, upper=False)
    blocks = covariance.reshape(outputs, rows, outputs, rows).diagonal(dim1=0, dim2=2).movedim(-1, 0)
    trace = torch.cholesky_solve(blocks.sum(0), lower).diagonal().sum()
    log_det = 2.0 * outputs * lower.diagonal().log().sum()
    own = 2.0 * torch.linalg.cholesky(covariance).diagonal().log().sum()
    return 0.5 * (trace + white.square().sum() - outputs * rows + log_det - own)
