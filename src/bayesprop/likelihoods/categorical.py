"""One of K classes, from K logits.

    p(y = k | f) = exp(f_k) / sum_j exp(f_j)                                                                (1)

The network's last layer has one output for each class and no softmax. Labels are whole numbers 0..K-1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesprop.data.tensors import to_tensor
from bayesprop.errors import DataError
from bayesprop.likelihoods.likelihood import (
    Likelihood,
    Task,
    compact,
    first_row,
    same_rows,
    sum_targets,
    widen,
)

__all__ = ["Categorical", "whole_numbers"]


@dataclass(frozen=True)
class Categorical(Likelihood):
    """K classes; outputs (n, K) for labels (n,), or (n, K, ...) for labels (n, ...) as in segmentation.

    For two classes and one logit take `Bernoulli()`.
    """

    task: ClassVar[Task] = "classification"

    def encode(self, targets: Any) -> Tensor:
        labels = to_tensor(targets, "targets")
        if labels.is_floating_point() or labels.is_complex():
            whole = not labels.is_complex() and bool((labels == labels.round()).all())
            raise DataError(
                "Categorical() needs labels that are whole numbers, one for each class",
                received=f"{labels.dtype} targets" + ("" if whole else f" such as {labels.flatten()[0].item():g}"),
                expected="labels 0..K-1 of an integer dtype",
                write="targets.long()" if whole else "likelihoods.Gaussian() if the targets are quantities",
            )
        return whole_numbers(labels, "Categorical()")

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        same_rows(self, outputs, targets)
        if outputs.dim() == 1 or outputs.shape[1] == 1:
            raise DataError(
                "Categorical() needs one output for each class, and a softmax over one output is always 1",
                received=f"outputs {tuple(outputs.shape)}",
                expected="outputs (n, K) with K >= 2",
                write="likelihoods.Bernoulli() for one logit and labels 0 and 1, or a last layer with K outputs",
            )
        classes = outputs.shape[1]
        if compact(outputs, keep=2).shape[2:] != compact(targets).shape[1:]:
            raise self._shape_error(outputs, targets)
        highest = int(targets.max()) if targets.numel() else 0
        if highest >= classes:
            row = first_row(targets >= classes)
            from_one = highest == classes and int(targets.min()) == 1
            raise DataError(
                f"Categorical() received the label {highest} for a network with {classes} outputs",
                received=f"labels {int(targets.min())}..{highest}; the first that is too high is in row {row}",
                expected=f"labels 0..{classes - 1}" + (": yours seem to count from 1" if from_one else ""),
                write="targets - 1" if from_one else f"a last layer with {highest + 1} outputs",
            )

    def _shape_error(self, outputs: Tensor, targets: Tensor) -> DataError:
        shapes = f"outputs {tuple(outputs.shape)} for labels {tuple(targets.shape)}"
        if outputs.shape[1:] == targets.shape[1:]:
            return DataError(
                "Categorical() needs one label for each row, not one column for each class",
                received=shapes,
                expected=f"labels ({targets.shape[0]},)",
                write="targets.argmax(dim=1)",
            )
        if outputs.shape[1:-1] == targets.shape[1:]:
            return DataError(
                "Categorical() needs the classes in dimension 1, as torch.nn.functional.cross_entropy does",
                received=shapes,
                expected=f"outputs (n, {outputs.shape[-1]}, {', '.join(map(str, targets.shape[1:]))})",
                write="outputs.movedim(-1, 1) at the end of the network's forward",
            )
        return DataError(
            "Categorical() needs one row of outputs for each label",
            received=shapes,
            expected="outputs (n, K) for labels (n,), or (n, K, ...) for labels (n, ...)",
        )

    def log_prob(self, outputs: Tensor, targets: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        logits, labels = compact(widen(outputs), keep=2), compact(targets)
        chosen = torch.log_softmax(logits, dim=1).gather(1, labels.unsqueeze(1)).squeeze(1)
        return sum_targets(chosen)

    def mean(self, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        return torch.softmax(compact(widen(outputs), keep=2), dim=1)

    def sample(self, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        probabilities = self.mean(outputs, latents).movedim(1, -1)
        # By inversion, which is ten times faster here than torch.multinomial: the first class whose cumulative
        # probability exceeds a uniform number below the total, so never one of probability zero.
        cumulative = probabilities.cumsum(-1)
        height = torch.rand_like(cumulative[..., :1]) * cumulative[..., -1:]
        return (cumulative <= height).sum(-1).clamp(max=probabilities.shape[-1] - 1)


def whole_numbers(labels: Tensor, name: str) -> Tensor:
    """Labels or counts as int64; negative ones are refused with their row."""
    labels = labels.long()
    if bool((labels < 0).any()):
        row = first_row(labels < 0)
        raise DataError(
            f"{name} received a negative value",
            received=f"{int(labels[row].min())} in row {row}",
            expected="whole numbers from 0 upwards",
            write="leave out rows that are marked as missing, e.g. inputs[targets >= 0], targets[targets >= 0]",
        )
    return labels
