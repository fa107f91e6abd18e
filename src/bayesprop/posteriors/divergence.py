"""What a prior and a Gaussian posterior have in common: the parts of KL(q || prior) that several posteriors share.

    KL(q || p) = E_q[-log p(theta)] - H(q)                                                                          (1)

`cross_entropy` samples the first term. Where p is a product over columns that term sees only the marginals of q, so
that a posterior with correlations has it in closed form wherever the product q' of its marginals has a divergence:

    E_q[-log p] = KL(q' || p) + H(q')                                                                               (2)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bayesprop.posteriors.posterior import Posterior

__all__ = ["correlated_kl", "cross_entropy"]

DRAWN = 16_000_000  # numbers that are drawn at a time: many draws of a large network would not fit


def cross_entropy(posterior: Posterior, draws: int, seed: int) -> Tensor:
    """E_q[-log p(theta)] from so many draws, one number a particle, float64."""
    layout, rng = posterior.model.layout, posterior.rng(seed)
    total = torch.zeros(posterior.particles, dtype=torch.float64, device=posterior.model.device)
    step = max(1, DRAWN // (posterior.particles * layout.size))
    for first in range(0, draws, step):
        theta = posterior.draw(rng, min(step, draws - first), first)
        total += posterior.model.log_prior(theta).double().sum(1)
    return -total / draws


def correlated_kl(posterior: Posterior, entropy: Tensor, draws: int, seed: int, *, spread: bool) -> Tensor:
    """Equation (1), by (2) where it can be; `spread` says that every weight, and nothing else, has a distribution."""
    if spread:
        width = posterior.model.layout.random
        mean, std = (moment[:, :width].double() for moment in posterior.moments())
        closed = posterior.model.bound_prior.kl(mean, std)
        if closed is not None:
            return closed + (std.log() + 0.5 * math.log(2.0 * math.pi * math.e)).sum(-1) - entropy
    return cross_entropy(posterior, draws, seed) - entropy
