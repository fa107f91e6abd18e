"""The mean-field Gaussian: q(theta) = prod_i N(theta_i | mean_i, std_i^2) over random weights and latents."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from bayesprop.kernels import noise
from bayesprop.latents import Latent
from bayesprop.model import Model
from bayesprop.posteriors.divergence import cross_entropy
from bayesprop.posteriors.evidence import WithEvidence
from bayesprop.posteriors.linearised import Linearised
from bayesprop.posteriors.outputs import checked_draws
from bayesprop.posteriors.posterior import Context, Posterior
from bayesprop.rng import Rng, Stream

__all__ = ["DiagonalGaussian"]

NODES = 64


class DiagonalGaussian(Linearised, WithEvidence, Posterior):
    """Means for all columns (particles, columns), standard deviations for those that have a distribution.

    Columns to the right of `std` are point estimates. `evidence` as in `WithEvidence`.
    """

    capabilities: ClassVar[frozenset[str]] = frozenset({"weights", "moments", "log_density"})

    def __init__(
        self,
        model: Model,
        mean: Tensor,
        std: Tensor,
        buffers: Mapping[str, Tensor],
        context: Context | None = None,
        *,
        evidence: Tensor | None = None,
    ) -> None:
        super().__init__(model, buffers, context)
        self._mean, self._std, self.evidence = mean, std, evidence

    def tensors(self) -> dict[str, Tensor]:
        return {"mean": self._mean, "std": self._std} | self._evidence_tensors() | self._linear_tensors()

    @classmethod
    def from_tensors(
        cls, model: Model, tensors: Mapping[str, Tensor], buffers: Mapping[str, Tensor], context: Context
    ) -> DiagonalGaussian:
        evidence = tensors.get("evidence")
        found = cls(model, tensors["mean"], tensors["std"], buffers, context, evidence=evidence)
        found.linear = "linear" in tensors
        return found

    def draw(self, rng: Rng, draws: int, first: int = 0) -> Tensor:
        width = self._std.shape[1]
        epsilon = noise.normal(rng.keys(draws, first), rng.step, int(Stream.PREDICTION), width).to(self._mean.dtype)
        random = self._mean[:, None, :width] + self._std[:, None] * epsilon
        points = self._mean[:, None, width:].expand(-1, draws, -1)
        return torch.cat((random, points), dim=-1)

    def times_root(self, particle: int, rows: Tensor) -> Tensor:
        return rows * self._std[particle]

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
        """KL(q || prior) in nats, one number a particle, float64.

        Without sampling where the prior over the weights has a closed form; a learnt noise scale is then integrated by
        quadrature. Otherwise E[-log p(theta)] from `draws` draws minus the entropy, which is always exact.
        """
        draws = checked_draws(draws, "posterior.kl(draws=32)")
        layout, likelihood = self.model.layout, self.model.likelihood
        mean, std = self._mean, self._std
        closed = self.model.bound_prior.kl(mean[:, : layout.random], std[:, : layout.random])
        if closed is not None:
            return closed + sum(self._latent_kl(latent) for latent in likelihood.latents)
        return cross_entropy(self, draws, seed) - self.entropy().double()

    def _latent_kl(self, latent: Latent) -> Tensor:
        """The same for the columns of one latent of the likelihood, by Gauss-Hermite quadrature: E[f(m + s z)] is
        sum_k a_k f(m + s x_k), for every hyperprior within 1e-11 of the integral while s < 1."""
        columns = self.model.layout.by_name[latent.name].columns
        mean, std = self._mean[:, columns].double(), self._std[:, columns].double()
        nodes, weights = (torch.as_tensor(a, device=mean.device) for a in np.polynomial.hermite_e.hermegauss(NODES))
        log_prior = latent.unconstrained_log_density(mean + std * nodes[:, None, None])
        entropy = std.log().sum(1) + 0.5 * std.shape[1] * math.log(2.0 * math.pi * math.e)
        return -entropy - (weights[:, None] * log_prior).sum(0) / math.sqrt(2.0 * math.pi)
