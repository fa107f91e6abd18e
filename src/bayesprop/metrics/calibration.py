"""Calibration: are predictions that claim 80 % right in 80 % of the cases?

The confidence of a row is its largest probability. Rows are put into bins by confidence, and with n_b rows in bin b,

    expected calibration error = sum_b n_b / n |accuracy_b - confidence_b|                                  (1)

Bins are (low, high]: an edge belongs to the bin below it, and a confidence of exactly 0 to the first bin. Edges are
compared in the dtype of the probabilities, so that a float32 confidence of 0.2 meets the edge 0.2 and not its float64
neighbour. With binning="width" the edges are 0, 1/M, ..., 1. With binning="mass" edge j is the confidence of rank
ceil(j n / M): bins hold about n / M rows each, and equal confidences always share a bin, so that the score does not
depend on the order of the rows; with many ties some bins stay empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.metrics.arrays import class_probabilities

__all__ = ["Binning", "ReliabilityCurve", "expected_calibration_error", "reliability_curve"]

Binning = Literal["width", "mass"]


@dataclass(frozen=True)
class ReliabilityCurve:
    """One entry for each bin, `rows` being how many it holds; an empty bin has accuracy and confidence nan.

    `edges` has one entry more than there are bins.
    """

    confidence: Tensor
    accuracy: Tensor
    rows: Tensor
    edges: Tensor


def reliability_curve(
    probabilities: Any, labels: Any, *, bins: int = 15, binning: Binning = "width"
) -> ReliabilityCurve:
    """Mean confidence and accuracy in each bin: the data of a reliability diagram."""
    if isinstance(bins, bool) or not isinstance(bins, int) or bins < 1:
        raise ConfigurationError("bins is how many bins there are", received=repr(bins), expected="1 or more")
    if binning not in ("width", "mass"):
        raise ConfigurationError(
            "binning says how the bins are cut", received=repr(binning), expected='"width" or "mass"', write='"width"'
        )
    given, truth = class_probabilities(probabilities, labels)
    confidence, predicted = given.max(1)
    right = (predicted == truth).double()
    edges = _edges(confidence, bins, binning)
    # bucketize without right=True: the index of the first inner edge that is not below the value, so (low, high].
    index = torch.bucketize(confidence, edges[1:-1].contiguous())
    count = torch.bincount(index, minlength=bins)
    total = [torch.zeros(bins, dtype=torch.float64, device=right.device) for _ in range(2)]
    sums = [sums.index_add_(0, index, values) for sums, values in zip(total, (confidence.double(), right))]
    return ReliabilityCurve(sums[0] / count, sums[1] / count, count, edges)


def _edges(confidence: Tensor, bins: int, binning: Binning) -> Tensor:
    """bins + 1 edges from 0 to 1 in the dtype of the confidences."""
    steps = torch.arange(bins + 1, dtype=torch.float64, device=confidence.device)
    if binning == "width":
        return (steps / bins).to(confidence.dtype)
    rows = confidence.shape[0]
    rank = -(-torch.arange(bins + 1, device=confidence.device) * rows // bins)  # ceil(j n / M) in whole numbers
    edges = confidence.sort().values[(rank - 1).clamp(min=0)]
    edges[0], edges[-1] = 0.0, 1.0
    return edges


def expected_calibration_error(probabilities: Any, labels: Any, *, bins: int = 15, binning: Binning = "width") -> float:
    """Equation (1), lower is better; 0 is perfect calibration of the confidence.

    >>> expected_calibration_error([[0.75, 0.25], [0.75, 0.25]], [0, 1], bins=1)
    0.25
    """
    curve = reliability_curve(probabilities, labels, bins=bins, binning=binning)
    gap = (curve.accuracy - curve.confidence).abs().nan_to_num(0.0)
    return (curve.rows / curve.rows.sum().double() * gap).sum().item()
