"""Weights with noise in proportion to their size: w ~ N(theta, alpha theta^2), what Gaussian dropout believes."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from bayesprop.errors import CapabilityError
from bayesprop.posteriors.pruned_gaussian import PrunedGaussian
from bayesprop.random_weights import input_units

__all__ = ["MultiplicativeGaussian"]


class MultiplicativeGaussian(PrunedGaussian):
    """mean theta and standard deviation sqrt(alpha) |theta|; both are 0 for weights that were dropped for good, and the
    deviation is 0 for what has no noise: biases, norm layers, a noise scale.

    Its prior is uniform in log |w|, which is no density: it has no divergence from the model's own prior.
    """

    capabilities: ClassVar[frozenset[str]] = frozenset({"weights", "moments"})

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the weights that have noise."""
        return tuple(input_units(self.model.network, self.model.layout))

    def alpha(self, name: str) -> Tensor:
        """alpha of one weight by name, (*shape) or (particles, *shape); infinite where it was dropped."""
        block = self.model.layout.block(name)
        mean, std = self._mean[:, block.columns], self._std[:, block.columns]
        found = torch.where(mean != 0, (std / mean).square(), torch.inf).reshape(-1, *block.shape)
        return found[0] if self.particles == 1 else found

    def sparsity(self) -> dict[str, float]:
        """The share of weights that are zero, of each layer by name and, under "all", of all layers; the mean over
        particles."""
        zero, found, total, count = ~self.kept, {}, 0.0, 0
        for name in self.layers:
            columns = zero[:, self.model.layout.by_name[name].columns].double()
            found[name] = float(columns.mean())
            total, count = total + float(columns.mean(0).sum()), count + columns.shape[1]
        return {**found, "all": total / count}

    def _refusal(self, what: str) -> CapabilityError:
        return CapabilityError(
            f"{what} asks for a density, and here some columns are points: biases have no noise, dropped weights are 0",
            received="the posterior of multiplicative noise, under a prior that is uniform in log |w|",
            expected="posterior.std() and posterior.alpha(name) for the noise, posterior.sparsity() for what is zero",
        )
