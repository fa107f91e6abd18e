"""GPU bodies for stacks of dense layers: forward, loss, backward, and the gradient of all weights.

Launched by `kernels.dense`, which also says what the arguments mean. Weights lie in theta (lanes, columns) as torch has
them, (outputs, inputs) row by row; lanes lie `pitch` numbers apart. What a layer puts out is stored behind its
activation; derivatives are read off it. Kernels go through the lanes forwards and backwards in turn: each begins with
those that the one before it has left in the second-level cache.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bayesprop.kernels.device import interpreted

__all__ = ["backward_kernel", "forward_kernel", "gradient_kernel", "head_kernel"]

INTERPRETED = tl.constexpr(interpreted())


@triton.jit
def _lane(AXIS: tl.constexpr, REVERSED: tl.constexpr):
    lane = tl.program_id(AXIS).to(tl.int64)
    if REVERSED:
        lane = tl.num_programs(AXIS) - 1 - lane
    return lane


@triton.jit
def _activate(z, ACTIVATION: tl.constexpr):
    if ACTIVATION == "relu":
        return tl.maximum(z, 0.0)
    elif ACTIVATION == "tanh":
        return 1.0 - 2.0 / (tl.exp(2.0 * z) + 1.0)
    elif ACTIVATION == "sigmoid":
        return 1.0 / (1.0 + tl.exp(-z))
    else:
        return z


@triton.jit
def _slope(h, ACTIVATION: tl.constexpr):
    """The activation's derivative, from what it put out."""
    if ACTIVATION == "relu":
        return tl.where(h > 0.0, 1.0, 0.0)
    elif ACTIVATION == "tanh":
        return 1.0 - h * h
    elif ACTIVATION == "sigmoid":
        return h * (1.0 - h)
    else:
        return h * 0.0 + 1.0


@triton.jit
def _product(a, b, total, PRECISION: tl.constexpr):
    """total + a b; PRECISION is "ieee", "tf32" or "bf16". The interpreter has no products of bf16, but rounds to it."""
    if PRECISION == "bf16":
        if INTERPRETED:
            return tl.dot(a.to(tl.bfloat16).to(tl.float32), b.to(tl.bfloat16).to(tl.float32), total)
        else:
            return tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), total)
    else:
        return tl.dot(a, b, total, input_precision=PRECISION)


