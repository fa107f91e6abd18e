"""Pieces of Triton that the bodies for GPUs share: counter-based noise, the scale of a weight, priors, optimisers.

Each function is the arithmetic of one definition in plain torch: noise of `kernels.noise`, std and slope of
`inference.variational.gradients.scales`, scores of `distributions`, steps of `inference.optimizers`. Triton is
imported here, so this module is imported only where a GPU body is wanted; see `kernels.device`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from bayesprop.kernels.device import interpreted

__all__ = ["finish", "normal_quads", "score", "std_and_slope"]


# One instruction each on NVIDIA's GPUs, good to 2e-7, where numbers below 1.2e-38 count as nothing; the language's own
# take four to eight for the sake of such numbers, and the update is bound by its instructions.
ASSEMBLY = tl.constexpr(torch.version.cuda is not None and not interpreted())


@triton.jit
def _reciprocal(x):
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )  # fmt: skip
    else:
        return 1.0 / x


@triton.jit
def _root(x):
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "sqrt.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )  # fmt: skip
    else:
        return tl.sqrt(x)


@triton.jit
def _power_of_two(x):
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )  # fmt: skip
    else:
        return tl.exp2(x)


@triton.jit
def _logarithm(x):
    """Of base two."""
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )  # fmt: skip
    else:
        return tl.log2(x)


@triton.jit
def _sine_cosine(word):
    """Sine and cosine of (word + 1/2) / 2^32 turns: the nearest quarter of a turn, then Taylor polynomials (3e-8)."""
    x = (word << 2).to(tl.int32, bitcast=True).to(
        tl.float32
    ) * 3.6572951e-10 + 7.3145903e-10  # pi / 2 / 2^32, its double
    x2 = x * x
    s = x + x * x2 * (-1.6666667e-1 + x2 * (8.3333333e-3 + x2 * (-1.9841270e-4 + x2 * 2.7557319e-6)))
    c = 1.0 + x2 * (-0.5 + x2 * (4.1666667e-2 + x2 * (-1.3888889e-3 + x2 * 2.4801587e-5)))
    quadrant = (word + 0x20000000) >> 30
    odd = (quadrant & 1) == 1
    a = tl.where(odd, c, s)
    b = tl.where(odd, s, c)
    sine = tl.where(quadrant >= 2, -a, a)
    cosine = tl.where((quadrant == 1) | (quadrant == 2), -b, b)
    return sine, cosine


@triton.jit
def _box_muller(x0, x1):
    """Two standard normal numbers of two words: equation (2) of `kernels.noise`."""
    u0 = x0.to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10
    radius = _root(-1.3862943611198906 * _logarithm(u0))  # 2 log 2
    sine, cosine = _sine_cosine(x1)
    return radius * cosine, radius * sine


@triton.jit
def _words(seed, block, draw, step, stream):
    c0 = block.to(tl.uint32)
    zero = c0 * 0
    return tl.philox(seed, c0, zero + draw.to(tl.uint32), zero + step.to(tl.uint32), zero + stream)


@triton.jit
def normal_quads(seed, block, draw, step, stream):
    """Noise of the columns 4 block .. 4 block + 3: blocks (..., Q) to (..., 4 Q)."""
    x0, x1, x2, x3 = _words(seed, block, draw, step, stream)
    z0, z1 = _box_muller(x0, x1)
    z2, z3 = _box_muller(x2, x3)
    return tl.interleave(tl.interleave(z0, z2), tl.interleave(z1, z3))


@triton.jit
def std_and_slope(rho):
    """std = log(1 + exp(rho)) and its slope 1 / (1 + exp(-rho)); below -80 both are those of -80.

    log(1 + e) = 2 artanh(t) with t = e / (2 + e) <= 1/3: a series that keeps digits that 1 + e has lost.
    """
    rho = tl.maximum(rho, -80.0)
    e = _power_of_two(-1.4426950408889634 * tl.abs(rho))
    both = _reciprocal((1.0 + e) * (2.0 + e))
    inverse = both * (2.0 + e)
    t = e * both * (1.0 + e)
    t2 = t * t
    series = 1.0 + t2 * (0.33333333 + t2 * (0.2 + t2 * (0.14285714 + t2 * (0.11111111 + t2 * 0.090909091))))
    std = tl.maximum(rho, 0.0) + 2.0 * t * series
    slope = tl.where(rho > 0.0, inverse, e * inverse)
    return std, slope


@triton.jit
def score(w, FAMILY: tl.constexpr, c0, c1, c2, c3):
    """d log p / dw of a family; its numbers come in the order of `kernels.columns.FAMILIES`."""
    if FAMILY == "normal":
        return (c0 - w) * c1
    elif FAMILY == "laplace":
        d = w - c0
        return tl.where(d > 0.0, -c1, tl.where(d < 0.0, c1, 0.0))
    elif FAMILY == "student_t":
        d = w - c0
        return -c1 * d * _reciprocal(c2 + d * d)
    elif FAMILY == "scale_mixture":
        odds = tl.minimum(tl.maximum(c0 + c1 * w * w, -40.0), 40.0)
        against = _power_of_two(-1.4426950408889634 * odds)
        share = _reciprocal(1.0 + against)
        return -w * (share * c2 + (against * share) * c3)
    else:
        return w * 0.0


@triton.jit
def kl_gradients(mean, std, FAMILY: tl.constexpr, c0, c1):
    """Derivatives of KL(N(mean, std^2) || p) by mean and std, without the entropy's -1 / std, where they are known."""
    if FAMILY == "normal":
        return (mean - c0) * c1, std * c1
    elif FAMILY == "laplace":
        ratio = (mean - c0) / std
        return tl.erf(ratio * 0.70710678) * c1, 0.7978845608 * tl.exp(-0.5 * ratio * ratio) * c1
    else:
        return mean * 0.0, std * 0.0


