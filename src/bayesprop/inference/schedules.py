"""Step sizes over the training: functions of its progress, 0 at the start and 1 at the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from bayesprop.errors import ConfigurationError

__all__ = ["Constant", "Cosine", "Polynomial", "Schedule", "Steps", "Warmup"]

Schedule = Callable[[float], float]


@dataclass(frozen=True)
class Constant:
    """The learning rate as it is."""

    def __call__(self, progress: float) -> float:
        return 1.0


@dataclass(frozen=True)
class Cosine:
    """From 1 to `final` along half a cosine: the usual way to end in a quiet place."""

    final: float = 0.0

    def __call__(self, progress: float) -> float:
        return self.final + (1.0 - self.final) * 0.5 * (1.0 + math.cos(math.pi * min(max(progress, 0.0), 1.0)))


@dataclass(frozen=True)
class Polynomial:
    """a (b + t)^-power from 1 to `final`: the decreasing steps with which stochastic gradient chains converge.

    Powers in (0.5, 1] fall slowly enough to get anywhere and fast enough to lose the noise (Robbins and Monro 1951).
    """

    final: float = 0.01
    power: float = 0.55

    def __post_init__(self) -> None:
        if not 0.0 < self.final <= 1.0 or not self.power > 0.0:
            raise ConfigurationError(
                "Polynomial: final lies in (0, 1] and power is positive",
                received=f"{self}",
                write="Polynomial(final=0.01, power=0.55)",
            )

    def __call__(self, progress: float) -> float:
        return (1.0 + min(max(progress, 0.0), 1.0) * (self.final ** (-1.0 / self.power) - 1.0)) ** -self.power


@dataclass(frozen=True)
class Steps:
    """Times `factor` at each of the given shares of the training."""

    at: tuple[float, ...] = (0.5, 0.75)
    factor: float = 0.1

    def __post_init__(self) -> None:
        if not all(0.0 < share < 1.0 for share in self.at) or self.factor <= 0.0:
            raise ConfigurationError(
                "Steps: shares of the training lie in (0, 1)",
                received=f"{self}",
                write="Steps(at=(0.5, 0.75), factor=0.1)",
            )

    def __call__(self, progress: float) -> float:
        return self.factor ** sum(progress >= share for share in self.at)


@dataclass(frozen=True)
class Warmup:
    """Linearly from 0 over the first `share` of the training, then as `after` says."""

    share: float = 0.05
    after: Schedule = Constant()

    def __call__(self, progress: float) -> float:
        return self.after(progress) * min(1.0, (progress + 1e-3) / self.share if self.share > 0.0 else 1.0)
