"""Student's t density; the Cauchy density is df = 1.

With z = (w - loc) / scale,

    p(w) = Gamma((df + 1) / 2) / (Gamma(df / 2) sqrt(df pi) scale) (1 + z^2 / df)^(-(df + 1) / 2)          (1)
    d log p / dw = -(df + 1) z / ((df + z^2) scale)                                                        (2)

`scale` is not a standard deviation: that is scale sqrt(df / (df - 2)), and infinite for df <= 2. The divergence from a
Gaussian has no closed form.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bayesprop.distributions.elementwise import Elementwise, Number, log, standardise

__all__ = ["DENSITY", "log_density", "score"]


def _log_gamma(number: Number) -> Number:
    return torch.lgamma(number) if isinstance(number, Tensor) else math.lgamma(number)


def log_density(value: Tensor, df: Number, loc: Number, scale: Number) -> Tensor:
    """Equation (1), its logarithm."""
    constant = _log_gamma(0.5 * (df + 1.0)) - _log_gamma(0.5 * df) - 0.5 * log(df * math.pi) - log(scale)
    z = standardise(value, loc, scale)
    return constant - 0.5 * (df + 1.0) * torch.log1p(z.square() / df)


def score(value: Tensor, df: Number, loc: Number, scale: Number) -> Tensor:
    """Equation (2)."""
    z = standardise(value, loc, scale)
    return -(df + 1.0) * z / ((z.square() + df) * scale)


def std(df: Number, loc: Number, scale: Number) -> Number:
    """scale sqrt(df / (df - 2)), infinite for df <= 2."""
    if isinstance(df, Tensor):
        return scale * torch.where(df > 2.0, df / (df - 2.0).clamp_min(0.0), math.inf).sqrt()
    return scale * math.sqrt(df / (df - 2.0)) if df > 2.0 else scale * math.inf


DENSITY = Elementwise("student_t", ("df", "loc", "scale"), log_density, score, std)
