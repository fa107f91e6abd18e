"""A Gaussian whose covariance is diagonal plus low rank: q(theta) = N(mean, diag(std^2) + F^T F).

A draw is theta = mean + std * z + F^T u with standard normal z and u. With S = diag(std^2) and the K x K matrix
C = 1 + F S^-1 F^T,

    log det = log det S + log det C,        (S + F^T F)^-1 = S^-1 - S^-1 F^T C^-1 F S^-1                       (1)

so that densities cost K passes over the columns and never a matrix of columns by columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.kernels import noise
from bayesprop.model import Model
from bayesprop.posteriors.divergence import correlated_kl
from bayesprop.posteriors.outputs import checked_draws
from bayesprop.posteriors.posterior import Context, Posterior
from bayesprop.rng import Rng, Stream

__all__ = ["LowRankGaussian"]


class LowRankGaussian(Posterior):
    """mean (particles, columns); std (particles, W) and factors (particles, K, W) for the W columns that have a
    distribution. Columns to the right of those are point estimates."""

    capabilities: ClassVar[frozenset[str]] = frozenset({"weights", "moments", "log_density"})

    def __init__(
        self,
        model: Model,
        mean: Tensor,
        std: Tensor,
        factors: Tensor,
        buffers: Mapping[str, Tensor],
        context: Context | None = None,
    ) -> None:
        super().__init__(model, buffers, context)
        if factors.dim() != 3 or std.shape != (factors.shape[0], factors.shape[2]) or std.shape[0] != mean.shape[0]:
            raise ConfigurationError(
                "a low-rank Gaussian has deviations and factors over the same columns",
                received=f"mean {list(mean.shape)}, std {list(std.shape)}, factors {list(factors.shape)}",
                expected="(particles, columns), (particles, W) and (particles, rank, W)",
            )
        self._mean, self._std, self._factors = mean, std, factors

    def tensors(self) -> dict[str, Tensor]:
        return {"mean": self._mean, "std": self._std, "factors": self._factors}

    @classmethod
    def from_tensors(
        cls, model: Model, tensors: Mapping[str, Tensor], buffers: Mapping[str, Tensor], context: Context
    ) -> LowRankGaussian:
        return cls(model, tensors["mean"], tensors["std"], tensors["factors"], buffers, context)

    @property
    def rank(self) -> int:
        """K."""
        return self._factors.shape[1]

    def draw(self, rng: Rng, draws: int, first: int = 0) -> Tensor:
        width = self._std.shape[1]
        drawn = noise.normal(rng.keys(draws, first), rng.step, int(Stream.PREDICTION), width + self.rank)
        drawn = drawn.to(self._mean.dtype)
        spread = self._std[:, None] * drawn[..., :width] + drawn[..., width:] @ self._factors
        random = self._mean[:, None, :width] + spread
        points = self._mean[:, None, width:].expand(-1, draws, -1)
        return torch.cat((random, points), dim=-1)

    def _marginal_std(self) -> Tensor:
        return (self._std.square() + self._factors.square().sum(1)).sqrt()

    def moments(self) -> tuple[Tensor, Tensor]:
        padding = self._mean.shape[1] - self._std.shape[1]
        return self._mean, torch.nn.functional.pad(self._marginal_std(), (0, padding))

    def covariance(self) -> Tensor:
        """The whole matrix (particles, W, W), for small networks."""
        return torch.diag_embed(self._std.square()) + self._factors.transpose(1, 2) @ self._factors

    def _capacity(self) -> tuple[Tensor, Tensor]:
        """The Cholesky factor of C in equation (1), and F S^-1, in float64."""
        factors, variance = self._factors.double(), self._std.double().square()
        scaled = factors / variance[:, None]
        one = torch.eye(self.rank, dtype=torch.float64, device=factors.device)
        return torch.linalg.cholesky(one + scaled @ factors.transpose(1, 2)), scaled

    def _log_det(self, capacity: Tensor) -> Tensor:
        return 2.0 * self._std.double().log().sum(-1) + 2.0 * capacity.diagonal(dim1=1, dim2=2).log().sum(-1)

    def log_density(self, theta: Tensor) -> Tensor:
        """log q of rows of theta (particles, ..., columns), over the columns that have a distribution."""
        width = self._std.shape[1]
        rows = theta[..., :width].double().reshape(self.particles, -1, width) - self._mean[:, None, :width].double()
        capacity, scaled = self._capacity()
        inner = torch.linalg.solve_triangular(capacity, scaled @ rows.transpose(1, 2), upper=False)
        distance = (rows / self._std.double()[:, None]).square().sum(-1) - inner.square().sum(1)
        found = -0.5 * (distance + self._log_det(capacity)[:, None] + width * math.log(2.0 * math.pi))
        return found.reshape(theta.shape[:-1]).to(theta.dtype)

    def entropy(self) -> Tensor:
        """Differential entropy in nats, one number a particle, float64."""
        width = self._std.shape[1]
        return 0.5 * (self._log_det(self._capacity()[0]) + width * math.log(2.0 * math.pi * math.e))

    @torch.no_grad()
    def kl(self, draws: int = 32, *, seed: int = 0) -> Tensor:
        """KL(q || prior) in nats, one number a particle, float64.

        A prior that is a product over columns sees only the marginals of q, so that its part has a closed form wherever
        that of a diagonal Gaussian has one. Otherwise E[-log p(theta)] comes from `draws` draws.
        """
        draws = checked_draws(draws, "posterior.kl(draws=32)")
        layout = self.model.layout
        spread = layout.latent == layout.random
        return correlated_kl(self, self.entropy(), draws, seed, spread=spread)
