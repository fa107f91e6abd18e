"""What a Bernoulli mask on the weights costs under a prior: the first part of KL(q || p) = E_q[-log p(w)] - H(q).

A weight is theta_i / k with probability k = 1 - p and zero otherwise, so that for any prior that is a product

    E_q[log p(w)] = sum_i [ k log p(theta_i / k) + (1 - k) log p(0) ],                                              (1)

which for N(0, s^2) is -theta_i^2 / (2 k s^2) but for a constant: the weight decay of Gal and Ghahramani's Gaussian
process, whose weights M = theta / k pay k M^2 / (2 s^2), with length scale 1 / s.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bayesprop.inference.dropout.layers import inputs_of
from bayesprop.inference.oracle import prior_score
from bayesprop.model import Model

__all__ = ["expected_log_prior", "penalty_gradients"]


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


def penalty_gradients(model: Model, mean: Tensor, keep: Tensor, *, learns: bool) -> dict[str, Tensor] | None:
    """Derivatives of minus equation (1) by "mean" (particles, columns) and, if it is learnt, by the probability to
    "keep" the inputs of each layer, (particles, layers); None where scales are learnt, which weights share.

    With w = theta / k and the score s of the prior they are -s(w), and -sum_i [log p(w_i) - log p(0) - w_i s(w_i)].
    """
    layout, bound = model.layout, model.bound_prior
    if bound.latents:
        return None
    there = mean[:, : layout.latent].clone()
    blocks = [layout.by_name[name] for name in inputs_of(model)]
    for number, block in enumerate(blocks):
        there[:, block.columns] /= keep[:, number : number + 1]
    score = prior_score(model, there)
    found = {"mean": torch.nn.functional.pad(score, (0, mean.shape[1] - layout.latent)).neg_()}
    if not learns:
        return found
    each = bound.log_density_columns(there) - bound.log_density_columns(torch.zeros_like(there))
    each -= (there * score)[:, : layout.random]
    found["keep"] = torch.stack([-each[:, block.columns].sum(1) for block in blocks], dim=1)
    return found
