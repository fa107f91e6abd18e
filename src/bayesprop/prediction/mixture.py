"""The predictive distribution of one row: the mixture of p(y | draw) over S draws, with equal weights.

    p(y) = 1/S sum_s p(y | f_s),   log p(y) = logsumexp_s log p(y | f_s) - log S                            (1)
    P(Y <= y) = 1/S sum_s P(Y <= y | f_s)                                                                   (2)

(1) averages probabilities. Averaging log-probabilities is a smaller number and the density of nothing. Everything here
is in the units of the model, for one chunk of rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from bayesprop.likelihoods import Likelihood
from bayesprop.prediction import roots
from bayesprop.prediction.moments import per_draw

__all__ = ["cdf", "entropy", "log_prob", "quantiles", "quantiles_over_draws", "sample"]

# In standard deviations of the row: far below what float32, the usual dtype of a prediction, can show.
TOLERANCE = 1e-9


def log_prob(likelihood: Likelihood, outputs: Tensor, targets: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
    """Equation (1) of each row: (rows,)."""
    each = torch.func.vmap(likelihood.log_prob, in_dims=(0, None, 0))(outputs, targets, dict(latents))
    return torch.logsumexp(each, dim=0) - math.log(outputs.shape[0])


def cdf(likelihood: Likelihood, outputs: Tensor, values: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
    """Equation (2), elementwise in the shape of the mean."""
    return torch.func.vmap(likelihood.cdf, in_dims=(0, None, 0))(outputs, values, dict(latents)).mean(0)


def quantiles(
    likelihood: Likelihood, outputs: Tensor, latents: Mapping[str, Tensor], levels: Sequence[float]
) -> Tensor:
    """The y at which (2) reaches each level: (levels, rows, ...), by bracketing and closing in, in float64.

    For counts the smallest whole number with P(Y <= y) >= level. A row whose outputs are not finite gets nan.
    """
    outputs, latents = outputs.double(), {name: value.double() for name, value in latents.items()}
    centres = per_draw(likelihood.mean, outputs, latents)
    spread = per_draw(likelihood.variance, outputs, latents).mean(0).sqrt()
    # A Student-t with few degrees of freedom has no variance; any positive step does to start with.
    spread = torch.where(torch.isfinite(spread) & (spread > 0), spread, torch.ones_like(spread))
    # Next to a large number, float64 itself is coarser than a billionth of a deviation.
    tolerance = TOLERANCE * spread + 1e-15 * centres.abs().amax(0)
    found = []
    for level in levels:

        def excess(values: Tensor, level: float = level) -> Tensor:
            return cdf(likelihood, outputs, values, latents) - level

        low, high, inside = roots.bracket(excess, centres.amin(0) - spread, centres.amax(0) + spread, spread)
        if likelihood.task == "count":
            answer = roots.whole(excess, low, high)
        else:
            answer = roots.continuous(excess, low, high, tolerance)
        found.append(torch.where(inside, answer, torch.full_like(answer, torch.nan)))
    return torch.stack(found)


def quantiles_over_draws(values: Tensor, levels: Sequence[float]) -> Tensor:
    """Empirical quantiles over the first dimension, linear between order statistics: (levels, ...).

    As `torch.quantile`, which takes no more than 2^24 numbers.
    """
    # Sorting contiguous numbers is twice as fast as sorting along a dimension of long strides.
    ordered = values.movedim(0, -1).contiguous().sort(-1).values.movedim(-1, 0)
    position = torch.tensor(list(levels), dtype=torch.float64, device=values.device) * (values.shape[0] - 1)
    lower = position.floor().long()
    upper = (lower + 1).clamp(max=values.shape[0] - 1)
    weight = (position - lower).to(values.dtype).reshape(-1, *[1] * (values.dim() - 1))
    return torch.lerp(ordered[lower], ordered[upper], weight.expand_as(ordered[lower]))


def sample(likelihood: Likelihood, outputs: Tensor, latents: Mapping[str, Tensor], count: int) -> Tensor:
    """`count` draws of y for each row, (count, rows, ...); call it inside `rng.quarantine`.

    Sample i uses draw floor(i S / count) of the weights: equal numbers from all draws if count is a multiple of S, and
    evenly spaced draws if it is smaller, so that no chain or member of an ensemble is left out by its position.
    """
    draws, rows = outputs.shape[:2]
    pieces = []
    for s in range(draws):
        repeats = -(-(s + 1) * count // draws) - -(-s * count // draws)
        if repeats == 0:
            continue
        copies = outputs[s].expand(repeats, *outputs.shape[1:]).reshape(repeats * rows, *outputs.shape[2:])
        drawn = likelihood.sample(copies, {name: value[s] for name, value in latents.items()})
        pieces.append(drawn.reshape(repeats, rows, *drawn.shape[1:]))
    return torch.cat(pieces)


def entropy(likelihood: Likelihood, outputs: Tensor, latents: Mapping[str, Tensor], count: int) -> Tensor:
    """-1/count sum_i log p(y_i) with y_i from the mixture: an unbiased estimate of its entropy in nats, (rows,)."""
    drawn = sample(likelihood, outputs, latents, count)
    total = torch.zeros(outputs.shape[1], dtype=torch.float64, device=outputs.device)
    for targets in drawn:
        total -= log_prob(likelihood, outputs, targets, latents).double()
    return total / count
