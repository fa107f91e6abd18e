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
    first_value,
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
            raise self._no_labels(labels)
        return whole_numbers(labels, "Categorical()")

    def _no_labels(self, values: Tensor) -> DataError:
        """What is said of targets that are not of an integer dtype, in the order of what they most likely are."""
        odd = torch.ones_like(values, dtype=torch.bool) if values.is_complex() else values != values.round()
        missing = ~torch.isfinite(values)
        example, write = "", "targets.long()  # .astype(int) of a numpy array"
        if bool(missing.any()):
            example = f", {first_value(values, missing)} in row {first_row(missing)}"
            write = "keep = torch.isfinite(targets); inputs[keep], targets[keep].long()"
        elif bool(odd.any()):
            example = f" such as {first_value(values, odd)}"
            write = "likelihoods.Gaussian() if the targets are quantities"
        elif values.dim() > 1 and bool((values.sum(1) == 1).all()) and bool((values >= 0).all()):
            example, write = ", one column for each class", "targets.argmax(dim=1)"
        return DataError(
            "Categorical() needs labels that are whole numbers, one for each class",
            received=f"{values.dtype} targets{example}",
            expected="labels 0..K-1 of an integer dtype",
            write=write,
        )

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
        total = outputs.sum(1)
        if outputs.shape[0] > 1 and bool((outputs >= 0).all()) and bool(((total - 1).abs() < 1e-5).all()):
            raise DataError(
                "Categorical() needs logits, and applies the softmax itself",
                received=f"outputs that are probabilities already, such as {outputs[0].flatten().tolist()[:4]}",
                expected="any real numbers; with two softmaxes no probability can come near 1",
                write="the network without the softmax at its end",
            )
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
