"""A step size in cycles: large to travel to another mode, small to sample it (Zhang et al. 2020).

With M cycles over a run, and u the place in a cycle from 0 to 1, the step size is

    rate(u) = rate_0 (cos(pi u) + 1) / 2                                                        (paper's equation 1)

While u < `exploration` (the paper's beta) the chain is plain descent without noise; from there on it samples.

Reference: Zhang, Li, Zhang, Chen, Wilson, "Cyclical Stochastic Gradient MCMC for Bayesian Deep Learning", ICLR 2020.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from bayesprop.errors import ConfigurationError

__all__ = ["Cyclical"]


@dataclass(frozen=True)
class Cyclical:
    """See the module's docstring; it is given as the schedule of a sampler.

    >>> Cyclical(cycles=2)(0.25)
    0.5
    """

    cycles: int = 4
    exploration: float = 0.8

    def __post_init__(self) -> None:
        if self.cycles < 1 or not 0.0 <= self.exploration < 1.0:
            raise ConfigurationError(
                "Cyclical: at least one cycle, of which a share in [0, 1) explores",
                received=f"{self}",
                write="Cyclical(cycles=4, exploration=0.8)",
            )

    def _within(self, progress: float) -> tuple[float, float]:
        """How many cycles are over, and where in the present one we are."""
        place = min(max(progress, 0.0), 1.0) * self.cycles
        return math.floor(place), place - math.floor(place)

    def __call__(self, progress: float) -> float:
        return 0.5 * (math.cos(math.pi * self._within(progress)[1]) + 1.0)

    def sampling(self, progress: float) -> bool:
        """Whether the chain samples here."""
        return self._within(progress)[1] >= self.exploration

    def share(self, progress: float) -> float:
        """Which part of all sampling is done."""
        over, here = self._within(progress)
        return (over + max(0.0, here - self.exploration) / (1.0 - self.exploration)) / self.cycles

    @property
    def portion(self) -> float:
        """How much of a run is sampling."""
        return 1.0 - self.exploration
