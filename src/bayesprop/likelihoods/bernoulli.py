"""Yes or no, from one logit.

    p(y = 1 | f) = 1 / (1 + exp(-f))                                                                        (1)

The network's last layer has one output and no sigmoid. Several outputs are several independent questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from bayesprop.data.tensors import to_tensor
from bayesprop.errors import DataError
from bayesprop.likelihoods.likelihood import (
    Likelihood,
    Task,
    compact,
    first_row,
    first_value,
    same_rows,
    sum_targets,
    widen,
)

__all__ = ["Bernoulli"]


@dataclass(frozen=True)
class Bernoulli(Likelihood):
    """Labels 0 and 1; outputs (n,) or (n, 1) for labels (n,), or (n, T) for T labels in a row.

    Probabilities have two classes in dimension 1, as everywhere: (n, 2), or (n, 2, T). So a binary problem reads the
    same with `Bernoulli()` and one logit as with `Categorical()` and two.
    """

    task: ClassVar[Task] = "classification"

    def encode(self, targets: Any) -> Tensor:
        labels = to_tensor(targets, "targets")
        wrong = (labels != 0) & (labels != 1)
        if bool(wrong.any()):
            row = first_row(wrong)
            low, high = labels.min().item(), labels.max().item()
            write = ""
            if not bool(torch.isfinite(labels).all()):
                write = "keep = torch.isfinite(targets); inputs[keep], targets[keep]"
            elif bool(((labels == 1) | (labels == 2)).all()):
                write = "targets - 1"
            elif bool(((labels == -1) | (labels == 1)).all()):
                write = "(targets + 1) // 2"
            elif bool((labels == labels.round()).all()) and low >= 0:
                write = f"likelihoods.Categorical() and a last layer with {int(high) + 1} outputs"
            raise DataError(
                "Bernoulli() needs labels 0 and 1",
                received=f"{first_value(labels, wrong):g} in row {row}; values {low:g}..{high:g}",
                expected="0 or 1, False or True",
                write=write,
            )
        return labels.long()

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        same_rows(self, outputs, targets)
        ours, theirs = compact(outputs).shape[1:], compact(targets).shape[1:]
        if ours == theirs:
            return
        several = len(ours) == len(theirs) + 1 and ours[1:] == theirs
        raise DataError(
            "Bernoulli() needs one logit for each label",
            received=f"outputs {tuple(outputs.shape)} for labels {tuple(targets.shape)}",
            expected=f"outputs {(targets.shape[0], *theirs)}",
            write=f"likelihoods.Categorical(), which reads {ours[0]} outputs as {ours[0]} classes, "
            "or a last layer with 1 output"
            if several
            else "",
        )

    def log_prob(self, outputs: Tensor, targets: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        logits, labels = compact(widen(outputs)), compact(targets)
        return sum_targets(logsigmoid((2 * labels - 1).to(logits.dtype) * logits))

    def mean(self, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        logits = compact(widen(outputs))
        return torch.stack((torch.sigmoid(-logits), torch.sigmoid(logits)), dim=1)

    def sample(self, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        return torch.bernoulli(torch.sigmoid(compact(widen(outputs)))).long()
