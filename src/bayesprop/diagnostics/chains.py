"""Do chains agree, and how many independent samples are they worth.

For M chains of S samples of a quantity, each chain is cut into two halves, so that a drift within a chain counts as
disagreement. With W the mean variance within the 2 M pieces and B / n the variance of their means,

    R-hat = sqrt(((n - 1) / n W + B / n) / W)                                                                  (1)
    ESS = M S / tau,   tau = -1 + 2 sum_k P_k,   P_k = rho_2k + rho_2k+1                                       (2)

where rho_t is the autocorrelation at lag t over all pieces, and the sum ends where P_k is no longer positive and is
made to fall (Geyer 1992). With ranks, values are replaced by the normal scores of their ranks, which makes (1) and (2)
meaningful for quantities without moments too (Vehtari et al. 2021). R-hat above 1.01 says that chains have not met; a
Monte-Carlo mean has standard error std / sqrt(ESS).

Quantities should be functions of the network (predictions) rather than single weights, which may be permuted from mode
to mode without any consequence.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError

__all__ = ["effective_sample_size", "r_hat"]


def _checked(draws: Tensor) -> Tensor:
    """(chains, samples, ...) to float64 (chains, samples, quantities)."""
    if draws.dim() < 2 or draws.shape[1] < 4:
        raise ConfigurationError(
            "chains are given as (chains, samples, ...), with at least 4 samples",
            received=f"a tensor of shape {list(draws.shape)}",
            write="r_hat(posterior.values(name))  # posterior of class Samples",
        )
    return draws.detach().double().reshape(*draws.shape[:2], -1)


def _pieces(draws: Tensor) -> Tensor:
    """Two halves of each chain: (2 chains, samples // 2, quantities). The middle one of an odd number is left out."""
    half = draws.shape[1] // 2
    return torch.cat((draws[:, :half], draws[:, -half:]))


def _normal_scores(pieces: Tensor) -> Tensor:
    """Phi^-1((rank - 3/8) / (count + 1/4)) over all pieces, with mean ranks where values are equal."""
    flat = pieces.reshape(-1, pieces.shape[-1]).T.contiguous()
    ordered = flat.sort(dim=1).values
    low, high = torch.searchsorted(ordered, flat), torch.searchsorted(ordered, flat, right=True)
    rank = 0.5 * (low + high + 1).double()
    scores = torch.special.ndtri((rank - 0.375) / (flat.shape[1] + 0.25))
    return scores.T.reshape(pieces.shape)


def _variances(pieces: Tensor) -> tuple[Tensor, Tensor]:
    """W, and the pooled variance (n - 1) / n W + B / n, of each quantity."""
    count = pieces.shape[1]
    within = pieces.var(dim=1).mean(0)
    return within, (count - 1) / count * within + pieces.mean(1).var(dim=0)


def r_hat(draws: Tensor, *, ranks: bool = True) -> Tensor:
    """Equation (1) for each quantity of draws (chains, samples, ...): tensor of shape (...).

    With ranks it is the larger one of two: of the values, and of their distances from the median, which sees chains
    that differ in spread.
    """
    found, shape = _checked(draws), draws.shape[2:]

    def one(values: Tensor) -> Tensor:
        pieces = _pieces(values)
        within, pooled = _variances(_normal_scores(pieces) if ranks else pieces)
        return (pooled / within).sqrt()

    result = one(found)
    if ranks:
        centre = found.reshape(-1, found.shape[-1]).median(dim=0).values
        result = torch.maximum(result, one((found - centre).abs()))
    return result.reshape(shape)


def effective_sample_size(draws: Tensor, *, ranks: bool = False) -> Tensor:
    """Equation (2) for each quantity of draws (chains, samples, ...): tensor of shape (...).

    Of the values themselves, for the standard error of their mean; `ranks=True` is the bulk ESS of Vehtari et al.
    """
    found, shape = _checked(draws), draws.shape[2:]
    pieces = _pieces(found)
    pieces = _normal_scores(pieces) if ranks else pieces
    count = pieces.shape[1]
    within, pooled = _variances(pieces)
    centred = pieces - pieces.mean(1, keepdim=True)
    length = 2 ** math.ceil(math.log2(2 * count))
    spectrum = torch.fft.rfft(centred, n=length, dim=1).abs().square()
    covariance = torch.fft.irfft(spectrum, n=length, dim=1)[:, :count].mean(0) / count
    # W is the mean of unbiased variances: lag 0 of the biased covariance belongs to it times (n - 1) / n.
    rho = 1.0 - (within - covariance * count / (count - 1)) / pooled
    rho[0] = 1.0
    pairs = rho[: count // 2 * 2].reshape(count // 2, 2, -1).sum(1)
    positive = (pairs > 0.0).long().cumprod(0).bool()
    falling = torch.where(positive, pairs, 0.0).cummin(0).values
    tau = (-1.0 + 2.0 * falling.sum(0)).clamp_min(1.0 / math.log10(pieces.shape[0] * count))
    return (pieces.shape[0] * count / tau).reshape(shape)
