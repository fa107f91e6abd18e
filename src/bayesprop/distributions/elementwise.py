"""What a family of elementwise densities offers, and the arithmetic on parameters that may be numbers or tensors.

A density on R is a set of plain functions of tensors. Its parameters are Python floats (which cost no memory and let a
kernel take them as constants) or tensors that broadcast against the value. The functions never sum: a prior over half a
million weights is one call on a row of half a million columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import overload

import torch
from torch import Tensor

__all__ = ["HALF_LOG_TWO_PI", "Elementwise", "Family", "Number", "log", "standardise"]

Number = float | Tensor

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True)
class Elementwise:
    """One family: its name, the order of its parameters, and its functions.

    log_density(value, *parameters)      log p(value), elementwise
    score(value, *parameters)            d log p(value) / d value
    std(*parameters)                     standard deviation; infinite where there is none
    kl(mean, std, *parameters)           KL(N(mean, std^2) || p), elementwise; None when there is no closed form
    kl_gradients(mean, std, *parameters) its derivatives by mean and by std
    """

    name: str
    parameters: tuple[str, ...]
    log_density: Callable[..., Tensor]
    score: Callable[..., Tensor]
    std: Callable[..., Number]
    kl: Callable[..., Tensor] | None = None
    kl_gradients: Callable[..., tuple[Tensor, Tensor]] | None = None


@dataclass(frozen=True)
class Family:
    """A family whose parameters are plain numbers: what a fused kernel needs to know about a prior.

    The numbers come in the order of `Elementwise.parameters`: normal and laplace (loc, scale), student_t (df, loc,
    scale), scale_mixture (pi, scale1, scale2), flat ().
    """

    name: str
    parameters: tuple[float, ...]


@overload
def log(number: float) -> float: ...
@overload
def log(number: Tensor) -> Tensor: ...
def log(number: Number) -> Number:
    """Logarithm of a float as a float, of a tensor as a tensor."""
    return torch.log(number) if isinstance(number, Tensor) else math.log(number)


def standardise(value: Tensor, loc: Number, scale: Number) -> Tensor:
    """(value - loc) / scale, without the passes over memory that loc = 0 and scale = 1 would waste."""
    if isinstance(loc, Tensor) or loc != 0.0:
        value = value - loc
    if isinstance(scale, Tensor) or scale != 1.0:
        value = value / scale
    return value