@triton.jit
def _optimise(value, first, second, at, mask, old, gradient, rate, decay, b1, b2, epsilon, k2, RULE: tl.constexpr):
    """Move the numbers at `at` along a gradient, with whatever the optimiser remembers of earlier steps.

    `rate` is Adam's divided by its first correction, `k2` the second's inverse.
    """
    if RULE == "adam":
        m = b1 * tl.load(first + at, mask=mask, other=0.0) + (1.0 - b1) * gradient
        v = b2 * tl.load(second + at, mask=mask, other=0.0) + (1.0 - b2) * gradient * gradient
        # A root may go by the reciprocal, which is infinite for numbers below 1.2e-38.
        denominator = _root(tl.maximum(v * k2, 1.2e-38)) + epsilon
        tl.store(first + at, m, mask=mask)
        tl.store(second + at, v, mask=mask)
        new = old * decay - rate * m * _reciprocal(denominator)
    elif RULE == "momentum":
        m = b1 * tl.load(first + at, mask=mask, other=0.0) + gradient
        tl.store(first + at, m, mask=mask)
        new = old - rate * m
    else:
        new = old - rate * gradient
    tl.store(value + at, new, mask=mask)
    return new


@triton.jit
def finish(
    mean, rho, mean_first, mean_second, rho_first, rho_second,
    at, here, spread, weights, mu, rho_old, std, slope, by_mean, by_std, numbers, particle, particles, kl_scale,
    b1, b2, epsilon, weight_decay, c0, c1,
    FAMILY: tl.constexpr, EXACT: tl.constexpr, RULE: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """Add what is left of the KL's gradient to the gradients by mean and std, and take the optimiser's step.

    `numbers` (5, particles) are the step's learning rates of mean and rho, its KL weight and Adam's two corrections.
    `here` marks columns that have a mean, `spread` those that have a rho. With REST not all of them are `weights`, to
    which the family's closed form belongs. Pointers are those of the particle's own rows. Returns the new mean and rho.
    """
    mean_rate = tl.load(numbers + particle)
    rho_rate = tl.load(numbers + particles + particle)
    kl_weight = tl.load(numbers + 2 * particles + particle) * kl_scale
    k1 = 1.0 / tl.load(numbers + 3 * particles + particle)
    k2 = 1.0 / tl.load(numbers + 4 * particles + particle)
    if EXACT:
        exact_mean, exact_std = kl_gradients(mu, std, FAMILY, c0, c1)
        by_mean += tl.where(weights, kl_weight * exact_mean, 0.0) if REST else kl_weight * exact_mean
        by_std += tl.where(weights, kl_weight * exact_std, 0.0) if REST else kl_weight * exact_std
    by_rho = (by_std - kl_weight * _reciprocal(std)) * slope
    decay = 1.0 - mean_rate * weight_decay
    if RULE == "adam":
        mean_rate = mean_rate * k1
        rho_rate = rho_rate * k1
    new_rho = _optimise(
        rho, rho_first, rho_second, at, spread, rho_old, by_rho, rho_rate, 1.0, b1, b2, epsilon, k2, RULE
    )
    new_mean = _optimise(
        mean, mean_first, mean_second, at, here, mu, by_mean, mean_rate, decay, b1, b2, epsilon, k2, RULE
    )
    return new_mean, new_rho