@triton.jit
def forward_kernel(
    source, theta, out, rows, inputs, outputs, pitch, weight, bias, share,
    ACTIVATION: tl.constexpr, PRECISION: tl.constexpr, BIAS: tl.constexpr, REVERSED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """out = activation(source W' + b); `share` lanes read the same source."""
    lane = _lane(2, REVERSED)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    source += (lane // share) * rows * inputs
    theta += lane * pitch
    z = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, inputs, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(
            source + m[:, None] * inputs + k[None, :], mask=(m < rows)[:, None] & (k < inputs)[None, :], other=0.0
        )
        w = tl.load(
            theta + weight + n[None, :] * inputs + k[:, None],
            mask=(n < outputs)[None, :] & (k < inputs)[:, None],
            other=0.0,
        )
        z = _product(x, w, z, PRECISION)
    if BIAS:
        z += tl.load(theta + bias + n, mask=n < outputs, other=0.0).to(tl.float32)[None, :]
    at = lane * rows * outputs + m[:, None] * outputs + n[None, :]
    tl.store(out + at, _activate(z, ACTIVATION), mask=(m < rows)[:, None] & (n < outputs)[None, :])


@triton.jit
def backward_kernel(
    behind, theta, before, out, out_transposed, rows, inputs, outputs, pitch, weight, row_pitch,
    ACTIVATION: tl.constexpr, BOTH: tl.constexpr, PRECISION: tl.constexpr, REVERSED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """out = (behind W) * activation'(before): from the gradient behind a layer to the one behind the layer before.

    With BOTH it is written as it is, for the next step back, besides transposed, for `gradient_kernel`.
    """
    lane = _lane(2, REVERSED)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)  # of the layer's inputs
    behind += lane * rows * outputs
    theta += lane * pitch
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, outputs, BK):
        k = start + tl.arange(0, BK)
        d = tl.load(
            behind + m[:, None] * outputs + k[None, :], mask=(m < rows)[:, None] & (k < outputs)[None, :], other=0.0
        )
        w = tl.load(
            theta + weight + k[:, None] * inputs + n[None, :],
            mask=(k < outputs)[:, None] & (n < inputs)[None, :],
            other=0.0,
        )
        total = _product(d, w, total, PRECISION)
    mask = (m < rows)[:, None] & (n < inputs)[None, :]
    at = lane * rows * inputs + m[:, None] * inputs + n[None, :]
    h = tl.load(before + at, mask=mask, other=0.0)
    d = total * _slope(h, ACTIVATION)
    if BOTH:
        tl.store(out + at, d, mask=mask)
    tl.store(out_transposed + lane * inputs * row_pitch + n[None, :] * row_pitch + m[:, None], d, mask=mask)


@triton.jit
def head_kernel(
    source, theta, targets, out_transposed, before, before_transposed, value, rows, inputs, outputs, pitch,
    weight, bias, share, samples, span, row_pitch,
    ACTIVATION: tl.constexpr, PRECISION: tl.constexpr, BIAS: tl.constexpr, ALONE: tl.constexpr, BOTH: tl.constexpr,
    REVERSED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The last layer, log p(labels | its outputs), and the gradients behind it and before it, for BM rows of a lane.

    All classes lie in one tile. `value` (lanes, blocks of rows) takes each block's sum. The gradient before the layer
    is written by several programs, `span` columns by each, transposed and with BOTH as it is, too. ACTIVATION is that
    of the layer before; with ALONE there is none.
    """
    lane = _lane(1, REVERSED)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, BN)
    source += (lane // share) * rows * inputs
    theta += lane * pitch
    here = (m < rows)[:, None] & (n < outputs)[None, :]
    z = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, inputs, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(
            source + m[:, None] * inputs + k[None, :], mask=(m < rows)[:, None] & (k < inputs)[None, :], other=0.0
        )
        w = tl.load(
            theta + weight + n[None, :] * inputs + k[:, None],
            mask=(n < outputs)[None, :] & (k < inputs)[:, None],
            other=0.0,
        )
        z = _product(x, w, z, PRECISION)
    if BIAS:
        z += tl.load(theta + bias + n, mask=n < outputs, other=0.0).to(tl.float32)[None, :]
    z = tl.where((n < outputs)[None, :], z, -float("inf"))
    label = tl.load(targets + (lane // samples) * rows + m, mask=m < rows, other=0).to(tl.int32)
    z -= tl.max(z, axis=1)[:, None]
    e = tl.exp(z)
    norm = tl.sum(e, axis=1)
    chosen = n[None, :] == label[:, None]
    value_of = tl.sum(tl.where(chosen, z, 0.0), axis=1) - tl.log(norm)
    d = tl.where(here, tl.where(chosen, 1.0, 0.0) - e / norm[:, None], 0.0)
    first = tl.program_id(2) * span
    if first == 0:
        tl.store(
            value + lane * tl.num_programs(0) + tl.program_id(0), tl.sum(tl.where(m < rows, value_of, 0.0), axis=0)
        )
        at = lane * outputs * row_pitch + n[None, :] * row_pitch + m[:, None]
        tl.store(out_transposed + at, d, mask=here)
    if not ALONE:
        for start in range(first, min(inputs, first + span), BK):
            k = start + tl.arange(0, BK)
            w = tl.load(
                theta + weight + n[:, None] * inputs + k[None, :],
                mask=(n < outputs)[:, None] & (k < inputs)[None, :],
                other=0.0,
            )
            mask = (m < rows)[:, None] & (k < inputs)[None, :]
            h = tl.load(source + m[:, None] * inputs + k[None, :], mask=mask, other=0.0)
            none = tl.zeros((BM, BK), dtype=tl.float32)
            found = _product(d, w, none, PRECISION) * _slope(h, ACTIVATION)
            if BOTH:
                tl.store(before + lane * rows * inputs + m[:, None] * inputs + k[None, :], found, mask=mask)
            at = lane * inputs * row_pitch + k[None, :] * row_pitch + m[:, None]
            tl.store(before_transposed + at, found, mask=mask)


@triton.jit
def _gradient(d_columns, x_rows, n, k, rows, row_pitch, outputs, inputs, PRECISION: tl.constexpr, BM: tl.constexpr):
    """d' x for one tile of weights: the sum over rows."""
    g = tl.zeros((n.shape[0], k.shape[0]), dtype=tl.float32)
    for start in range(0, rows, BM):
        m = start + tl.arange(0, BM)
        d = tl.load(
            d_columns + n[:, None] * row_pitch + m[None, :],
            mask=(n < outputs)[:, None] & (m < rows)[None, :],
            other=0.0,
        )
        x = tl.load(
            x_rows + m[:, None] * inputs + k[None, :], mask=(m < rows)[:, None] & (k < inputs)[None, :], other=0.0
        )
        g = _product(d, x, g, PRECISION)
    return g


@triton.jit
def _bias_gradient(d_columns, n, rows, row_pitch, outputs, BM: tl.constexpr):
    g = tl.zeros((n.shape[0],), dtype=tl.float32)
    for start in range(0, rows, BM):
        m = start + tl.arange(0, BM)
        d = tl.load(
            d_columns + n[:, None] * row_pitch + m[None, :],
            mask=(n < outputs)[:, None] & (m < rows)[None, :],
            other=0.0,
        )
        g += tl.sum(d, axis=1)
    return g


@triton.jit
def gradient_kernel(
    source, work, layers, gradient, pitch, rows, row_pitch, samples,
    LAYERS: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """dL/dW of one tile of one layer, for one lane, and with the first tile of a row dL/db.

    `layers` (LAYERS, 7): columns of weight and bias (-1: none), inputs, outputs, where in `work` the transposed
    gradient behind the layer and the layer's source lie, and the layer's first tile. With WIDE, rows of all weights and
    sources begin at multiples of 16 numbers.
    """
    tile = tl.program_id(0)
    lane = _lane(1, True)
    layer = 0
    for i in tl.static_range(1, LAYERS):
        layer = tl.where(tile >= tl.load(layers + 7 * i + 6), i, layer)
    weight = tl.load(layers + 7 * layer)
    bias = tl.load(layers + 7 * layer + 1)
    inputs = tl.load(layers + 7 * layer + 2).to(tl.int32)
    outputs = tl.load(layers + 7 * layer + 3).to(tl.int32)
    d_columns = work + tl.multiple_of(tl.load(layers + 7 * layer + 4), 16) + lane * outputs * row_pitch
    before = tl.load(layers + 7 * layer + 5)
    if WIDE:
        weight = tl.multiple_of(weight, 16)
        inputs = tl.multiple_of(inputs, 16)
        before = tl.multiple_of(before, 16)
    x_rows = work + before + lane * rows * inputs
    if layer == 0:
        x_rows = source + (lane // samples) * rows * inputs
    tile -= tl.load(layers + 7 * layer + 6).to(tl.int32)
    across = tl.cdiv(inputs, BK)
    n = (tile // across) * BN + tl.arange(0, BN)
    k = (tile % across) * BK + tl.arange(0, BK)
    gradient += lane * pitch
    found = _gradient(d_columns, x_rows, n, k, rows, row_pitch, outputs, inputs, PRECISION, BM)
    mask = (n < outputs)[:, None] & (k < inputs)[None, :]
    tl.store(gradient + weight + n[:, None] * inputs + k[None, :], found, mask=mask)
    if (tile % across == 0) & (bias >= 0):
        tl.store(gradient + bias + n, _bias_gradient(d_columns, n, rows, row_pitch, outputs, BM), mask=n < outputs)
