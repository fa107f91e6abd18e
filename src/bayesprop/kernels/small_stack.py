"""The log joint of a small stack of dense layers as numbers, in the form that native code takes.

For a network of sixty weights and five hundred rows a gradient is some ten microseconds of arithmetic, and hundreds of
microseconds of calls into torch. `kernels.chains` and `kernels.descent` take many such gradients in one call.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from bayesprop.kernels.dense import Stack

__all__ = ["ACTIVATIONS", "LIKELIHOODS", "Joint", "at", "whole"]

ACTIVATIONS = {"identity": 0, "relu": 1, "tanh": 2, "sigmoid": 3}
LIKELIHOODS = {"Gaussian": 0, "Bernoulli": 1, "Categorical": 2}
whole = ctypes.c_int64


def at(array: np.ndarray | Tensor) -> ctypes.c_void_p:
    """Where an array lies."""
    return ctypes.c_void_p(array.data_ptr() if isinstance(array, Tensor) else array.ctypes.data)


@dataclass(frozen=True, eq=False)
class Joint:
    """A log joint in numbers.

    Of each random column: where its normal prior lies (`center`) and its `precision`, (columns,) or (particles,
    columns); the weight is the column itself, or `loc` + e^t times it with t in `scale_column` (-1: none). Of each
    latent: its column, its hyperprior (0 half-normal, 1 half-Cauchy) and that one's scale. The noise scale is a number
    or in a column.
    """

    stack: Stack
    columns: int
    center: Tensor
    precision: Tensor
    loc: Tensor
    scale_column: Tensor
    latents: tuple[tuple[int, int, float], ...]
    likelihood: str
    noise: float = 1.0
    noise_column: int = -1

    @functools.cached_property
    def _arrays(self) -> tuple[np.ndarray, ...]:
        layers = self.stack.layers
        parts = [[lay.weight, lay.bias, lay.inputs, lay.outputs, ACTIVATIONS[lay.activation]] for lay in layers]
        columns, kinds, scales = ([latent[i] for latent in self.latents] for i in range(3))
        return (
            np.array(parts, dtype=np.int64),
            np.array(columns, dtype=np.int64),
            np.array(kinds, dtype=np.int64),
            np.array(scales, dtype=np.float64),
        )

    @functools.cached_property
    def layers(self) -> tuple[ctypes.c_void_p, ctypes.c_int64]:
        """The layers, and how many they are."""
        return at(self._arrays[0]), whole(len(self.stack.layers))

    @functools.cached_property
    def prior(self) -> tuple[ctypes.c_void_p, ...]:
        """Center, precision, loc and scale columns."""
        return tuple(at(t) for t in (self.center, self.precision, self.loc, self.scale_column))

    @functools.cached_property
    def hyperpriors(self) -> tuple[ctypes.c_void_p | ctypes.c_int64, ...]:
        """Columns, kinds and scales of the latents, and how many they are."""
        return (*(at(array) for array in self._arrays[1:]), whole(len(self.latents)))

    @functools.cached_property
    def outcome(self) -> tuple[ctypes.c_int64 | ctypes.c_float, ...]:
        """The likelihood, and its noise."""
        return whole(LIKELIHOODS[self.likelihood]), whole(self.noise_column), ctypes.c_float(self.noise)

    @functools.cached_property
    def constant(self) -> float:
        """The log of the prior's normalisers."""
        return 0.5 * float((self.precision.double().log() - float(np.log(2.0 * np.pi))).sum(-1).reshape(-1)[0])

    @property
    def random(self) -> int:
        """How many random columns there are."""
        return self.center.shape[-1]
