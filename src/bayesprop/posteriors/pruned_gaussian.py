"""A mean-field Gaussian of which some weights are zero with certainty: what pruning leaves behind."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from torch import Tensor

from bayesprop.errors import CapabilityError
from bayesprop.posteriors.diagonal_gaussian import DiagonalGaussian

__all__ = ["PrunedGaussian"]


class PrunedGaussian(DiagonalGaussian):
    """As `DiagonalGaussian`, with mean and standard deviation both 0 where a weight was removed.

    It predicts, draws, saves and loads as the other does. It has no density: removed weights have all their mass at one
    point, so that its divergence from any prior with a density is infinite, and it is refused rather than returned.
    """

    capabilities: ClassVar[frozenset[str]] = frozenset({"weights", "moments"})

    @property
    def kept(self) -> Tensor:
        """Which random columns are left, (particles, columns)."""
        random = self.model.layout.random
        return (self._mean[:, :random] != 0) | (self._std[:, :random] > 0)

    def log_density(self, theta: Tensor) -> NoReturn:
        """Always refused: removed weights have no density."""
        raise self._refusal("log q(theta)")

    def entropy(self) -> NoReturn:
        """Always refused: that of a point is minus infinity."""
        raise self._refusal("the entropy")

    def kl(self, *_arguments: Any, **_further: Any) -> NoReturn:
        """Always refused: that of a point from a prior with a density is infinite."""
        raise self._refusal("the divergence from the prior")

    def _refusal(self, what: str) -> CapabilityError:
        left = self.kept.sum(1).tolist()
        return CapabilityError(
            f"{what} asks for a density, and weights that were pruned have none: they are zero with certainty",
            received=f"{', '.join(f'{count:,}' for count in left)} weights left of {self.model.layout.random:,}",
            expected="the posterior before it was pruned",
        )
