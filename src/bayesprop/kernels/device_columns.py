"""GPU bodies of the passes over the columns: noise, the weights' sample, and the update of mean-field inference.

Launched by `kernels.columns`, which also says what the arguments mean; the definitions in plain torch are named there.
One program works on BLOCK neighbouring columns of one particle.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bayesprop.kernels.device_math import finish, finish_points, normal_quads, score, std_and_slope

__all__ = ["normal_kernel", "sample_kernel", "update_kernel"]


@triton.jit
def normal_kernel(out, keys, step, stream, columns, BLOCK: tl.constexpr):
    """Noise (keys, columns) of the keys (seed, draw) at one step."""
    row = tl.program_id(1)
    block = tl.program_id(0) * (BLOCK // 4) + tl.arange(0, BLOCK // 4)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    seed = tl.load(keys + 2 * row)
    draw = tl.load(keys + 2 * row + 1)
    noise = normal_quads(seed, block, draw, tl.load(step), stream)
    tl.store(out + row.to(tl.int64) * columns + column, noise, mask=column < columns)


@triton.jit
def sample_kernel(
    out, mean, rho, seeds, step, stream, columns, width, samples, pairs, BLOCK: tl.constexpr,
):  # fmt: skip
    """theta of one lane: mean + std * noise for columns below `width`, the mean for the others."""
    lane = tl.program_id(1)
    particle = lane // samples
    draw = lane % samples
    sign = 1.0
    if pairs > 0:
        sign = tl.where(draw >= pairs, -1.0, 1.0)
        draw = draw % pairs
    block = tl.program_id(0) * (BLOCK // 4) + tl.arange(0, BLOCK // 4)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    noise = normal_quads(tl.load(seeds + particle), block, draw, tl.load(step), stream)
    row = particle.to(tl.int64)
    value = tl.load(mean + row * columns + column, mask=column < columns, other=0.0)
    std, _ = std_and_slope(tl.load(rho + row * width + column, mask=column < width, other=0.0))
    value = tl.where(column < width, value + sign * std * noise, value)
    tl.store(out + lane.to(tl.int64) * columns + column, value, mask=column < columns)


@triton.jit
def _draw(seed, block, sample, step, stream, PAIRS: tl.constexpr):
    """The noise of one sample; the second half of antithetic samples are the first half's with the sign changed."""
    draw = tl.zeros([], tl.int32) + sample
    if PAIRS > 0:
        return tl.where(sample >= PAIRS, -1.0, 1.0) * normal_quads(seed, block, draw % PAIRS, step, stream)
    else:
        return normal_quads(seed, block, draw, step, stream)


@triton.jit
def update_kernel(
    mean, rho, mean_first, mean_second, rho_first, rho_second, gradient, scores, theta, parts, value, seeds, step,
    numbers, constants, particle_stride, stream, columns, random, width, particles, count, likelihood_scale, kl_scale,
    value_scale, b1, b2, epsilon, weight_decay,
    FAMILY: tl.constexpr, EXACT: tl.constexpr, RULE: tl.constexpr, REST: tl.constexpr, SAMPLES: tl.constexpr,
    PAIRS: tl.constexpr, AHEAD: tl.constexpr, EACH: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One step of the optimiser on BLOCK columns of one particle, from dL/dw (lanes, columns).

    With AHEAD, theta (lanes, columns) becomes the sample of the next step. With EACH, columns have constants of their
    own. The particle's first program also sums up the `count` parts of its log-likelihood; PARTS, a power of two,
    covers them.
    """
    particle = tl.program_id(1)
    row = particle.to(tl.int64)
    if tl.program_id(0) == 0:
        part = tl.arange(0, PARTS)
        found = tl.load(parts + row * count + part, mask=part < count, other=0.0)
        tl.store(value + row, tl.sum(found, axis=0) * value_scale)
    block = tl.program_id(0) * (BLOCK // 4) + tl.arange(0, BLOCK // 4)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = column < columns
    inside = column < width
    weights = column < random
    mean += row * columns
    mean_first += row * columns
    mean_second += row * columns
    rho += row * width
    rho_first += row * width
    rho_second += row * width
    gradient += row * SAMPLES * columns
    theta += row * SAMPLES * columns
    mu = tl.load(mean + column, mask=here, other=0.0)
    rho_old = tl.load(rho + column, mask=inside, other=0.0)
    std, slope = std_and_slope(rho_old)
    constant = constants + row * particle_stride
    if EACH:
        c0 = tl.load(constant + 4 * column, mask=weights, other=1.0)
        c1 = tl.load(constant + 4 * column + 1, mask=weights, other=1.0)
        c2 = tl.load(constant + 4 * column + 2, mask=weights, other=1.0)
        c3 = tl.load(constant + 4 * column + 3, mask=weights, other=1.0)
    else:
        c0 = tl.load(constant)
        c1 = tl.load(constant + 1)
        c2 = tl.load(constant + 2)
        c3 = tl.load(constant + 3)
    seed = tl.load(seeds + particle)
    now = tl.load(step)
    kl_weight = tl.load(numbers + 2 * particles + particle) * kl_scale
    by_mean = mu * 0.0
    by_std = mu * 0.0
    for sample in range(SAMPLES):
        noise = _draw(seed, block, sample, now, stream, PAIRS)
        g = likelihood_scale * tl.load(gradient + sample * columns + column, mask=here, other=0.0)
        if FAMILY == "given":
            at = scores + (row * SAMPLES + sample) * width + column
            g -= kl_weight * tl.load(at, mask=inside, other=0.0)
        else:
            if not EXACT:
                g -= tl.where(weights, kl_weight * score(mu + std * noise, FAMILY, c0, c1, c2, c3), 0.0)
            if REST:
                at = scores + (row * SAMPLES + sample) * (width - random) + (column - random)
                g -= kl_weight * tl.load(at, mask=inside & (column >= random), other=0.0)
        by_mean += g
        by_std += g * noise
    if SAMPLES > 1:
        by_mean = by_mean * (1.0 / SAMPLES)
        by_std = by_std * (1.0 / SAMPLES)
    new_mean, new_rho = finish(
        mean, rho, mean_first, mean_second, rho_first, rho_second, column, inside, weights, mu, rho_old, std, slope,
        by_mean, by_std, numbers, particle, particles, kl_scale, b1, b2, epsilon, weight_decay, c0, c1,
        FAMILY, EXACT, RULE,
    )  # fmt: skip
    if REST:
        points = here & (column >= width)
        moved = finish_points(
            mean, mean_first, mean_second, column, points, mu, by_mean, numbers, particle, particles, b1, b2, epsilon,
            weight_decay, RULE,
        )  # fmt: skip
        new_mean = tl.where(points, moved, new_mean)
    if AHEAD:
        std, slope = std_and_slope(new_rho)
        for sample in range(SAMPLES):
            drawn = new_mean + std * _draw(seed, block, sample, now + 1, stream, PAIRS)
            if REST:
                drawn = tl.where(inside, drawn, new_mean)
            tl.store(theta + sample * columns + column, drawn, mask=here)
