"""The noise of a Gaussian likelihood by the evidence.

With outputs linear in the weights around the mode, n targets with squared errors E and the eigenvalues l_i of
H^-1/2 G H^-1/2 at the noise s_0, of equation (1) in `prior_curvature` as a function of the noise s

    log p(D | s, a) = -n log s - E / (2 s^2) - (1 / 2) sum_i log(c l_i + a) + ...,      c = (s_0 / s)^2,         (1)
    d / d log s     = -n + E / s^2 + sum_i c l_i / (c l_i + a),                                                 (2)

and (2) falls in s from plus infinity to -n: there is one maximum, found by bisection. It is s^2 = E / (n - g) with the
number g of weights that the data determine, where the mode alone would say E / n (MacKay 1992). With the prior's factor
a to be found too, the two take turns.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.inference.laplace.prior_curvature import strongest_factor
from bayesprop.likelihoods import Gaussian
from bayesprop.model import Model

__all__ = ["check_noise", "strongest_noise"]

TURNS = 50


def check_noise(model: Model) -> None:
    """Refuse likelihoods whose noise is no column, or none of a Gaussian."""
    likelihood = model.likelihood
    if type(likelihood) is Gaussian and likelihood.latents:
        return
    raise ConfigurationError(
        'Laplace(noise="evidence") chooses the noise of a Gaussian likelihood that is learnt',
        received=repr(likelihood),
        expected="Gaussian without a fixed scale",
        write="bp.Model(network, likelihood=bp.likelihoods.Gaussian(), ...)",
    )


def strongest_noise(
    log_scale: Tensor, value: Tensor, count: int, eigenvalues: Tensor, quadratic: Tensor, factor: float | str
) -> tuple[Tensor, Tensor]:
    """log s at the maximum of (1) and the log-likelihood there, (particles,), float64.

    log_scale (particles,) is log s_0, value the log-likelihood there of `count` targets, eigenvalues (particles, M) and
    quadratic q as in `strongest_factor`; a factor of "evidence" is found with it.
    """
    start = log_scale.double()
    errors = -2.0 * torch.exp(2.0 * start) * (value + count * (start + 0.5 * math.log(2.0 * math.pi)))
    values, found = eigenvalues.clamp_min(0.0), start.clone()
    strength = torch.ones_like(start) if isinstance(factor, str) else torch.full_like(start, float(factor))
    for _ in range(TURNS if isinstance(factor, str) else 1):
        if isinstance(factor, str):
            strength = strongest_factor(values * torch.exp(2.0 * (start - found))[:, None], quadratic)
        low, high = start - 20.0, start + 20.0
        for _ in range(80):
            middle = 0.5 * (low + high)
            scaled = values * torch.exp(2.0 * (start - middle))[:, None]
            slope = errors * torch.exp(-2.0 * middle) + (scaled / (scaled + strength[:, None])).sum(1) - count
            low, high = torch.where(slope > 0, middle, low), torch.where(slope > 0, high, middle)
        found = 0.5 * (low + high)
    likelihood = -count * (found + 0.5 * math.log(2.0 * math.pi)) - 0.5 * errors * torch.exp(-2.0 * found)
    return found, likelihood
