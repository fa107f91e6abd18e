"""A whole step of mean-field inference as one native call, for small stacks of dense layers and many particles.

    theta = mean + std * noise,  gradients of log p(rows | theta) and of the prior,  Adam on mean and rho

The definition is the plain path of Bayes by Backprop (`inference.variational.gradients` and
`inference.optimizers.Adam`); tests hold the two together, element by element.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bayesprop.kernels import native
from bayesprop.kernels.small_stack import Joint, at, whole

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
    noise: Tensor,
    *,
    adam: Sequence[Sequence[float]],
    kl_weights: Sequence[float],
    closed_form: bool,
) -> Tensor:
    """Take one step in place; the log-likelihood of the rows at the sample, float64 (particles,).

    `inputs` (particles, rows, F) and `targets` (particles, rows, T), of int64 or float32, may be one set of rows that
    particles share. `tensors`: mean, rho, first and second moment of the mean, first and second moment of rho, each
    contiguous (particles, columns) in float32, as is `noise`. `adam`: for each particle the eight numbers that
    native.cpp lists. `kl_weights` are divided by N. With `closed_form` the KL of the weights is that of two Gaussians.
    """
    handle = library().handle
    assert handle is not None, "the caller asks library() first"
    particles, rows = inputs.shape[:2]
    inputs, targets = _rows(inputs.float()), _rows(targets)
    each = joint.random if joint.center.dim() > 1 and len(joint.center) > 1 else 0
    strides = np.array([_apart(inputs), _apart(targets), each], dtype=np.int64)
    numbers = np.array(adam, dtype=np.float32)
    weights = np.array(kl_weights, dtype=np.float32)
    value = torch.empty(particles, dtype=torch.float64)
    handle.bayesprop_descent(
        *joint.layers,
        whole(rows),
        whole(joint.columns),
        whole(joint.random),
        *joint.prior,
        *joint.hyperpriors,
        *joint.outcome,
        at(inputs),
        at(targets),
        whole(targets.dtype == torch.int64),
        whole(targets.shape[2]),
        at(strides),
        *(at(t) for t in tensors),
        *(at(t) for t in (noise, numbers, weights)),
        whole(closed_form),
        at(value),
        whole(particles),
        whole(min(torch.get_num_threads(), particles)),
    )
    return value


def _apart(rows: Tensor) -> int:
    return rows.stride(0) if rows.shape[0] > 1 else 0


def _rows(rows: Tensor) -> Tensor:
    """Rows behind one another for each particle; the particles may be one and the same."""
    own = rows[:1] if rows.stride(0) == 0 else rows
    return rows if own[0].is_contiguous() else own.contiguous().expand(rows.shape)
