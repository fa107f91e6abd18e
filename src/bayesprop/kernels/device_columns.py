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
def update_kernel(
    mean, rho, mean_first, mean_second, rho_first, rho_second, gradient, scores, seeds, step, numbers, constants,
    particle_stride, column_stride, constant_stride, stream, start, first, columns, random, width, particles,
    likelihood_scale, kl_scale, b1, b2, epsilon, weight_decay,
    FAMILY: tl.constexpr, EXACT: tl.constexpr, RULE: tl.constexpr, REST: tl.constexpr, SAMPLES: tl.constexpr,
    PAIRS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One step of the optimiser on BLOCK columns of one particle, from dL/dw (lanes, columns from `first` on)."""
    particle = tl.program_id(1)
    row = particle.to(tl.int64)
    block = start // 4 + tl.program_id(0) * (BLOCK // 4) + tl.arange(0, BLOCK // 4)
    column = start + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = (column >= first) & (column < columns)
    inside = here & (column < width)
    mean += row * columns
    mean_first += row * columns
    mean_second += row * columns
    rho += row * width
    rho_first += row * width
    rho_second += row * width
    mu = tl.load(mean + column, mask=here, other=0.0)
    rho_old = tl.load(rho + column, mask=inside, other=0.0)
    std, slope = std_and_slope(rho_old)
    constant = constants + row * particle_stride + column * column_stride
    weights = inside & (column < random)
    c0 = tl.load(constant, mask=weights, other=1.0)
    c1 = tl.load(constant + constant_stride, mask=weights, other=1.0)
    c2 = tl.load(constant + 2 * constant_stride, mask=weights, other=1.0)
    c3 = tl.load(constant + 3 * constant_stride, mask=weights, other=1.0)
    seed = tl.load(seeds + particle)
    now = tl.load(step)
    kl_weight = tl.load(numbers + 2 * particles + particle) * kl_scale
    by_mean = mu * 0.0
    by_std = mu * 0.0
    for sample in range(SAMPLES):
        sign = 1.0
        draw = sample
        if PAIRS > 0:
            sign = tl.where(sample >= PAIRS, -1.0, 1.0)
            draw = sample % PAIRS
        noise = sign * normal_quads(seed, block, tl.zeros([], tl.int32) + draw, now, stream)
        lane = row * SAMPLES + sample
        at = gradient + lane * (columns - first) + (column - first)
        g = likelihood_scale * tl.load(at, mask=here, other=0.0)
        if FAMILY == "given":
            g -= kl_weight * tl.load(scores + lane * width + column, mask=inside, other=0.0)
        else:
            if not EXACT:
                g -= tl.where(weights, kl_weight * score(mu + std * noise, FAMILY, c0, c1, c2, c3), 0.0)
            if REST:
                at = scores + lane * (width - random) + (column - random)
                g -= kl_weight * tl.load(at, mask=inside & (column >= random), other=0.0)
        by_mean += g
        by_std += g * noise
    by_mean = by_mean * (1.0 / SAMPLES)
    by_std = by_std * (1.0 / SAMPLES)
    finish(
        mean, rho, mean_first, mean_second, rho_first, rho_second, column, inside, weights, mu, rho_old, std, slope,
        by_mean, by_std, numbers, particle, particles, kl_scale, b1, b2, epsilon, weight_decay, c0, c1,
        FAMILY, EXACT, RULE,
    )  # fmt: skip
    if REST:
        points = here & (column >= width)
        finish_points(
            mean, mean_first, mean_second, column, points, mu, by_mean, numbers, particle, particles, b1, b2, epsilon,
            weight_decay, RULE,
        )  # fmt: skip
