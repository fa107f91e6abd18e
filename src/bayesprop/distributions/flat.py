"""The flat "density" p(w) = 1 on the whole line: improper; for maximum likelihood and weights without a prior belief.

Its cross entropy with anything is 0, so that

    KL(N(m, s^2) || flat) = -entropy = -log s - log(2 pi e) / 2                                            (1)

which is not a divergence: it may be negative, and has no lower bound. Evidence bounds of models with flat priors cannot
be compared with those of models with proper ones.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bayesprop.distributions.elementwise import HALF_LOG_TWO_PI, Elementwise

__all__ = ["DENSITY", "kl", "kl_gradients", "log_density", "score"]


def log_density(value: Tensor) -> Tensor:
    """log 1."""
    return torch.zeros_like(value)


def score(value: Tensor) -> Tensor:
    """0 everywhere."""
    return torch.zeros_like(value)


def std() -> float:
    """Infinite."""
    return math.inf


def kl(mean: Tensor, std: Tensor) -> Tensor:
    """Equation (1)."""
    return -torch.log(std) - (HALF_LOG_TWO_PI + 0.5)


def kl_gradients(mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
    """Derivatives of equation (1): 0 and -1 / s."""
    return torch.zeros_like(mean), -std.reciprocal()


DENSITY = Elementwise("flat", (), log_density, score, std, kl, kl_gradients)
