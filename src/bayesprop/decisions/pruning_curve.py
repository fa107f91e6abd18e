"""What pruning costs: scores of a posterior without a growing share of its weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesprop.data import Data, as_data
from bayesprop.decisions.pruning import By, Within, prune
from bayesprop.errors import DataError
from bayesprop.metrics import error, root_mean_squared_error
from bayesprop.posteriors import Posterior
from bayesprop.training.evaluation import prepared

__all__ = ["SHARES", "PrunedScore", "pruning_curve"]

SHARES = (0.0, 0.25, 0.5, 0.75, 0.95, 0.98, 0.99)  # those of Blundell et al. (2015) and of later replications


@dataclass(frozen=True)
class PrunedScore:
    """One posterior that was pruned: `left` weights, and its scores with the means as weights and with draws.

    `at_means` and `by_draws` are error rates of classes, or root mean squared errors of quantities; both are those of
    the mean prediction. `nll` is that of the draws, in nats for each row.
    """

    by: By
    share: float
    left: int
    at_means: float
    by_draws: float
    nll: float


@torch.no_grad()
def pruning_curve(
    posterior: Posterior,
    data: Any,
    shares: Sequence[float] = SHARES,
    *,
    by: Sequence[By] = ("signal_to_noise", "magnitude"),
    within: Within = "network",
    keep: str | Sequence[str] = (),
    draws: int = 20,
    seed: int = 0,
) -> list[PrunedScore]:
    """Prune by each score and each share, and look at rows of `data`, in the user's own units.

    The other arguments are those of `prune` and of `posterior.predict`. Of a population the mixture is scored.
    """
    found = as_data(data)
    if not isinstance(found, Data):
        raise DataError("a pruning curve needs all rows at once", received="a stream", write="(inputs, targets)")
    inputs, targets = prepared(found, posterior.model, posterior.context.scaling, posterior.context.classes)
    curve = []
    for score in by:
        for share in shares:
            pruned = prune(posterior, share, score, within=within, keep=keep)
            drawn = pruned.predict(inputs, draws, seed=seed, original_scale=False)
            at_means = pruned.at_mean().predict(inputs, 1, original_scale=False)
            nll = -float(drawn.log_prob(targets).double().mean())
            curve.append(
                PrunedScore(score, share, _left(pruned), _score(at_means, targets), _score(drawn, targets), nll)
            )
    return curve


def _score(prediction: Any, targets: Tensor) -> float:
    classes = prediction.likelihood.task == "classification"
    return (error if classes else root_mean_squared_error)(prediction.mean, targets)


def _left(posterior: Posterior) -> int:
    """Random weights of one particle that are not zero with certainty."""
    mean, std = posterior.moments()
    random = posterior.model.layout.random
    return int(((mean[:, :random] != 0) | (std[:, :random] > 0)).sum() // posterior.particles)
