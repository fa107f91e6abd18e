"""Gaussian noise of one scale.

    y = f(x) + scale * e,   e ~ N(0, 1)                                                                     (1)
    log p(y | f) = -(y - f)^2 / (2 scale^2) - log(scale) - log(2 pi) / 2                                    (2)

`scale` is the standard deviation. A mean squared error is (2) with scale^2 = 1/2 and no normaliser: as a likelihood it
claims a noise that nobody measured, which is why the scale is learnt here unless it is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesprop.distributions import normal
from bayesprop.latents import Latent
from bayesprop.likelihoods.likelihood import Likelihood, Task, compact, sum_targets, widen
from bayesprop.likelihoods.noise_scale import LEARNT, Scale, check_scale, scale_latents, scale_value
from bayesprop.likelihoods.regression import check_shapes, finite_targets

__all__ = ["Gaussian", "standard_normal_cdf"]


def standard_normal_cdf(z: Tensor) -> Tensor:
    """P(Z <= z): the same as `torch.special.ndtr`, exact in both tails, in half the time."""
    return 0.5 * torch.erfc(z * -(0.5**0.5))


@dataclass(frozen=True)
class Gaussian(Likelihood):
    """Regression with the same noise everywhere; outputs (n,) or (n, 1) for targets (n,), or (n, T) for (n, T).

    Args:
        scale: standard deviation of the noise, or the hyperprior under which it is learnt. It is on the scale of the
            targets as the model sees them (standardised ones, if the data are standardised).
    """

    scale: Scale = LEARNT

    task: ClassVar[Task] = "regression"

    def __post_init__(self) -> None:
        check_scale(self.scale, "Gaussian")

    @property
    def latents(self) -> tuple[Latent, ...]:
        return scale_latents(self.scale)

    @property
    def has_cdf(self) -> bool:
        return True

    def encode(self, targets: Any) -> Tensor:
        return finite_targets(targets, self)

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        check_shapes(self, outputs, targets)

    def log_prob(self, outputs: Tensor, targets: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        mean = compact(widen(outputs))
        values = compact(targets).to(mean.dtype)
        return sum_targets(normal.log_density(values, mean, scale_value(self.scale, latents, mean)))

    def mean(self, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        return compact(widen(outputs))

    def variance(self, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        mean = compact(widen(outputs))
        return torch.zeros_like(mean) + scale_value(self.scale, latents, mean) ** 2

    def cdf(self, outputs: Tensor, values: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        mean = compact(widen(outputs))
        return standard_normal_cdf((values - mean) / scale_value(self.scale, latents, mean))

    def sample(self, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        mean = compact(widen(outputs))
        return mean + scale_value(self.scale, latents, mean) * torch.randn_like(mean)
