"""What a Bernoulli mask on the weights costs under a prior: the first part of KL(q || p) = E_q[-log p(w)] - H(q).

A weight is theta_i / k with probability k = 1 - p and zero otherwise, so that for any prior that is a product

    E_q[log p(w)] = sum_i [ k log p(theta_i / k) + (1 - k) log p(0) ],                                              (1)

which for N(0, s^2) is -theta_i^2 / (2 k s^2) but for a constant: the weight decay of Gal and Ghahramani's Gaussian
process, whose weights M = theta / k pay k M^2 / (2 s^2), with length scale 1 / s.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bayesprop.model import Model

__all__ = ["expected_log_prior"]


def expected_log_prior(model: Model, mean: Tensor, keep: Tensor) -> Tensor:
    """Equation (1) and the densities of all latents, (particles,), differentiable: mean (particles, columns), keep
    (particles, random) the probability to keep each weight."""
    layout, bound = model.layout, model.bound_prior
    columns = mean[:, : layout.latent]
    weights = bound.weights(columns)
    latents = columns[:, layout.random :]
    there = torch.cat((bound.columns(weights / keep, columns), latents), dim=1)
    gone = torch.cat((bound.columns(torch.zeros_like(weights), columns), latents), dim=1)
    total = mean.new_zeros(mean.shape[0])
    for group in bound.groups:
        share = group.read(keep)
        # A prior may be infinitely dense at zero, where a weight that is never dropped is not.
        zero = torch.where(share < 1.0, group.log_density(gone), 0.0)
        total = total + (share * group.log_density(there) + (1.0 - share) * zero).sum(-1)
    for where, latent, _ in bound.hyperpriors:
        total = total + latent.unconstrained_log_density(columns[:, where])
    for latent in model.likelihood.latents:
        total = total + latent.unconstrained_log_density(columns[:, layout.by_name[latent.name].columns])
    return total
