"""Does the uncertainty rank rows well: out-of-distribution rows above ordinary ones, wrong answers above right ones?

    AUROC = P(score of a positive > score of a negative) + P(they are equal) / 2                            (1)

computed from mid-ranks (Mann and Whitney 1947), so that ties count one half and no threshold is chosen.

Selective prediction answers only where it is confident. With rows in the order of falling confidence,

    coverage_k = k / n,   risk_k = mean loss of the k most confident rows                                   (2)
    area = mean_k risk_k                                                                                    (3)

Rows of equal confidence cannot be told apart, so each of them counts with their mean loss: (2) and (3) are then the
expectation over all orders among them and do not depend on the order of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesprop.errors import DataError
from bayesprop.metrics.arrays import paired

__all__ = ["RiskCoverage", "auroc", "risk_coverage"]


def auroc(scores: Any, positives: Any) -> float:
    """Equation (1): 1 if every positive scores above every negative, 0.5 if scores say nothing.

    For out-of-distribution rows: scores are `prediction.entropy` or `.epistemic`, positives marks the strange rows.

    >>> auroc([0.1, 0.4, 0.35, 0.8], [False, False, True, True])
    0.75
    """
    values, truth = paired(scores, positives, ("scores", "positives"))
    values, truth = values.reshape(-1), truth.reshape(-1)
    if bool(((truth != 0) & (truth != 1)).any()) or bool(values.isnan().any()):
        raise DataError(
            "auroc compares the scores of positives with those of negatives",
            received="positives that are not 0 and 1, or scores that are nan",
            expected="positives of True and False, and a number as score for each",
        )
    many, few = int((truth == 1).sum()), int((truth == 0).sum())
    if many == 0 or few == 0:
        raise DataError(
            "auroc needs positives and negatives",
            received=f"{many} positives and {few} negatives",
            expected="at least one of each",
            write="auroc(torch.cat((ordinary, strange)), torch.cat((zeros, ones)))",
        )
    _, index, count = torch.unique(values, return_inverse=True, return_counts=True)
    mid_rank = count.cumsum(0) - 0.5 * (count - 1).double()
    rank_sum = mid_rank[index][truth == 1].sum().item()
    return (rank_sum - many * (many + 1) / 2) / (many * few)


@dataclass(frozen=True)
class RiskCoverage:
    """Equations (2) and (3): coverage and risk (n,), the confidence above which rows are answered, and the area."""

    coverage: Tensor
    risk: Tensor
    threshold: Tensor
    area: float


def risk_coverage(confidence: Any, losses: Any) -> RiskCoverage:
    """The risk at each coverage when the least confident rows are left out, lower is better.

    Args:
        confidence: (n,), e.g. `prediction.mean.max(1).values` or `-prediction.epistemic`.
        losses: (n,), e.g. whether each row is wrong, or its squared error.

    >>> risk_coverage([0.9, 0.8, 0.7], [0, 0, 1]).risk
    tensor([0.0000, 0.0000, 0.3333], dtype=torch.float64)
    """
    sure, loss = paired(confidence, losses, ("confidence", "losses"))
    sure, loss = sure.reshape(-1), loss.reshape(-1)
    rows = sure.numel()
    if bool(sure.isnan().any()):
        raise DataError("risk_coverage needs a confidence for each row", received="some that are nan")
    values, index, count = torch.unique(-sure, return_inverse=True, return_counts=True)
    mean_loss = torch.zeros_like(values).index_add_(0, index, loss) / count
    each = mean_loss.repeat_interleave(count)
    number = torch.arange(1, rows + 1, dtype=torch.float64, device=sure.device)
    risk = each.cumsum(0) / number
    return RiskCoverage(number / rows, risk, -values.repeat_interleave(count), risk.mean().item())
