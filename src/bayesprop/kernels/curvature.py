"""The two passes over the columns of IVON as native code: draw the weights, take the step.

    w = m + eps / sqrt(t)                                                                                           (1)
    M <- M + (1 - b1) (v - M),                v = T p (m - loc) - g
    m <- m - r clip(M / (correction T t))                                                                           (2)
    t <- t + d + d^2 / (2 t),                 d = (a / T) [T (p - t) - g eps sqrt(t)]

with g the gradient of the log-likelihood of the full data at w, and a prior of precision p around loc (0: flat). The
definition is the plain path of `inference.variational.ivon`, which takes eight passes for what is one here; tests hold
the two together.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from bayesprop.kernels import native

__all__ = ["Numbers", "library", "spread", "take_step"]

LONGEST = 3e38  # a radius that no step reaches; fast arithmetic knows no infinity
SOURCE = Path(__file__).with_name("curvature.cpp")


@dataclass(frozen=True)
class Numbers:
    """What equation (2) needs of one particle; `radius` None for steps of any length."""

    rate: float
    share: float
    heat: float
    beta1: float
    correction: float
    radius: float | None
    loc: float
    prior: float

    def packed(self) -> ctypes.Array[ctypes.c_float]:
        """The eight numbers in the order of curvature.cpp."""
        radius = LONGEST if self.radius is None else self.radius
        scale = 1.0 / (self.correction * self.heat)
        row = (self.rate, self.share, self.heat, 1.0 - self.beta1, scale, radius, self.loc, self.prior)
        return (ctypes.c_float * 8)(*row)


@functools.cache
def library() -> native.Library:
    """Build the library if needed and load it, once a process."""
    return native.built(SOURCE, ("spread", "curvature"))


def _pointer(row: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(row.data_ptr())


def _shape(columns: int) -> tuple[ctypes.c_int64, ctypes.c_int64]:
    return ctypes.c_int64(columns), native.threads(columns)


def spread(mean: Tensor, precision: Tensor, noise: Tensor, columns: int) -> Tensor:
    """Equation (1) for the first columns of each particle; those beyond are copies of the mean."""
    handle = library().handle
    assert handle is not None, "the caller asks library() first"
    out = torch.empty_like(mean)
    out[:, columns:] = mean[:, columns:]
    for p in range(mean.shape[0]):
        rows = [_pointer(tensor[p]) for tensor in (out, mean, precision, noise)]
        handle.bayesprop_spread(*rows, *_shape(columns))
    return out


def take_step(
    mean: Tensor,
    precision: Tensor,
    momentum: Tensor,
    gradient: Tensor,
    noise: Tensor,
    columns: int,
    numbers: Sequence[Numbers],
) -> None:
    """Equation (2) for the first columns of each particle, in place."""
    handle = library().handle
    assert handle is not None, "the caller asks library() first"
    for p, own in enumerate(numbers):
        rows = [_pointer(tensor[p]) for tensor in (mean, precision, momentum, gradient, noise)]
        handle.bayesprop_curvature(*rows, *_shape(columns), own.packed())
