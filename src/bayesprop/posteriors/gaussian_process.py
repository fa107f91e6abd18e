"""The Gaussian process that the rows leave of a prior process, exactly.

With the prior f ~ GP(0, k) for each output, noise s and N rows (X, y), A = k(X, X) + s^2 and a new row x,

    m(x) = k(x, X) A^-1 y,        S(x, x') = k(x, x') - k(x, X) A^-1 k(X, x')                                      (1)
    log p(y) = sum over outputs of -(y' A^-1 y + log det A + N log 2 pi) / 2                                       (2)

The rows themselves are what is stored; A is factorised when it is first needed, in float64.

Reference: Rasmussen, Williams, "Gaussian Processes for Machine Learning", 2006, chapter 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bayesprop.likelihoods.noise_scale import scale_value
from bayesprop.model import Model
from bayesprop.posteriors.posterior import Context
from bayesprop.posteriors.process import Process, factor_of
from bayesprop.posteriors.wide_network import WideNetwork

__all__ = ["GaussianProcess", "log_evidence", "noise_variance"]


def noise_variance(model: Model, hyper: Tensor) -> Tensor:
    """s^2 of the likelihood for the columns behind the weights (particles, H): float64 (particles,)."""
    layout, latents = model.layout, {}
    for latent in model.likelihood.latents:
        block = layout.by_name[latent.name]
        latents[latent.name] = latent.constrain(hyper[:, block.start - layout.random : block.stop - layout.random])
    scale = scale_value(model.likelihood.scale, latents, hyper.double())  # type: ignore[attr-defined]
    return torch.as_tensor(scale, dtype=torch.float64, device=hyper.device).square().expand(len(hyper))


def log_evidence(factor: Tensor, targets: Tensor) -> Tensor:
    """Equation (2), (particles,), from the factor of A (particles, N, N) and targets (particles, N, K)."""
    white = torch.linalg.solve_triangular(factor, targets, upper=False)
    rows, outputs = targets.shape[1:]
    log_det = 2.0 * factor.diagonal(dim1=1, dim2=2).log().sum(1)
    return -0.5 * (white.square().sum((1, 2)) + outputs * (log_det + rows * math.log(2.0 * math.pi)))


class GaussianProcess(Process):
    """Equation (1) with the covariance of the model's own network, infinitely wide.

    `inputs` (particles, N, ...), `targets` (particles, N, K) and `hyper` (particles, H), which holds the scales of
    the prior and of the noise; with N = 0 it is the prior.
    """

    def __init__(
        self,
        model: Model,
        inputs: Tensor,
        targets: Tensor,
        hyper: Tensor,
        buffers: Mapping[str, Tensor],
        context: Context | None = None,
    ) -> None:
        super().__init__(model, buffers, context)
        self.inputs, self.targets, self._hyper = inputs, targets, hyper
        self.kernel = WideNetwork(model)

    def tensors(self) -> dict[str, Tensor]:
        return {"inputs": self.inputs, "targets": self.targets, "hyper": self._hyper}

    @classmethod
    def from_tensors(
        cls, model: Model, tensors: Mapping[str, Tensor], buffers: Mapping[str, Tensor], context: Context
    ) -> GaussianProcess:
        return cls(model, tensors["inputs"], tensors["targets"], tensors["hyper"], buffers, context)

    @property
    def hyper(self) -> Tensor:
        return self._hyper

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (self.kernel.outputs,)

    # -- what is worked out once --------------------------------------------------------------------------------------

    @cached_property
    def _factor(self) -> Tensor:
        """Of A, (particles, N, N)."""
        with torch.no_grad():
            covariance = self.kernel.own(self._hyper, self.inputs)
            covariance.diagonal(dim1=1, dim2=2).add_(noise_variance(self.model, self._hyper)[:, None])
            return factor_of(covariance)

    @cached_property
    def _whitened(self) -> Tensor:
        """L^-1 y with A = L L^T, (particles, N, K)."""
        return torch.linalg.solve_triangular(self._factor, self.targets.double(), upper=False)

    @property
    def log_evidence(self) -> Tensor:
        """Equation (2) in nats, one number a particle: exact, and the way to compare widths, depths and priors."""
        return log_evidence(self._factor, self.targets.double())

    # -- functions ----------------------------------------------------------------------------------------------------

    def joint(self, inputs: Any) -> tuple[Tensor, Tensor]:
        """Equation (1) at inputs (n, ...)."""
        rows = inputs.expand(self.particles, *inputs.shape)
        across = torch.linalg.solve_triangular(
            self._factor, self.kernel(self._hyper, self.inputs, rows), upper=False
        )  # L^-1 k(X, x)
        mean = (across.transpose(1, 2) @ self._whitened).transpose(1, 2)
        covariance = self.kernel.own(self._hyper, rows) - across.transpose(1, 2) @ across
        return mean, covariance[:, None]

    @torch.no_grad()
    def marginal(self, inputs: Any) -> tuple[Tensor, Tensor]:
        """Mean (particles, K, n) and variance (particles, n) of f at prepared inputs, without n x n numbers."""
        rows = inputs.expand(self.particles, *inputs.shape)
        across = torch.linalg.solve_triangular(self._factor, self.kernel(self._hyper, self.inputs, rows), upper=False)
        mean = (across.transpose(1, 2) @ self._whitened).transpose(1, 2)
        return mean, (self.kernel.diagonal(self._hyper, rows) - across.square().sum(1)).clamp_min(0.0)
