"""Where increasing functions cross zero, for many functions at once.

`bracket` walks outwards until the crossing is enclosed, `continuous` closes in on it and `whole` finds the first whole
number at or above it. All work elementwise on tensors of any shape, in float64.

`continuous` is Chandrupatla's method (1997): inverse quadratic interpolation through the last three points where these
say that the function is nearly straight, halving where not. It never leaves the bracket and needs about a quarter of
the evaluations of bisection.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["bracket", "continuous", "whole"]

Function = Callable[[Tensor], Tensor]

# 2^64 steps hold every level that float64 can name for a Gaussian, and levels down to 1e-19 for a Cauchy.
_DOUBLINGS = 64
# Halving alone brings the widest bracket that _DOUBLINGS can make down to 2^-36 steps.
_EVALUATIONS = 100


def bracket(function: Function, low: Tensor, high: Tensor, step: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(low, high, found) with function(low) < 0 <= function(high) wherever `found`; steps double on the way out."""
    for _ in range(_DOUBLINGS):
        too_high, too_low = ~(function(low) < 0), function(high) < 0
        if not bool((too_high | too_low).any()):
            break
        low, high = torch.where(too_high, low - step, low), torch.where(too_low, high + step, high)
        step = 2 * step
    found = (function(low) < 0) & (function(high) >= 0) & torch.isfinite(low) & torch.isfinite(high)
    return low, high, found


def continuous(function: Function, low: Tensor, high: Tensor, tolerance: Tensor) -> Tensor:
    """The crossing of a continuous function, to `tolerance`; without a bracket, some number inside [low, high]."""
    # In the paper's terms: `a` is the newest point, `b` the one across the zero, `c` the one before.
    a, b = low, high
    value_a, value_b = function(a), function(b)
    c, value_c = b, value_b
    share = torch.full_like(a, 0.5)
    for _ in range(_EVALUATIONS):
        x = a + share * (b - a)
        value = function(x)
        same = torch.sign(value) == torch.sign(value_a)
        c, value_c = torch.where(same, a, b), torch.where(same, value_a, value_b)
        b, value_b = torch.where(same, b, a), torch.where(same, value_b, value_a)
        a, value_a = x, value
        width = (b - a).abs()
        if not bool(((width > tolerance) & (value_a != 0)).any()):
            break
        place, height = (a - b) / (c - b), (value_a - value_b) / (value_c - value_b)
        straight = (height.square() < place) & ((1 - height).square() < 1 - place)
        interpolated = value_a / (value_b - value_a) * value_c / (value_b - value_c) + (c - a) / (b - a) * value_a / (
            value_c - value_a
        ) * value_b / (value_c - value_b)
        share = torch.where(straight & torch.isfinite(interpolated), interpolated, 0.5)
        least = (0.5 * tolerance / width).clamp(max=0.5)  # a step below the tolerance would not close the bracket
        share = torch.minimum(torch.maximum(share, least), 1 - least)
    return torch.where(value_a == 0, a, torch.where(value_a.abs() < value_b.abs(), a, b))


def whole(function: Function, low: Tensor, high: Tensor) -> Tensor:
    """The smallest whole number at which the function is not negative, for functions that jump at whole numbers."""
    low, high = low.floor(), high.ceil()
    for _ in range(_EVALUATIONS):
        if not bool((high - low > 1).any()):
            break
        middle = (0.5 * (low + high)).floor()
        left = function(middle) < 0
        low, high = torch.where(left, middle, low), torch.where(left, high, middle)
    return high
