"""The Laplace (double exponential) density.

    p(w) = exp(-|w - loc| / scale) / (2 scale)                                                             (1)
    d log p / dw = -sign(w - loc) / scale,  0 at the kink                                                  (2)

With d = m - loc, the mean absolute deviation of a Gaussian N(m, s^2) and the divergence are

    E|w - loc| = s sqrt(2 / pi) exp(-d^2 / (2 s^2)) + d erf(d / (s sqrt(2)))                               (3)
    KL(N(m, s^2) || p) = log(2 scale) + E|w - loc| / scale - log s - log(2 pi e) / 2                       (4)

`scale` is the b of most texts: the standard deviation is sqrt(2) scale.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bayesprop.distributions.elementwise import HALF_LOG_TWO_PI, Elementwise, Number, log, standardise

__all__ = ["DENSITY", "kl", "kl_gradients", "log_density", "score"]

ROOT_TWO_OVER_PI = math.sqrt(2.0 / math.pi)


def log_density(value: Tensor, loc: Number, scale: Number) -> Tensor:
    """Equation (1), its logarithm."""
    return -standardise(value, loc, scale).abs() - (log(scale) + math.log(2.0))


def score(value: Tensor, loc: Number, scale: Number) -> Tensor:
    """Equation (2)."""
    return -standardise(torch.sign(standardise(value, loc, 1.0)), 0.0, scale)


def std(loc: Number, scale: Number) -> Number:
    """sqrt(2) scale."""
    return math.sqrt(2.0) * scale


def kl(mean: Tensor, std: Tensor, loc: Number, scale: Number) -> Tensor:
    """Equation (4)."""
    distance = standardise(mean, loc, 1.0)
    ratio = distance / std
    deviation = ROOT_TWO_OVER_PI * std * torch.exp(-0.5 * ratio.square()) + distance * torch.erf(ratio * math.sqrt(0.5))
    return standardise(deviation, 0.0, scale) - torch.log(std) + (log(scale) + math.log(2.0) - HALF_LOG_TWO_PI - 0.5)


def kl_gradients(mean: Tensor, std: Tensor, loc: Number, scale: Number) -> tuple[Tensor, Tensor]:
    """Derivatives of (4): erf(d / (s sqrt(2))) / scale and sqrt(2 / pi) exp(-d^2 / (2 s^2)) / scale - 1 / s."""
    ratio = standardise(mean, loc, 1.0) / std
    by_mean = torch.erf(ratio * math.sqrt(0.5)) / scale
    return by_mean, ROOT_TWO_OVER_PI * torch.exp(-0.5 * ratio.square()) / scale - std.reciprocal()


DENSITY = Elementwise("laplace", ("loc", "scale"), log_density, score, std, kl, kl_gradients)
