"""A classification posterior held against labelled data: the numbers that the page and the command line both show.

All scores are those of the predictive distribution, the mean of the probabilities over draws of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bayesprop import metrics
from bayesprop.data import Data, as_data, encode_labels
from bayesprop.errors import CapabilityError, DataError
from bayesprop.posteriors import Posterior
from bayesprop.prediction import Prediction

__all__ = ["Evaluation", "evaluate", "separation"]


@dataclass(frozen=True)
class Evaluation:
    """What a posterior says about rows whose labels are known.

    `inputs` are in the user's own units; `labels` (n,) are the positions of the classes.
    """

    posterior: Posterior
    prediction: Prediction
    inputs: Any
    labels: Tensor

    @property
    def rows(self) -> int:
        return self.labels.shape[0]

    @property
    def class_names(self) -> list[str]:
        """Names of the classes, their numbers where they have none."""
        known = self.prediction.classes
        return [str(name) for name in (known if known is not None else range(self.prediction.mean.shape[1]))]

    @cached_property
    def confidence(self) -> Tensor:
        """The largest probability of each row, (n,)."""
        return self.prediction.mean.max(1).values

    @cached_property
    def right(self) -> Tensor:
        """Whether the likeliest class is the label, (n,)."""
        return self.prediction.mean.argmax(1) == self.labels

    @cached_property
    def accuracy(self) -> float:
        return metrics.accuracy(self.prediction.mean, self.labels)

    @cached_property
    def negative_log_likelihood(self) -> float:
        """In nats per row."""
        return metrics.negative_log_likelihood(self.prediction.mean, self.labels)

    @cached_property
    def brier(self) -> float:
        return metrics.brier(self.prediction.mean, self.labels)

    @cached_property
    def calibration_error(self) -> float:
        """Expected calibration error over 15 bins of equal width."""
        return metrics.expected_calibration_error(self.prediction.mean, self.labels)

    @cached_property
    def epistemic_share(self) -> float:
        """mean epistemic / mean total: how much of the uncertainty more data would remove."""
        total = self.prediction.total.double().mean().item()
        return self.prediction.epistemic.double().mean().item() / total if total > 0 else 0.0


def evaluate(posterior: Posterior, data: Any, *, draws: int = 100, seed: int = 0) -> Evaluation:
    """Predict the rows of `data`, which is `Data` or a pair (inputs, labels), with `draws` draws of the weights."""
    if posterior.model.likelihood.task != "classification":
        raise CapabilityError(
            "this evaluation counts right and wrong classes",
            received=f"{posterior.model.likelihood!r}, a {posterior.model.likelihood.task}",
            expected="a posterior of a model with classes",
            write="bp.Model(network, likelihood=bp.likelihoods.Categorical())",
        )
    found = as_data(data)
    if not isinstance(found, Data):
        raise DataError("a report needs all rows at once", received="a stream of batches", write="(inputs, labels)")
    inputs, targets = found.original()
    names = found.classes
    given = targets if names is None else [names[position] for position in targets.reshape(-1).tolist()]
    labels = encode_labels(given, posterior.context.classes).long().reshape(targets.shape)
    prediction = posterior.predict(inputs, draws, seed=seed)
    if labels.shape == (len(prediction), 1):
        labels = labels[:, 0]
    if prediction.mean.dim() != 2 or labels.dim() != 1:
        raise DataError(
            "a report of classes needs one label for each row",
            received=f"labels {tuple(labels.shape)}, probabilities {tuple(prediction.mean.shape)}",
            expected="labels (n,) and probabilities (n, K)",
        )
    return Evaluation(posterior, prediction, inputs, labels.to(prediction.mean.device))


def separation(evaluation: Evaluation, foreign: Prediction) -> float:
    """AUROC of the epistemic uncertainty as an alarm for `foreign` rows, of which training knew nothing of the kind."""
    scores = torch.cat((evaluation.prediction.epistemic, foreign.epistemic))
    strange = torch.arange(scores.shape[0], device=scores.device) >= evaluation.rows
    return metrics.auroc(scores, strange)
