"""A Gaussian whose covariance is a Kronecker product for each weight matrix, between the diagonal and the full one.

    w = mean + Q_L (S * Z) Q_R^T,    Z standard normal, S elementwise positive                                       (1)

for the matrix of each parameter, with orthogonal Q_L over its rows and Q_R over its columns: in the rotated matrix
Q_L^T (w - mean) Q_R all numbers are independent. Parameters of one dimension, and latents, have no Q_R. Correlations
between parameters are not held.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from bayesprop.kernels import noise
from bayesprop.layout import Block
from bayesprop.model import Model
from bayesprop.posteriors.divergence import correlated_kl
from bayesprop.posteriors.evidence import WithEvidence
from bayesprop.posteriors.linearised import Linearised
from bayesprop.posteriors.outputs import checked_draws
from bayesprop.posteriors.posterior import Context, Posterior
from bayesprop.rng import Rng, Stream

__all__ = ["KroneckerGaussian", "as_matrix"]


def as_matrix(block: Block) -> tuple[int, int]:
    """Rows and columns of a parameter as a matrix: its first dimension against all others."""
    rows = block.shape[0] if block.shape else 1
    return rows, block.size // rows


class KroneckerGaussian(Linearised, WithEvidence, Posterior):
    """mean (particles, columns); spread (particles, columns with a distribution), S of equation (1) in the order of the
    columns; bases, name -> (particles, n, n), "left.<parameter>" and "right.<parameter>". A name that is missing stands
    for no rotation. `evidence` as in `WithEvidence`.
    """

    capabilities: ClassVar[frozenset[str]] = frozenset({"weights", "moments", "log_density"})

    def __init__(
        self,
        model: Model,
        mean: Tensor,
        spread: Tensor,
        bases: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
        context: Context | None = None,
        *,
        evidence: Tensor | None = None,
    ) -> None:
        super().__init__(model, buffers, context)
        self._mean, self._spread, self._bases, self.evidence = mean, spread, dict(bases), evidence

    def tensors(self) -> dict[str, Tensor]:
        held = {"mean": self._mean, "spread": self._spread, **self._bases}
        return held | self._evidence_tensors() | self._linear_tensors()

    @classmethod
    def from_tensors(
        cls, model: Model, tensors: Mapping[str, Tensor], buffers: Mapping[str, Tensor], context: Context
    ) -> KroneckerGaussian:
        bases = {name: tensor for name, tensor in tensors.items() if name.startswith(("left.", "right."))}
        evidence = tensors.get("evidence")
        found = cls(model, tensors["mean"], tensors["spread"], bases, buffers, context, evidence=evidence)
        found.linear = "linear" in tensors
        return found

    def _rotated(self, rows: Tensor, *, back: bool, squared: bool = False) -> Tensor:
        """rows (particles, n, columns with a distribution) from the rotated columns to those of theta, or `back`; with
        the squares of the rotations for variances."""
        pieces = []
        for block in self.model.layout.of_kind("random", "latent"):
            height, width = as_matrix(block)
            matrix = rows[..., block.columns].unflatten(-1, (height, width))
            left, right = self._bases.get(f"left.{block.name}"), self._bases.get(f"right.{block.name}")
            if left is not None:
                left = left.square() if squared else left
                matrix = (left.transpose(1, 2) if back else left).to(matrix)[:, None] @ matrix
            if right is not None:
                right = right.square() if squared else right
                matrix = matrix @ (right if back else right.transpose(1, 2)).to(matrix)[:, None]
            pieces.append(matrix.flatten(-2))
        return torch.cat(pieces, dim=-1)

    def draw(self, rng: Rng, draws: int, first: int = 0) -> Tensor:
        width = self._spread.shape[1]
        white = noise.normal(rng.keys(draws, first), rng.step, int(Stream.PREDICTION), width).to(self._mean.dtype)
        theta = self._mean[:, None].expand(-1, draws, -1).clone()
        theta[..., :width] += self._rotated(self._spread[:, None] * white, back=False)
        return theta

    def moments(self) -> tuple[Tensor, Tensor]:
        variance = self._rotated(self._spread.square()[:, None], back=False, squared=True)[:, 0]
        padding = self._mean.shape[1] - variance.shape[1]
        return self._mean, torch.nn.functional.pad(variance.sqrt(), (0, padding))

    def times_root(self, particle: int, rows: Tensor) -> Tensor:
        member = KroneckerGaussian(
            self.model,
            self._mean[particle : particle + 1],
            self._spread[particle : particle + 1],
            {name: basis[particle : particle + 1] for name, basis in self._bases.items()},
            {},
        )
        return member._rotated(rows[None], back=True)[0] * self._spread[particle]

    def log_density(self, theta: Tensor) -> Tensor:
        """log q of rows of theta (particles, ..., columns), over the columns that have a distribution."""
        width = self._spread.shape[1]
        rows = theta[..., :width].reshape(self.particles, -1, width) - self._mean[:, None, :width]
        white = self._rotated(rows.double(), back=True) / self._spread[:, None].double()
        found = -0.5 * white.square().sum(-1) - self.entropy()[:, None] + 0.5 * width
        return found.reshape(theta.shape[:-1]).to(theta.dtype)

    def entropy(self) -> Tensor:
        """Differential entropy in nats, one number a particle, float64: rotations do not change it."""
        return self._spread.double().log().sum(-1) + 0.5 * self._spread.shape[1] * math.log(2.0 * math.pi * math.e)

    @torch.no_grad()
    def kl(self, draws: int = 32, *, seed: int = 0) -> Tensor:
        """KL(q || prior) in nats, one number a particle, float64; by its closed form where the marginals have one, and
        otherwise with E[-log p(theta)] from `draws` draws."""
        draws = checked_draws(draws, "posterior.kl(draws=32)")
        layout = self.model.layout
        return correlated_kl(self, self.entropy(), draws, seed, spread=layout.latent == layout.random)
