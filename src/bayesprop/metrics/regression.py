"""Scores of predicted quantities, of intervals and of whole predictive distributions.

    root mean squared error = sqrt(mean (prediction - y)^2)                                                 (1)
    interval coverage = mean 1[low <= y <= high]      (PICP; a 90 % interval should reach 0.9)              (2)
    interval width = mean (high - low)                                                                      (3)
    interval score = mean (high - low) + 2/a (low - y)_+ + 2/a (y - high)_+,   a = 1 - level                (4)
    CRPS = mean E|Y - y| - E|Y - Y'| / 2,   Y, Y' independent draws of the prediction                       (5)

(4) and (5) are proper: in the long run nothing scores better than the true distribution (Gneiting and Raftery 2007).
For a Gaussian with z = (y - mean) / std, Phi and phi its distribution function and density, (5) is

    std (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi))                                                        (6)
"""

from __future__ import annotations

import math
from typing import Any

import torch

from bayesprop.errors import ConfigurationError, DataError
from bayesprop.metrics.arrays import floats, paired

__all__ = [
    "crps_from_samples",
    "crps_gaussian",
    "interval_coverage",
    "interval_score",
    "interval_width",
    "root_mean_squared_error",
]


def root_mean_squared_error(predictions: Any, targets: Any) -> float:
    """Equation (1), in the units of the targets.

    >>> root_mean_squared_error([1.0, 2.0], [1.0, 4.0])
    1.4142135623730951
    """
    mean, truth = paired(predictions, targets, ("predictions", "targets"))
    return (mean - truth).square().mean().sqrt().item()


def interval_coverage(low: Any, high: Any, targets: Any) -> float:
    """Equation (2): the share of targets inside their interval, ends included."""
    bottom, truth = paired(low, targets, ("low", "targets"))
    top, _ = paired(high, targets, ("high", "targets"))
    return ((bottom <= truth) & (truth <= top)).double().mean().item()


def interval_width(low: Any, high: Any) -> float:
    """Equation (3): of two methods with the same coverage, the narrower intervals say more."""
    bottom, top = paired(low, high, ("low", "high"))
    return (top - bottom).mean().item()


def interval_score(low: Any, high: Any, targets: Any, *, level: float) -> float:
    """Equation (4), lower is better: width, and a fine for each target outside. `level` is that of the interval."""
    if not 0 < level < 1:
        raise ConfigurationError("level is the probability inside the interval", received=repr(level), expected="0..1")
    bottom, truth = paired(low, targets, ("low", "targets"))
    top, _ = paired(high, targets, ("high", "targets"))
    fine = (bottom - truth).clamp(min=0) + (truth - top).clamp(min=0)
    return (top - bottom + 2 / (1 - level) * fine).mean().item()


def crps_from_samples(samples: Any, targets: Any, *, unbiased: bool = True) -> float:
    """Equation (5) from draws of the prediction, lower is better, in the units of the targets.

    Args:
        samples: (S, n) or (S, n, T): draws first, e.g. `prediction.samples()`.
        targets: (n,) or (n, T).
        unbiased: divide the sum over pairs by S (S - 1), which estimates the score of the distribution that the draws
            come from; False divides by S^2, the score of the draws themselves, which punishes small S.
    """
    drawn = floats(samples)
    if drawn.dim() < 2 or (unbiased and drawn.shape[0] < 2):
        raise DataError(
            "crps_from_samples needs several draws for each row",
            received=f"samples {tuple(drawn.shape)}",
            expected="(S, n) or (S, n, T) with S >= 2, draws first",
        )
    _, truth = paired(drawn[0], targets, ("samples[0]", "targets"))
    drawn = drawn.reshape(drawn.shape[0], *truth.shape)
    count = drawn.shape[0]
    # sum_st |x_s - x_t| = 2 sum_i (2 i - S - 1) x_(i) over sorted draws: S log S work in place of S^2 memory.
    weight = 2 * torch.arange(1, count + 1, dtype=torch.float64, device=drawn.device) - count - 1
    pairs = 2 * torch.einsum("s,s...->...", weight, drawn.sort(0).values)
    pairs = pairs / (count * (count - 1) if unbiased else count * count)
    return ((drawn - truth).abs().mean(0) - 0.5 * pairs).mean().item()


def crps_gaussian(mean: Any, std: Any, targets: Any) -> float:
    """Equation (6), lower is better; |y - mean| where std is 0."""
    centre, truth = paired(mean, targets, ("mean", "targets"))
    scale, _ = paired(std, targets, ("std", "targets"))
    if bool((scale < 0).any()):
        raise DataError("a standard deviation is negative", received=f"{scale.min().item():g}", expected="0 or more")
    z = (truth - centre) / scale.clamp(min=torch.finfo(torch.float64).tiny)
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
    score = scale * (z * (2 * torch.special.ndtr(z) - 1) + 2 * density - 1 / math.sqrt(math.pi))
    return torch.where(scale > 0, score, (truth - centre).abs()).mean().item()
