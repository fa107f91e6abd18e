"""Scores of class probabilities: how often right, and how good as probabilities.

For p_i the predicted probabilities and y_i the label of row i,

    accuracy = mean_i 1[argmax_k p_ik = y_i],    error = 1 - accuracy                                       (1)
    negative log-likelihood = -mean_i log p_i,y_i                                                           (2)
    Brier = mean_i sum_k (p_ik - 1[y_i = k])^2                                                              (3)

(2) is in nats and infinite when a label had probability zero: nothing is clipped, because a clip decides the score.
(3) is Brier's own sum over all classes, between 0 and 2; for two classes it is twice the form that counts one class.
"""

from __future__ import annotations

from typing import Any

import torch

from bayesprop.errors import DataError
from bayesprop.metrics.arrays import as_tensor, class_probabilities, integers

__all__ = ["accuracy", "brier", "error", "negative_log_likelihood"]


def accuracy(predictions: Any, labels: Any) -> float:
    """Equation (1). `predictions` are probabilities (n, K, ...) or predicted labels in the shape of `labels`.

    >>> accuracy([0, 1, 1, 2], [0, 1, 2, 2])
    0.75
    """
    tensor = as_tensor(predictions)
    if tensor.is_floating_point():
        probabilities, truth = class_probabilities(tensor, labels)
        return (probabilities.argmax(1) == truth).double().mean().item()
    truth = integers(labels, "labels").to(tensor.device)
    if tensor.shape != truth.shape:
        raise DataError(
            "predicted labels and labels must have one shape",
            received=f"{tuple(tensor.shape)} and {tuple(truth.shape)}",
            expected="one predicted label for each label",
        )
    if truth.numel() == 0:
        raise DataError("a score needs at least one row", received="0 rows")
    return (tensor.long() == truth).double().mean().item()


def error(predictions: Any, labels: Any) -> float:
    """1 - accuracy."""
    return 1.0 - accuracy(predictions, labels)


def negative_log_likelihood(probabilities: Any, labels: Any) -> float:
    """Equation (2), lower is better. For regression it is `-prediction.log_prob(targets).mean()`.

    >>> round(negative_log_likelihood([[0.5, 0.5], [0.25, 0.75]], [0, 1]), 4)
    0.4904
    """
    given, truth = class_probabilities(probabilities, labels)
    return -given.double().gather(1, truth[:, None]).log().mean().item()


def brier(probabilities: Any, labels: Any) -> float:
    """Equation (3), lower is better.

    >>> brier([[0.5, 0.5], [1.0, 0.0]], [0, 0])
    0.25
    """
    given, truth = class_probabilities(probabilities, labels)
    indicator = torch.zeros_like(given, dtype=torch.float64).scatter_(1, truth[:, None], 1.0)
    return (given.double() - indicator).square().sum(1).mean().item()
