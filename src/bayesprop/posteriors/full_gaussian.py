"""A Gaussian with all correlations: q(theta) = N(mean, F F^T) over chosen columns, the others being points.

F is the lower Cholesky factor of the covariance, so that a draw is mean + F z with a standard normal z, and

    log det = 2 sum log F_ii,        (theta - mean)^T (F F^T)^-1 (theta - mean) = |F^-1 (theta - mean)|^2         (1)

costs a triangular system. Memory grows with the square of the columns: for small networks, or a part of a large one.
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
from bayesprop.posteriors.evidence import WithEvidence
from bayesprop.posteriors.linearised import Linearised
from bayesprop.posteriors.outputs import checked_draws
from bayesprop.posteriors.posterior import Context, Posterior
from bayesprop.rng import Rng, Stream

__all__ = ["FullGaussian"]


class FullGaussian(Linearised, WithEvidence, Posterior):
    """mean (particles, columns); factor (particles, M, M), lower triangular, over M columns.

    `columns` (M,) or (particles, M) are their numbers, the same for all particles; None for all that have a
    distribution. `evidence` as in `WithEvidence`.
    """

    capabilities: ClassVar[frozenset[str]] = frozenset({"weights", "moments", "log_density"})

    def __init__(
        self,
        model: Model,
        mean: Tensor,
        factor: Tensor,
        buffers: Mapping[str, Tensor],
        context: Context | None = None,
        *,
        columns: Tensor | None = None,
        evidence: Tensor | None = None,
    ) -> None:
        super().__init__(model, buffers, context)
        if columns is None:
            columns = torch.arange(model.layout.latent, device=mean.device)
        columns = columns.reshape(-1, columns.shape[-1])
        width = columns.shape[1]
        if factor.shape != (mean.shape[0], width, width):
            raise ConfigurationError(
                "a full Gaussian has one square factor over its columns for each particle",
                received=f"mean {list(mean.shape)}, factor {list(factor.shape)}, {width} columns",
                expected=f"factor [{mean.shape[0]}, {width}, {width}]",
            )
        self._mean, self._factor, self.evidence = mean, factor, evidence
        self._columns = columns[:1].expand(mean.shape[0], width)

    def tensors(self) -> dict[str, Tensor]:
        found = {"mean": self._mean, "factor": self._factor, "columns": self._columns}
        return found | self._evidence_tensors() | self._linear_tensors()

    @classmethod
    def from_tensors(
        cls, model: Model, tensors: Mapping[str, Tensor], buffers: Mapping[str, Tensor], context: Context
    ) -> FullGaussian:
        rest = {"columns": tensors["columns"], "evidence": tensors.get("evidence")}
        found = cls(model, tensors["mean"], tensors["factor"], buffers, context, **rest)
        found.linear = "linear" in tensors
        return found

    @property
    def columns(self) -> Tensor:
        """The numbers of the columns that have a spread, (M,)."""
        return self._columns[0]

    def draw(self, rng: Rng, draws: int, first: int = 0) -> Tensor:
        width = self._factor.shape[1]
        white = noise.normal(rng.keys(draws, first), rng.step, int(Stream.PREDICTION), width).to(self._mean.dtype)
        theta = self._mean[:, None].expand(-1, draws, -1).clone()
        theta[..., self.columns] += white @ self._factor.transpose(1, 2)
        return theta

    def times_root(self, particle: int, rows: Tensor) -> Tensor:
        return rows[:, self.columns] @ self._factor[particle]

    def _marginal_std(self) -> Tensor:
        return self._factor.square().sum(-1).sqrt()

    def moments(self) -> tuple[Tensor, Tensor]:
        std = torch.zeros_like(self._mean)
        std[:, self.columns] = self._marginal_std()
        return self._mean, std

    def covariance(self) -> Tensor:
        """(particles, M, M), over `columns`."""
        return self._factor @ self._factor.transpose(1, 2)

    def log_density(self, theta: Tensor) -> Tensor:
        """log q of rows of theta (particles, ..., columns), over the columns that have a spread."""
        width = self._factor.shape[1]
        rows = theta[..., self.columns].double().reshape(self.particles, -1, width)
        rows = rows - self._mean[:, None, self.columns].double()
        white = torch.linalg.solve_triangular(self._factor.double(), rows.transpose(1, 2), upper=False)
        found = -0.5 * white.square().sum(1) - self.entropy()[:, None] + 0.5 * width
        return found.reshape(theta.shape[:-1]).to(theta.dtype)

    def entropy(self) -> Tensor:
        """Differential entropy in nats, one number a particle, float64."""
        diagonal = self._factor.diagonal(dim1=1, dim2=2).double()
        return diagonal.log().sum(-1) + 0.5 * self._factor.shape[1] * math.log(2.0 * math.pi * math.e)

    @torch.no_grad()
    def kl(self, draws: int = 32, *, seed: int = 0) -> Tensor:
        """KL(q || prior) in nats, one number a particle, float64; of points it is minus the log-density of the prior.

        A prior that is a product over columns sees only the marginals of q, so that its part has a closed form wherever
        that of a diagonal Gaussian has one. Otherwise E[-log p(theta)] comes from `draws` draws.
        """
        draws = checked_draws(draws, "posterior.kl(draws=32)")
        layout = self.model.layout
        spread = layout.latent == layout.random == self._factor.shape[1]
        return correlated_kl(self, self.entropy(), draws, seed, spread=spread)
