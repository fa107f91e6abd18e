"""Pruning: the weights that say least are set to zero, with certainty.

Of n weights the round(share * n) with the smallest score are removed, where the score is

    "signal_to_noise"   |mean| / std     Blundell et al. (2015), section 5.1                                    (1)
    "magnitude"         |mean|           what is done to networks without uncertainty                            (2)

Mean and standard deviation of a removed weight are both 0, so that draws of the weights are as sparse as their means.
(Replications that leave the deviation of removed weights as it was find networks that answer at random.) Among equal
scores the weight that stands first is removed first. Each particle of a population is pruned by itself.

Removing is not retraining: what is left stays as it was. (1) is cautious about weights that the data do not care
about, since these fall back to the prior's own width; (2) needs no uncertainty, and knows none.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from bayesprop.diagnostics.weights import ratio
from bayesprop.errors import CapabilityError, ConfigurationError
from bayesprop.layout import match
from bayesprop.posteriors import Delta, DiagonalGaussian, Posterior, PrunedGaussian, Samples

__all__ = ["By", "Within", "prune"]

By = Literal["signal_to_noise", "magnitude"]
Within = Literal["network", "layer"]


@torch.no_grad()
def prune(
    posterior: Posterior,
    share: float,
    by: By = "signal_to_noise",
    *,
    within: Within = "network",
    keep: str | Sequence[str] = (),
) -> Posterior:
    """A posterior without the given share of its random weights; the one that was given stays as it is.

    Args:
        share: 0 removes nothing, 1 everything that may be removed.
        by: (1), which asks for a posterior with deviations, or (2).
        within: compare weights of the whole network, or those of each layer among themselves: then every layer loses
            the same share.
        keep: names or patterns of parameters that are neither removed nor counted, such as "*.bias".

    Point estimates, scales of priors and rows of embeddings that stand for padding are never removed.
    """
    _check(posterior, share, by, within)
    mean, std = posterior.moments()
    removed = _removed(posterior, mean, std, share, by, within, keep)
    _refuse_locations(posterior, removed)
    wide = torch.nn.functional.pad(removed, (0, mean.shape[1] - removed.shape[1]))
    model, buffers, context = posterior.model, posterior.buffers, copy.copy(posterior.context)
    if isinstance(posterior, Delta):
        return Delta(model, posterior.location.masked_fill(wide, 0.0), buffers, context)
    if isinstance(posterior, Samples):
        theta = posterior.theta.masked_fill(wide[:, None], 0.0)
        return Samples(model, theta, buffers, context, sample_buffers=posterior.sample_buffers)
    width = posterior.tensors()["std"].shape[1]
    return PrunedGaussian(
        model, mean.masked_fill(wide, 0.0), std[:, :width].masked_fill(wide[:, :width], 0.0), buffers, context
    )


def _check(posterior: Posterior, share: float, by: str, within: str) -> None:
    if not isinstance(posterior, DiagonalGaussian | Delta | Samples):
        raise CapabilityError(
            "pruning sets mean and deviation of single weights to zero, which this posterior does not hold",
            received=f"a {type(posterior).__name__}",
            expected="a DiagonalGaussian, a Delta or Samples",
            write='bp.decisions.prune(posterior.at_mean(), share, by="magnitude")',
        )
    for name, value, allowed in (("by", by, get_args(By)), ("within", within, get_args(Within))):
        if value not in allowed:
            raise ConfigurationError(
                f"{name} says how weights are compared",
                received=f"{name}={value!r}",
                expected=" or ".join(f'"{word}"' for word in allowed),
            )
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0.0 <= share <= 1.0:
        raise ConfigurationError(
            "share is the part of the weights to remove",
            received=f"share={share!r}",
            expected="a number from 0 to 1",
            write="bp.decisions.prune(posterior, 0.95)",
        )
    if by == "signal_to_noise" and not bool((posterior.std() > 0).any()):
        raise CapabilityError(
            "signal to noise compares a weight with its uncertainty, and there is none in this posterior",
            received=f"a {type(posterior).__name__} without any deviation",
            expected="a posterior with deviations, for instance from inference.BayesByBackprop()",
            write='bp.decisions.prune(posterior, share, by="magnitude")',
        )


def _removed(
    posterior: Posterior,
    mean: Tensor,
    std: Tensor,
    share: float,
    by: By,
    within: Within,
    keep: str | Sequence[str],
) -> Tensor:
    """Which random columns go, (particles, random columns)."""
    prior, latent = posterior.model.bound_prior, posterior.model.layout.latent
    if isinstance(posterior, Samples):
        values = prior.weights(posterior.theta[..., :latent])
        weights, spread = values.mean(1), values.std(1, correction=0)
    else:
        weights, spread = prior.weight_moments(mean[:, :latent], std[:, :latent])
    score = weights.abs() if by == "magnitude" else ratio(weights, spread)
    removed = torch.zeros_like(score, dtype=torch.bool)
    for group in _groups(posterior, within, keep).values():
        count, columns = round(share * len(group)), group.to(score.device)
        order = columns[score[:, columns].argsort(dim=1, stable=True)]
        removed.scatter_(1, order[:, :count], True)
    return removed


def _groups(posterior: Posterior, within: Within, keep: str | Sequence[str]) -> Mapping[str, Tensor]:
    """Columns that are compared with one another, by the name of their layer; "" for the whole network."""
    model = posterior.model
    blocks = model.layout.of_kind("random")
    kept = match(keep, [block.name for block in blocks], argument="keep") if keep else {}
    found: dict[str, list[Tensor]] = {}
    for block in blocks:
        if block.name in kept:
            continue
        columns = torch.arange(block.columns.start, block.columns.stop).reshape(block.shape)
        if block.name in model._padding:
            own = torch.arange(len(columns)) != model._padding[block.name]
            columns = columns[own]
        layer = block.name.rpartition(".")[0] if within == "layer" else ""
        found.setdefault(layer, []).append(columns.reshape(-1))
    return {layer: torch.cat(parts) for layer, parts in found.items()}


def _refuse_locations(posterior: Posterior, removed: Tensor) -> None:
    """A column of a non-centred prior is z, and the weight loc + scale z: z = 0 removes it only where loc is 0."""
    model = posterior.model
    if model.bound_prior.centred:
        return
    theta = posterior._centre()[:, : model.layout.latent].clone()
    theta[:, : model.layout.random].masked_fill_(removed, 0.0)
    if bool((model.bound_prior.weights(theta)[removed] != 0).any()):
        raise CapabilityError(
            "a weight of a non-centred prior can be removed only where the prior lies around zero",
            received=f"{model.prior!r}",
            expected="loc=0, or a scale that is centred",
            write='bp.decisions.prune(posterior, share, keep="...")',
        )
