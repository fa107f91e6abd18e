"""A whole step of mean-field inference as one native call, for small stacks of dense layers and many particles.

    theta = mean + std * noise,  gradients of log p(rows | theta) and of the prior,  Adam on mean and rho

The definition is the plain path of Bayes by Backprop (`inference.variational.gradients` and
`inference.optimizers.Adam`); tests hold the two together, element by element.
"""

from __future__ import annotations

import ctypes
import functools
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from bayesprop.kernels import native
from bayesprop.kernels.small_stack import Joint

__all__ = ["descend", "library"]

SOURCE = Path(__file__).with_name("descent.cpp")


@functools.cache
def library() -> native.Library:
    """Build the library if needed and load it, once a process."""
    return native.built(SOURCE, ("descent",))


def descend(
    joint: Joint,
    inputs: Tensor,
    targets: Tensor,
    tensors: Sequence[Tensor],
    seeds: Tensor,
    step: int,
    stream: int,
    *,
    adam: Iterable[Iterable[float]],
    kl_weights: Sequence[float],
    closed_form: bool,
    value_scale: float = 1.0,
) -> Tensor:
    """Take one step in place; the log-likelihood of the rows at the sample (particles,), times `value_scale`.

    `inputs` (particles, rows, F) and `targets` (particles, rows, T), of int64 or float32, may be one set of rows that
    particles share. `tensors`: mean, rho, first and second moment of the mean, first and second moment of rho, each
    contiguous (particles, columns) in float32. `adam`: for each particle the eight numbers that native.cpp lists.
    `kl_weights` are divided by N. With `closed_form` the KL of the weights is that of two Gaussians.
    """
    handle = library().handle
    assert handle is not None, "the caller asks library() first"
    particles, rows = inputs.shape[:2]
    inputs, targets = _rows(inputs if inputs.dtype == torch.float32 else inputs.float()), _rows(targets)
    each = joint.random if joint.center.dim() > 1 and len(joint.center) > 1 else 0
    strides = array("q", (_apart(inputs), _apart(targets), each))
    numbers, weights = array("f", (number for row in adam for number in row)), array("f", kl_weights)
    value = torch.empty(particles)
    handle.bayesprop_descent(
        *joint.layers,
        _whole(rows),
        _whole(joint.columns),
        _whole(joint.random),
        *joint.prior,
        *joint.hyperpriors,
        *joint.outcome,
        _at(inputs),
        _at(targets),
        _whole(targets.dtype == torch.int64),
        _whole(targets.shape[2]),
        _in(strides),
        *map(_at, tensors),
        _at(seeds),
        _whole(step),
        _whole(stream),
        _in(numbers),
        _in(weights),
        _whole(closed_form),
        ctypes.c_float(value_scale),
        _at(value),
        _whole(particles),
        _whole(min(torch.get_num_threads(), particles)),
    )
    return value


_whole = ctypes.c_int64


def _at(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _in(numbers: array[int] | array[float]) -> ctypes.c_void_p:
    return ctypes.c_void_p(numbers.buffer_info()[0])


def _apart(rows: Tensor) -> int:
    return rows.stride(0) if rows.shape[0] > 1 else 0


def _rows(rows: Tensor) -> Tensor:
    """Rows behind one another for each particle; the particles may be one and the same."""
    if rows.stride()[1:] == (rows.shape[2], 1):
        return rows
    return (rows[:1] if rows.stride(0) == 0 else rows).contiguous().expand(rows.shape)
