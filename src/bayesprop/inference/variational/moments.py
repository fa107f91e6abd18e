"""Mean and covariance of the outputs of a stack of dense layers whose weights are independent Gaussians.

With inputs of mean m and covariance C, weights N(M, S^2) and biases N(b, t^2), all independent, a layer's outputs have

    mean M m + b,      covariance M C M^T + diag(S^2 (m^2 + diag C) + t^2)                                          (1)

exactly. An activation f of a Gaussian of mean u and variance v (u, v of one unit, z = u / sqrt v) has

    relu:  mean sqrt v (z Phi + phi),   variance v [Phi + z^2 Phi (1 - Phi) + z phi (1 - 2 Phi) - phi^2],
           slope E f' = Phi(z)                                                                                      (2)
    tanh, sigmoid:  the same integrals by Gauss-Hermite quadrature
    covariance of two units i, j:  E f'_i E f'_j C_ij                                                               (3)

(2) is exact for the first hidden layer, whose inputs to the activation are Gaussian and independent given x. So mean
and covariance of the outputs of a network with one hidden layer are exact. Deeper ones take what they get as Gaussian,
and (3) is right to first order in the correlation; since Var f >= (E f')^2 v, the result stays a covariance. With
`full=False` (3) is dropped, and hidden units count as independent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["activation_moments", "nodes", "output_moments"]

COUNT = 32  # nodes of a quadrature: tanh and sigmoid to 3e-3 for deviations up to 2
SMALLEST = 1e-20  # variance of a unit that is certain: its deviation is finite, and so is the gradient


@cache
def _hermite(count: int) -> tuple[Tensor, Tensor]:
    places, weights = np.polynomial.hermite_e.hermegauss(count)
    return torch.from_numpy(places), torch.from_numpy(weights / math.sqrt(2.0 * math.pi))


def nodes(like: Tensor, count: int = COUNT) -> tuple[Tensor, Tensor]:
    """Places and weights for expectations under N(0, 1), each (count,)."""
    places, weights = _hermite(count)
    return places.to(like), weights.to(like)


def activation_moments(name: str, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of an activation, and the mean of its slope, elementwise."""
    if name == "identity":
        return mean, variance, torch.ones_like(mean)
    variance = variance.clamp_min(SMALLEST)
    std = variance.sqrt()
    if name == "relu":
        z = mean / std
        above = 0.5 * torch.erfc(z * -math.sqrt(0.5))
        density = torch.exp(-0.5 * z.square()) * (1.0 / math.sqrt(2.0 * math.pi))
        share = above + z.square() * above * (1.0 - above) + z * density * (1.0 - 2.0 * above) - density.square()
        return std * (z * above + density), variance * share.clamp_min(0.0), above
    places, weights = nodes(mean)
    value = mean[..., None] + std[..., None] * places
    value = torch.tanh(value) if name == "tanh" else torch.sigmoid(value)
    slope = 1.0 - value.square() if name == "tanh" else value * (1.0 - value)
    centre = value @ weights
    return centre, (value - centre[..., None]).square() @ weights, slope @ weights


def output_moments(
    parts: Sequence[tuple[str, nn.Linear, str]],
    means: Mapping[str, Tensor],
    stds: Mapping[str, Tensor],
    inputs: Tensor,
    *,
    full: bool = True,
) -> tuple[Tensor, Tensor]:
    """Mean (particles, rows, outputs) and covariance (particles, rows, outputs, outputs) of a stack's outputs.

    `parts` as `stacks.dense_parts` gives them; means and deviations of parameters by name, each with a leading axis of
    particles. One that is not in `means` is the module's own, one that is not in `stds` has no spread.
    """
    mean = inputs.flatten(2)
    variance: Tensor | None = None  # (particles, rows, units), or none of the inputs
    covariance: Tensor | None = None  # (particles, rows, units, units), where it is not diagonal
    for number, (name, module, activation) in enumerate(parts):
        prefix, last = f"{name}." if name else "", number + 1 == len(parts)
        weight = means.get(f"{prefix}weight", module.weight.detach()).to(mean)
        own = _spread(f"{prefix}weight", stds, mean)
        second = mean.square() if variance is None else mean.square() + variance
        spread = torch.zeros_like(mean[..., :1]) if own is None else second @ own.square().mT
        if module.bias is not None:
            shift = _spread(f"{prefix}bias", stds, mean)
            spread = spread if shift is None else spread + shift.square()[:, None]
        spread = spread.expand(*mean.shape[:2], module.out_features)
        if covariance is not None:
            rows = weight if weight.dim() == 2 else weight[:, None]
            covariance = rows @ covariance @ rows.mT + torch.diag_embed(spread)
            variance = covariance.diagonal(dim1=-2, dim2=-1)
        elif variance is not None and (full or last):
            rows = weight if weight.dim() == 2 else weight[:, None]
            covariance = (rows * variance[..., None, :]) @ rows.mT + torch.diag_embed(spread)
            variance = covariance.diagonal(dim1=-2, dim2=-1)
        else:
            variance = spread if variance is None else spread + variance @ weight.square().mT
        mean = mean @ weight.mT
        if module.bias is not None:
            bias = means.get(f"{prefix}bias", module.bias.detach()).to(mean)
            mean = mean + (bias if bias.dim() == 1 else bias[:, None])
        if activation != "identity":
            mean, variance, slope = activation_moments(activation, mean, variance)
            if covariance is not None:
                covariance = slope[..., :, None] * covariance * slope[..., None, :]
                rest = variance - covariance.diagonal(dim1=-2, dim2=-1)
                covariance = covariance + torch.diag_embed(rest)
    assert variance is not None
    return mean, torch.diag_embed(variance) if covariance is None else covariance


def _spread(name: str, stds: Mapping[str, Tensor], like: Tensor) -> Tensor | None:
    found = stds.get(name)
    return None if found is None else found.to(like)
