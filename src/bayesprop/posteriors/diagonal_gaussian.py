"""The mean-field Gaussian: q(theta) = prod_i N(theta_i | mean_i, std_i^2) over random weights and latents."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from bayesprop.kernels import noise
from bayesprop.model import Model
from bayesprop.posteriors.posterior import Context, Posterior
from bayesprop.rng import Rng, Stream

__all__ = ["DiagonalGaussian"]


class DiagonalGaussian(Posterior):
    """Means for all columns (particles, columns), standard deviations for those that have a distribution.

    Columns to the right of `std` are point estimates.
    """

    capabilities: ClassVar[frozenset[str]] = frozenset({"weights", "moments", "log_density"})

    def __init__(
        self, model: Model, mean: Tensor, std: Tensor, buffers: Mapping[str, Tensor], context: Context | None = None
    ) -> None:
        super().__init__(model, buffers, context)
        self._mean, self._std = mean, std

    def tensors(self) -> dict[str, Tensor]:
        return {"mean": self._mean, "std": self._std}

    @classmethod
    def from_tensors(
        cls, model: Model, tensors: Mapping[str, Tensor], buffers: Mapping[str, Tensor], context: Context
    ) -> DiagonalGaussian:
        return cls(model, tensors["mean"], tensors["std"], buffers, context)

    def draw(self, rng: Rng, draws: int, first: int = 0) -> Tensor:
        width = self._std.shape[1]
        epsilon = noise.normal(rng.keys(draws, first), rng.step, int(Stream.PREDICTION), width).to(self._mean.dtype)
        random = self._mean[:, None, :width] + self._std[:, None] * epsilon
        points = self._mean[:, None, width:].expand(-1, draws, -1)
        return torch.cat((random, points), dim=-1)

    def moments(self) -> tuple[Tensor, Tensor]:
        padding = self._mean.shape[1] - self._std.shape[1]
        return self._mean, torch.nn.functional.pad(self._std, (0, padding))

    def log_density(self, theta: Tensor) -> Tensor:
        """log q of rows of theta (particles, ..., columns), over the columns that have a distribution."""
        width = self._std.shape[1]
        shape = (self.particles, *[1] * (theta.dim() - 2), width)
        mean, std = self._mean[:, :width].reshape(shape), self._std.reshape(shape)
        standardised = (theta[..., :width] - mean) / std
        return -0.5 * standardised.square().sum(-1) - std.log().sum(-1) - 0.5 * width * math.log(2.0 * math.pi)

    def entropy(self) -> Tensor:
        """Differential entropy in nats, one number a particle."""
        return self._std.log().sum(-1) + 0.5 * self._std.shape[1] * math.log(2.0 * math.pi * math.e)

    @torch.no_grad()
    def kl(self, draws: int = 32, *, seed: int = 0) -> Tensor:
        """KL(q || prior) in nats, one number a particle: closed form where all parts have one, else with `draws` draws.

        By Monte Carlo it is E[-log p(theta)] by sampling minus the entropy, which is always exact.
        """
        layout, bound = self.model.layout, self.model.bound_prior
        random = layout.latent - sum(latent.size for latent in self.model.likelihood.latents)
        closed = bound.kl(self._mean[:, :random].double(), self._std[:, :random].double())
        if closed is not None and random == layout.latent:
            return closed
        # A few rows at a time: many draws of a large network would not fit.
        total = torch.zeros(self.particles, dtype=torch.float64, device=self._mean.device)
        rng, step = self.rng(seed), max(1, 16_000_000 // (self.particles * layout.size))
        for first in range(0, draws, step):
            theta = self.draw(rng, min(step, draws - first), first)
            total += self.model.log_prior(theta).double().sum(1)
        return (-self.entropy().double() - total / draws).to(self._mean.dtype)
