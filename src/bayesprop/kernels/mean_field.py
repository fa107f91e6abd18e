"""The two passes over the columns that carry the Bayesian part of any network, as native code for the CPU.

    sample:  w = mean + softplus(rho) * eps                                                                     (1)
    update:  draw the same eps again from its counter, add the prior's and the entropy's gradient to dL/dw, take Adam's
    step (2)

Nothing is stored between the two but the weights. Steps in a row keep the noise, too, and the update draws the next
step's sample while it has the new means: drawing noise takes a quarter of both passes. The definition of (2) is the
plain path of Bayes by Backprop (`inference.variational.gradients` and `inference.optimizers.Adam`); tests hold the two
together, element by element.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from bayesprop.kernels import native

__all__ = ["FAMILIES", "adam_update", "sample"]


def _log(number: float | Tensor) -> float | Tensor:
    return torch.log(number) if isinstance(number, Tensor) else math.log(number)


# Closed-form families by name: the number that native.cpp switches on, and the numbers that its score needs. These are
# functions of the family's own numbers, floats or tensors.
FAMILIES = {
    "normal": (1, lambda loc, scale: (loc, 1.0 / scale**2)),
    "laplace": (2, lambda loc, scale: (loc, 1.0 / scale)),
    "student_t": (3, lambda df, loc, scale: (loc, df + 1.0, df * scale**2)),
    "scale_mixture": (
        4,
        lambda pi, scale1, scale2: (
            _log(pi / (1.0 - pi)) + _log(scale2 / scale1),
            0.5 * (1.0 / scale2**2 - 1.0 / scale1**2),
            1.0 / scale1**2,
            1.0 / scale2**2,
        ),
    ),
    "flat": (5, lambda: ()),
}


def _pointer(row: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(row.data_ptr())


def _floats(values: Sequence[float], length: int) -> ctypes.Array[ctypes.c_float]:
    return (ctypes.c_float * length)(*[*values, *[0.0] * (length - len(values))])


def _integers(*values: int) -> list[ctypes.c_int64]:
    return [ctypes.c_int64(value) for value in values]


def sample(
    mean: Tensor,
    rho: Tensor,
    keys: Tensor,
    step: int,
    stream: int,
    columns: int,
    *,
    out: Tensor | None = None,
    kept: Tensor | None = None,
) -> Tensor:
    """Equation (1) for the first `columns` columns of each particle; columns beyond those are copies of the mean.

    `kept` (particles, columns) receives the noise.
    """
    handle = native.library().handle
    assert handle is not None, "the caller asks explain() first"
    out = torch.empty_like(mean) if out is None else out
    out[:, columns:] = mean[:, columns:]
    for p, (seed, draw) in enumerate(keys.tolist()):
        rows = [_pointer(t[p]) for t in (out, mean, rho)]
        shape = (*_integers(columns), native.threads(columns))
        noise = None if kept is None else _pointer(kept[p])
        handle.bayesprop_sample(*rows, noise, *shape, *_integers(seed, draw, step, stream))
    return out


def adam_update(
    tensors: Sequence[Tensor],
    gradients: Sequence[Tensor],
    keys: Tensor,
    step: int,
    stream: int,
    *,
    family: str,
    parameters: Sequence[float] | Sequence[Sequence[float]],
    closed_form: bool,
    adam: Sequence[Sequence[float]],
    likelihood_weight: float,
    kl_weights: Sequence[float],
    ahead: tuple[Tensor, Tensor] | None = None,
) -> None:
    """Equation (2), in place.

    `tensors`: mean, rho, first and second moment of the mean, first and second moment of rho; each (particles, ...).
    `gradients`: dL/dw in pieces (particles, columns of the piece), in the order of the columns; the columns that they
    cover are updated. `parameters`: the family's, one tuple for all particles or one for each. `adam`: for each
    particle the eight numbers that native.cpp lists.
    """
    handle = native.library().handle
    assert handle is not None, "the caller asks explain() first"
    number, order = FAMILIES[family]
    code = 0 if closed_form and family == "normal" else number
    own = [numbers for numbers in parameters if isinstance(numbers, Sequence)]
    each = own or [[numbers for numbers in parameters if not isinstance(numbers, Sequence)]]
    constants = [_floats(order(*numbers), 4) for numbers in each] * (len(keys) if len(each) == 1 else 1)
    pieces = [gradient.contiguous() for gradient in gradients]
    starts = [0]
    for piece in pieces:
        starts.append(starts[-1] + piece.shape[1])
    edges = (ctypes.c_int64 * len(starts))(*starts)
    shape = (*_integers(len(pieces), starts[-1]), native.threads(starts[-1]))
    for p, (seed, draw) in enumerate(keys.tolist()):
        rows = [_pointer(t[p]) for t in tensors]
        pointers = (ctypes.c_void_p * len(pieces))(*[piece[p].data_ptr() for piece in pieces])
        weights = (ctypes.c_float(likelihood_weight), ctypes.c_float(kl_weights[p]))
        tail = _integers(seed, draw, step, stream, code)
        places = (None, None) if ahead is None else (_pointer(ahead[1][p]), _pointer(ahead[0][p]))
        pass_ = (*rows, *places, pointers, edges, *shape, *tail, constants[p], _floats(adam[p], 8), *weights)
        handle.bayesprop_adam(*pass_)
