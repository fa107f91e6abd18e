"""GPU bodies of the passes over the columns: noise, the weights' sample, and the update of mean-field inference.

Launched by `kernels.columns`, which also says what the arguments mean; the definitions in plain torch are named there.
One program works on BLOCK neighbouring columns of one particle. Rows lie in rooms (`kernels.rooms`), `pitch` numbers
apart, and what is behind their last column is read and written like all else: masks that end at multiples of 16 let a
thread move 16 bytes at a time.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bayesprop.kernels.device_math import finish, normal_quads, score, std_and_slope

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
    out, mean, rho, seeds, step, stream, pitch, rho_pitch, width, samples, pairs, BLOCK: tl.constexpr,
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
    value = tl.load(mean + row * pitch + column, mask=column < pitch, other=0.0)
    std, _ = std_and_slope(tl.load(rho + row * rho_pitch + column, mask=column < rho_pitch, other=0.0))
    value = tl.where(column < width, value + sign * std * noise, value)
    tl.store(out + lane.to(tl.int64) * pitch + column, value, mask=column < pitch)


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
    numbers, constants, particle_stride, stream, pitch, rho_pitch, gradient_pitch, gradient_end, random, width,
    particles, count, likelihood_scale, kl_scale, value_scale, b1, b2, epsilon, weight_decay,
    FAMILY: tl.constexpr, EXACT: tl.constexpr, RULE: tl.constexpr, REST: tl.constexpr, SAMPLES: tl.constexpr,
    PAIRS: tl.constexpr, AHEAD: tl.constexpr, EACH: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One step of the optimiser on BLOCK columns of one particle, from dL/dw (lanes, columns).

    The gradient may lie elsewhere than in a room: its rows end at `gradient_end`. With AHEAD, theta (lanes, columns)
    becomes the sample of the next step. With REST there are columns behind the weights: latents below `width`, points
    from there on. With EACH, columns have constants of their own. The particle's first program also sums up the `count`
    parts of its log-likelihood; PARTS, a power of two, covers them.
    """
    particle = tl.program_id(1)
    row = particle.to(tl.int64)
    if tl.program_id(0) == 0:
        part = tl.arange(0, PARTS)
        found = tl.load(parts + row * count + part, mask=part < count, other=0.0)
        tl.store(value + row, tl.sum(found, axis=0) * value_scale)
    block = tl.program_id(0) * (BLOCK // 4) + tl.arange(0, BLOCK // 4)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = column < pitch
    spread = column < rho_pitch
    inside = column < width
    weights = column < random
    mean += row * pitch
    mean_first += row * pitch
    mean_second += row * pitch
    rho += row * rho_pitch
    rho_first += row * rho_pitch
    rho_second += row * rho_pitch
    gradient += row * SAMPLES * gradient_pitch
    theta += row * SAMPLES * pitch
    mu = tl.load(mean + column, mask=here, other=0.0)
    rho_old = tl.load(rho + column, mask=spread, other=0.0)
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
        g = likelihood_scale * tl.load(
            gradient + sample * gradient_pitch + column, mask=column < gradient_end, other=0.0
        )
        if FAMILY == "given":
            at = scores + (row * SAMPLES + sample) * width + column
            g -= kl_weight * tl.load(at, mask=inside, other=0.0)
        else:
            if not EXACT:
                by_prior = kl_weight * score(mu + std * noise, FAMILY, c0, c1, c2, c3)
                g -= tl.where(weights, by_prior, 0.0) if REST else by_prior
            if REST:
                at = scores + (row * SAMPLES + sample) * (width - random) + (column - random)
                g -= kl_weight * tl.load(at, mask=inside & (column >= random), other=0.0)
        by_mean += g
        by_std += g * noise
    if SAMPLES > 1:
        by_mean = by_mean * (1.0 / SAMPLES)
        by_std = by_std * (1.0 / SAMPLES)
    new_mean, new_rho = finish(
        mean, rho, mean_first, mean_second, rho_first, rho_second, column, here, spread, weights, mu, rho_old, std,
        slope, by_mean, by_std, numbers, particle, particles, kl_scale, b1, b2, epsilon, weight_decay, c0, c1,
        FAMILY, EXACT, RULE, REST,
    )  # fmt: skip
    if AHEAD:
        std, slope = std_and_slope(new_rho)
        for sample in range(SAMPLES):
            drawn = new_mean + std * _draw(seed, block, sample, now + 1, stream, PAIRS)
            if REST:
                drawn = tl.where(inside, drawn, new_mean)
            tl.store(theta + sample * pitch + column, drawn, mask=here)
