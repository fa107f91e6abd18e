"""GPU bodies for stacks of dense layers: forward, loss, backward, and a weight gradient that ends in the update.

Launched by `kernels.dense`, which also says what the arguments mean. Weights lie in theta (lanes, columns) as torch has
them, (outputs, inputs) row by row. What a layer puts out is stored behind its activation; derivatives are read off it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bayesprop.kernels.device_math import finish, normal_at, normal_quads, score, std_and_slope

__all__ = ["backward_kernel", "dense_update_kernel", "forward_kernel", "head_kernel"]


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
def forward_kernel(
    source, theta, out, rows, inputs, outputs, columns, weight, bias, share,
    ACTIVATION: tl.constexpr, PRECISION: tl.constexpr, BIAS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """out = activation(source W' + b); `share` lanes read the same source."""
    lane = tl.program_id(2).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    source += (lane // share) * rows * inputs
    theta += lane * columns
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
        z = tl.dot(x.to(w.dtype), w, z, input_precision=PRECISION)
    if BIAS:
        z += tl.load(theta + bias + n, mask=n < outputs, other=0.0).to(tl.float32)[None, :]
    at = lane * rows * outputs + m[:, None] * outputs + n[None, :]
    tl.store(out + at, _activate(z, ACTIVATION), mask=(m < rows)[:, None] & (n < outputs)[None, :])


@triton.jit
def backward_kernel(
    behind, theta, before, out, rows, inputs, outputs, columns, weight,
    ACTIVATION: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """out = (behind W) * activation'(before): from the gradient behind a layer to the one behind the layer before."""
    lane = tl.program_id(2).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)  # of the layer's inputs
    behind += lane * rows * outputs
    theta += lane * columns
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
        total = tl.dot(d.to(w.dtype), w, total, input_precision=PRECISION)
    mask = (m < rows)[:, None] & (n < inputs)[None, :]
    at = lane * rows * inputs + m[:, None] * inputs + n[None, :]
    h = tl.load(before + at, mask=mask, other=0.0)
    tl.store(out + at, total * _slope(h, ACTIVATION), mask=mask)


@triton.jit
def head_kernel(
    source, theta, targets, out, out_before, value, rows, inputs, outputs, columns, weight, bias, share, samples,
    ACTIVATION: tl.constexpr, PRECISION: tl.constexpr, BIAS: tl.constexpr, ALONE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The last layer, log p(labels | its outputs), and the gradients behind it and before it, for BM rows of a lane.

    All classes lie in one tile. `value` (lanes, blocks of rows) takes each block's sum. ACTIVATION is that of the layer
    before; with ALONE there is none.
    """
    lane = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, BN)
    source += (lane // share) * rows * inputs
    theta += lane * columns
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
        z = tl.dot(x.to(w.dtype), w, z, input_precision=PRECISION)
    if BIAS:
        z += tl.load(theta + bias + n, mask=n < outputs, other=0.0).to(tl.float32)[None, :]
    z = tl.where((n < outputs)[None, :], z, -float("inf"))
    label = tl.load(targets + (lane // samples) * rows + m, mask=m < rows, other=0).to(tl.int32)
    z -= tl.max(z, axis=1)[:, None]
    e = tl.exp(z)
    norm = tl.sum(e, axis=1)
    chosen = n[None, :] == label[:, None]
    found = tl.sum(tl.where(chosen, z, 0.0), axis=1) - tl.log(norm)
    tl.store(value + lane * tl.num_programs(0) + tl.program_id(0), tl.sum(tl.where(m < rows, found, 0.0), axis=0))
    d = tl.where(here, tl.where(chosen, 1.0, 0.0) - e / norm[:, None], 0.0)
    tl.store(out + lane * rows * outputs + m[:, None] * outputs + n[None, :], d, mask=here)
    if not ALONE:
        for start in range(0, inputs, BK):
            k = start + tl.arange(0, BK)
            w = tl.load(
                theta + weight + n[:, None] * inputs + k[None, :],
                mask=(n < outputs)[:, None] & (k < inputs)[None, :],
                other=0.0,
            )
            mask = (m < rows)[:, None] & (k < inputs)[None, :]
            h = tl.load(source + m[:, None] * inputs + k[None, :], mask=mask, other=0.0)
            before = tl.dot(d.to(w.dtype), w, input_precision=PRECISION) * _slope(h, ACTIVATION)
            tl.store(out_before + lane * rows * inputs + m[:, None] * inputs + k[None, :], before, mask=mask)


@triton.jit
def _noise(seed, block, column, sample, step, stream, ALIGNED: tl.constexpr, PAIRS: tl.constexpr):
    """The noise of one sample; the second half of antithetic samples are the first half's with the sign changed."""
    draw = tl.zeros([], tl.int32) + sample
    if PAIRS > 0:
        draw = draw % PAIRS
    if ALIGNED:
        noise = normal_quads(seed, block, draw, step, stream)
    else:
        noise = normal_at(seed, column, draw, step, stream)
    if PAIRS > 0:
        noise = noise * tl.where(sample >= PAIRS, -1.0, 1.0)
    return noise


@triton.jit
def _gradient(d_rows, x_rows, n, k, rows, outputs, inputs, PRECISION: tl.constexpr, BM: tl.constexpr):
    """d' x for one tile of weights: the sum over rows."""
    g = tl.zeros((n.shape[0], k.shape[0]), dtype=tl.float32)
    for start in range(0, rows, BM):
        m = start + tl.arange(0, BM)
        d = tl.load(
            d_rows + m[:, None] * outputs + n[None, :], mask=(m < rows)[:, None] & (n < outputs)[None, :], other=0.0
        )
        x = tl.load(
            x_rows + m[:, None] * inputs + k[None, :], mask=(m < rows)[:, None] & (k < inputs)[None, :], other=0.0
        )
        g = tl.dot(tl.trans(d), x, g, input_precision=PRECISION)
    return g


@triton.jit
def _bias_gradient(d_rows, n, rows, outputs, BM: tl.constexpr):
    g = tl.zeros((n.shape[0],), dtype=tl.float32)
    for start in range(0, rows, BM):
        m = start + tl.arange(0, BM)
        d = tl.load(
            d_rows + m[:, None] * outputs + n[None, :], mask=(m < rows)[:, None] & (n < outputs)[None, :], other=0.0
        )
        g += tl.sum(d, axis=0)
    return g


@triton.jit
def dense_update_kernel(
    mean, rho, mean_first, mean_second, rho_first, rho_second, theta, source, work, layers, seeds, step, numbers,
    constants, parts, value, constant_stride, stream, columns, width, particles, rows, likelihood_scale, kl_scale,
    value_scale, b1, b2, epsilon, weight_decay,
    FAMILY: tl.constexpr, EXACT: tl.constexpr, RULE: tl.constexpr, LAYERS: tl.constexpr, ALIGNED: tl.constexpr,
    SAMPLES: tl.constexpr, PAIRS: tl.constexpr, AHEAD: tl.constexpr, PARTS: tl.constexpr, COVER: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The gradient of one tile of one layer's weights, consumed where it arises: mean and rho take their step.

    `layers` (LAYERS, 7): columns of weight and bias (-1: none), inputs, outputs, where in `work` the gradient behind
    the layer and the layer's source lie, and the layer's first tile. `constants` (particles or 1, 2 LAYERS, 4). With
    AHEAD, theta (lanes, columns) becomes the sample of the next step. The particle's first tile also sums up the PARTS
    numbers that its log-likelihood came in, of which COVER is a power of two.
    """
    tile = tl.program_id(0)
    particle = tl.program_id(1)
    row = particle.to(tl.int64)
    layer = 0
    for i in tl.static_range(1, LAYERS):
        layer = tl.where(tile >= tl.load(layers + 7 * i + 6), i, layer)
    weight = tl.load(layers + 7 * layer).to(tl.int32)
    bias = tl.load(layers + 7 * layer + 1).to(tl.int32)
    inputs = tl.load(layers + 7 * layer + 2).to(tl.int32)
    outputs = tl.load(layers + 7 * layer + 3).to(tl.int32)
    behind = work + tl.load(layers + 7 * layer + 4)
    before = work + tl.load(layers + 7 * layer + 5)
    tile -= tl.load(layers + 7 * layer + 6).to(tl.int32)
    if PARTS > 0:
        if tl.program_id(0) == 0:
            part = tl.arange(0, COVER)
            found = tl.load(parts + row * PARTS + part, mask=part < PARTS, other=0.0)
            tl.store(value + row, tl.sum(found, axis=0) * value_scale)
    across = tl.cdiv(inputs, BK)
    n = (tile // across) * BN + tl.arange(0, BN)
    k = (tile % across) * BK + tl.arange(0, BK)
    mask = (n < outputs)[:, None] & (k < inputs)[None, :]
    column = weight + n[:, None] * inputs + k[None, :]
    mean += row * columns
    mean_first += row * columns
    mean_second += row * columns
    rho += row * width
    rho_first += row * width
    rho_second += row * width
    theta += row * SAMPLES * columns
    mu = tl.load(mean + column, mask=mask, other=0.0)
    rho_old = tl.load(rho + column, mask=mask, other=0.0)
    std, slope = std_and_slope(rho_old)
    constant = constants + row * constant_stride + layer * 8
    c0 = tl.load(constant)
    c1 = tl.load(constant + 1)
    c2 = tl.load(constant + 2)
    c3 = tl.load(constant + 3)
    seed = tl.load(seeds + particle)
    now = tl.load(step)
    kl_weight = tl.load(numbers + 2 * particles + particle) * kl_scale
    first = (weight + (tile % across) * BK) // 4
    block = first + n[:, None] * (inputs // 4) + tl.arange(0, BK // 4)[None, :]
    by_mean = tl.zeros((BN, BK), dtype=tl.float32)
    by_std = tl.zeros((BN, BK), dtype=tl.float32)
    for sample in range(SAMPLES):
        lane = row * SAMPLES + sample
        if layer == 0:
            x_rows = source + row * rows * inputs
        else:
            x_rows = before + lane * rows * inputs
        d_rows = behind + lane * rows * outputs
        g = _gradient(d_rows, x_rows, n, k, rows, outputs, inputs, PRECISION, BM) * likelihood_scale
        noise = _noise(seed, block, column, sample, now, stream, ALIGNED, PAIRS)
        if not EXACT:
            g -= kl_weight * score(mu + std * noise, FAMILY, c0, c1, c2, c3)
        by_mean += g
        by_std += g * noise
    new_mean, new_rho = finish(
        mean, rho, mean_first, mean_second, rho_first, rho_second, column, mask, mask, mu, rho_old, std, slope,
        by_mean * (1.0 / SAMPLES), by_std * (1.0 / SAMPLES), numbers, particle, particles, kl_scale, b1, b2, epsilon,
        weight_decay, c0, c1, FAMILY, EXACT, RULE,
    )  # fmt: skip
    if AHEAD:
        std, _ = std_and_slope(new_rho)
        for sample in range(SAMPLES):
            noise = _noise(seed, block, column, sample, now + 1, stream, ALIGNED, PAIRS)
            value = new_mean + std * noise
            tl.store(theta + sample * columns + column, value, mask=mask)
    if (tile % across == 0) & (bias >= 0):
        inside = n < outputs
        column_b = bias + n
        mu_b = tl.load(mean + column_b, mask=inside, other=0.0)
        rho_b = tl.load(rho + column_b, mask=inside, other=0.0)
        std_b, slope_b = std_and_slope(rho_b)
        b_c0 = tl.load(constant + 4)
        b_c1 = tl.load(constant + 5)
        b_c2 = tl.load(constant + 6)
        b_c3 = tl.load(constant + 7)
        by_mean_b = tl.zeros((BN,), dtype=tl.float32)
        by_std_b = tl.zeros((BN,), dtype=tl.float32)
        for sample in range(SAMPLES):
            d_rows = behind + (row * SAMPLES + sample) * rows * outputs
            g_b = _bias_gradient(d_rows, n, rows, outputs, BM) * likelihood_scale
            noise_b = _noise(seed, column_b, column_b, sample, now, stream, False, PAIRS)
            if not EXACT:
                g_b -= kl_weight * score(mu_b + std_b * noise_b, FAMILY, b_c0, b_c1, b_c2, b_c3)
            by_mean_b += g_b
            by_std_b += g_b * noise_b
        new_mean_b, new_rho_b = finish(
            mean, rho, mean_first, mean_second, rho_first, rho_second, column_b, inside, inside, mu_b, rho_b, std_b,
            slope_b, by_mean_b * (1.0 / SAMPLES), by_std_b * (1.0 / SAMPLES), numbers, particle, particles, kl_scale,
            b1, b2, epsilon, weight_decay, b_c0, b_c1, FAMILY, EXACT, RULE,
        )  # fmt: skip
        if AHEAD:
            std_b, _ = std_and_slope(new_rho_b)
            for sample in range(SAMPLES):
                noise_b = _noise(seed, column_b, column_b, sample, now + 1, stream, False, PAIRS)
                tl.store(theta + sample * columns + column_b, new_mean_b + std_b * noise_b, mask=inside)
