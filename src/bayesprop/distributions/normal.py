"""The normal density.

    p(w) = exp(-(w - loc)^2 / (2 scale^2)) / (scale sqrt(2 pi))                                            (1)
    d log p / dw = -(w - loc) / scale^2                                                                    (2)
    KL(N(m, s^2) || p) = ((m - loc)^2 + s^2) / (2 scale^2) - 1/2 - log(s / scale)                          (3)

`scale` is a standard deviation, never a variance.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bayesprop.distributions.elementwise import HALF_LOG_TWO_PI, Elementwise, Number, log, standardise

__all__ = ["DENSITY", "kl", "kl_gradients", "log_density", "score"]


def log_density(value: Tensor, loc: Number, scale: Number) -> Tensor:
    """Equation (1), its logarithm."""
    return -0.5 * standardise(value, loc, scale).square() - (log(scale) + HALF_LOG_TWO_PI)


def score(value: Tensor, loc: Number, scale: Number) -> Tensor:
    """Equation (2)."""
    return -standardise(value, loc, scale * scale)


def std(loc: Number, scale: Number) -> Number:
    """The standard deviation is the scale."""
    return scale


def kl(mean: Tensor, std: Tensor, loc: Number, scale: Number) -> Tensor:
    """Equation (3)."""
    ratio = standardise(std, 0.0, scale)
    return 0.5 * (standardise(mean, loc, scale).square() + ratio.square() - 1.0) - torch.log(ratio)


def kl_gradients(mean: Tensor, std: Tensor, loc: Number, scale: Number) -> tuple[Tensor, Tensor]:
    """Derivatives of equation (3): (m - loc) / scale^2 and s / scale^2 - 1 / s."""
    variance = scale * scale
    return standardise(mean, loc, variance), standardise(std, 0.0, variance) - std.reciprocal()


DENSITY = Elementwise("normal", ("loc", "scale"), log_density, score, std, kl, kl_gradients)
