"""A classification posterior held against labelled data: the numbers that the page and the command line both show.

All scores are those of the predictive distribution, the mean of the probabilities over draws of the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bayesprop import metrics
from bayesprop.data import Data, as_data, as_inputs, encode_labels
from bayesprop.errors import CapabilityError, ConfigurationError, DataError
from bayesprop.posteriors import Posterior
from bayesprop.prediction import Prediction

__all__ = ["Evaluation", "Foreign", "evaluate", "rows_of", "separation"]


@dataclass(frozen=True)
class Foreign:
    """Rows of a kind that training knew nothing of: their inputs, in the user's own units, and what is said of them."""

    inputs: Any
    prediction: Prediction


@dataclass(frozen=True)
class Evaluation:
    """What a posterior says about rows whose labels are known.

    `inputs` are in the user's own units; `labels` (n,) are the positions of the classes. `foreign` are further rows
    by the name of their kind.
    """

    posterior: Posterior
    prediction: Prediction
    inputs: Any
    labels: Tensor
    foreign: Mapping[str, Foreign] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return self.labels.shape[0]

    @cached_property
    def class_names(self) -> list[str]:
        """Names of the classes, their numbers where they have none."""
        known = self.prediction.classes
        return [str(name) for name in (known if known is not None else range(self.prediction.mean.shape[1]))]

    @cached_property
    def confidence(self) -> Tensor:
        """The largest probability of each row, (n,)."""
        return self.prediction.mean.max(1).values

    @cached_property
    def predicted(self) -> Tensor:
        """The position of the likeliest class of each row, (n,)."""
        return self.prediction.mean.argmax(1)

    @cached_property
    def right(self) -> Tensor:
        """Whether the likeliest class is the label, (n,)."""
        return self.predicted == self.labels

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


def evaluate(
    posterior: Posterior, data: Any, *, foreign: Mapping[str, Any] | None = None, draws: int = 100, seed: int = 0
) -> Evaluation:
    """Predict the rows of `data`, which is `Data` or a pair (inputs, labels), with `draws` draws of the weights.

    `foreign` has inputs by the name of their kind, of which no labels are asked: {"noise": noise, "letters": letters}.
    """
    if posterior.model.likelihood.task != "classification":
        raise CapabilityError(
            "this evaluation counts right and wrong classes",
            received=f"{posterior.model.likelihood!r}, a {posterior.model.likelihood.task}",
            expected="a posterior of a model with classes",
            write="bp.Model(network, likelihood=bp.likelihoods.Categorical())",
        )
    found = rows_of(data)
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
    strange = {name: _foreign(posterior, rows, draws, seed) for name, rows in _by_name(foreign).items()}
    return Evaluation(posterior, prediction, inputs, labels.to(prediction.mean.device), strange)


def rows_of(data: Any) -> Data:
    """Data in memory; a stream of batches is refused."""
    found = as_data(data)
    if not isinstance(found, Data):
        raise DataError("a report needs all rows at once", received="a stream of batches", write="(inputs, targets)")
    return found


def separation(evaluation: Evaluation, foreign: Prediction) -> float:
    """AUROC of the epistemic uncertainty as an alarm for `foreign` rows, of which training knew nothing of the kind."""
    scores = torch.cat((evaluation.prediction.epistemic, foreign.epistemic))
    strange = torch.arange(scores.shape[0], device=scores.device) >= evaluation.rows
    return metrics.auroc(scores, strange)


def _by_name(foreign: Any) -> Mapping[str, Any]:
    if foreign is None:
        return {}
    if not isinstance(foreign, Mapping) or not all(isinstance(name, str) for name in foreign):
        raise ConfigurationError(
            "foreign inputs are given by the name of their kind",
            received=f"a {type(foreign).__name__}",
            expected="a mapping from names to inputs",
            write='foreign={"noise": noise}',
        )
    return foreign


def _foreign(posterior: Posterior, rows: Any, draws: int, seed: int) -> Foreign:
    inputs = rows.original()[0] if isinstance(rows, Data) else as_inputs(rows)
    return Foreign(inputs, posterior.predict(inputs, draws, seed=seed))
