"""A posterior of quantities or counts held against rows whose targets are known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bayesprop import metrics
from bayesprop.errors import CapabilityError
from bayesprop.posteriors import Posterior
from bayesprop.prediction import Prediction
from bayesprop.report.evaluation import rows_of

__all__ = ["RegressionEvaluation", "evaluate_regression"]

SAMPLES = 200  # of each row, for the CRPS
FINE_SAMPLES = 1000  # of each row, where the distribution function has no closed form: ranks to within 0.016
NUMBERS = 10_000_000  # samples held at a time


@dataclass(frozen=True)
class RegressionEvaluation:
    """`inputs` and `targets` are in the user's own units; targets have the shape of the mean, (n,) or (n, T)."""

    posterior: Posterior
    prediction: Prediction
    inputs: Any
    targets: Tensor

    @property
    def rows(self) -> int:
        return self.targets.shape[0]

    @cached_property
    def root_mean_squared_error(self) -> float:
        return metrics.root_mean_squared_error(self.prediction.mean, self.targets)

    @cached_property
    def log_likelihood(self) -> float:
        """Mean log p(y) of a row in nats, in the units of the targets."""
        return self.prediction.log_prob(self.targets).double().mean().item()

    @cached_property
    def crps(self) -> float:
        """Continuous ranked probability score from 200 samples of each row, in the units of the targets."""
        scores, rows = 0.0, 0
        for part in self._parts(SAMPLES):
            piece = self.targets[part]
            scores += metrics.crps_from_samples(self.prediction[part].samples(SAMPLES), piece) * len(piece)
            rows += len(piece)
        return scores / rows

    @cached_property
    def epistemic_share(self) -> float:
        """mean epistemic / mean total variance: how much of the uncertainty more data would remove."""
        total = self.prediction.total.double().mean().item()
        return self.prediction.epistemic.double().mean().item() / total if total > 0 else 0.0

    @cached_property
    def ranks(self) -> tuple[Tensor, Tensor]:
        """P(Y < y) and P(Y <= y) under the prediction, in the shape of the targets; the same for quantities."""
        if not self.prediction.likelihood.has_cdf:
            return self._ranks_by_samples()
        reached = self.prediction.cdf(self.targets).double()
        if self.prediction.task != "count":
            return reached, reached
        # The next smaller count; there is none below 0.
        below = self.prediction.cdf((self.targets - 1).clamp(min=0)).double()
        return torch.where(self.targets > 0, below, 0.0), reached

    def coverage(self, level: float) -> float:
        """The share of targets inside their central interval of this probability, ends included."""
        below, reached = self.ranks
        low, high = 0.5 - 0.5 * level, 0.5 + 0.5 * level
        return ((reached >= low) & (below <= high)).double().mean().item()

    def _ranks_by_samples(self) -> tuple[Tensor, Tensor]:
        below, reached = [], []
        for part in self._parts(FINE_SAMPLES):
            drawn, targets = self.prediction[part].samples(FINE_SAMPLES), self.targets[part]
            below.append((drawn < targets).double().mean(0))
            reached.append((drawn <= targets).double().mean(0))
        return torch.cat(below), torch.cat(reached)

    def _parts(self, samples: int) -> list[slice]:
        """Slices of the rows, so that the samples of one of them fit into memory."""
        step = max(1, NUMBERS // (samples * max(1, self.targets[0].numel())))
        return [slice(first, min(first + step, self.rows)) for first in range(0, self.rows, step)]


def evaluate_regression(posterior: Posterior, data: Any, *, draws: int = 100, seed: int = 0) -> RegressionEvaluation:
    """Predict the rows of `data`, which is `Data` or a pair (inputs, targets), with `draws` draws of the weights."""
    if posterior.model.likelihood.task == "classification":
        raise CapabilityError(
            "this evaluation measures distances between numbers",
            received=f"{posterior.model.likelihood!r}, a classification",
            expected="a posterior of a model of quantities or counts",
            write="report.evaluate(posterior, (inputs, labels))",
        )
    inputs, targets = rows_of(data).original()
    prediction = posterior.predict(inputs, draws, seed=seed)
    mean = prediction.mean
    return RegressionEvaluation(posterior, prediction, inputs, targets.to(mean.device).reshape(_like(targets, mean)))


def _like(targets: Tensor, mean: Tensor) -> tuple[int, ...]:
    """The shape of the mean if only dimensions of size one differ; the targets' own otherwise, which scores refuse."""
    return tuple(mean.shape) if targets.numel() == mean.numel() else tuple(targets.shape)
