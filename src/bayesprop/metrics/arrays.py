"""What all scores do first: make float64 tensors of whatever came, and refuse shapes that would be broadcast.

Scores are sums over many rows, so they are computed in float64 whatever the model's dtype. They return Python numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesprop.errors import DataError

__all__ = ["as_tensor", "class_probabilities", "floats", "integers", "paired"]


def as_tensor(values: Any) -> Tensor:
    """A tensor without history, where the values are and in their own dtype; Python's floats are float64."""
    if isinstance(values, Tensor):
        return values.detach()
    array = values.to_numpy() if hasattr(values, "to_numpy") else values
    return torch.from_numpy(np.array(array, order="C"))  # a copy: torch takes neither read-only nor reversed arrays


def floats(values: Any) -> Tensor:
    """The same as float64."""
    return as_tensor(values).double()


def integers(labels: Any, name: str) -> Tensor:
    """Labels as int64; text and fractions are refused."""
    try:
        tensor = as_tensor(labels)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{name} must be class indices",
            received=f"{type(labels).__name__} that holds no numbers",
            expected="whole numbers 0..K-1",
            write="[classes.index(label) for label in labels]",
        ) from error
    if tensor.is_floating_point() and bool((tensor != tensor.round()).any()):
        raise DataError(f"{name} must be class indices", received=f"{tensor.dtype} fractions", expected="whole numbers")
    return tensor.long()


def paired(first: Any, second: Any, names: tuple[str, str]) -> tuple[Tensor, Tensor]:
    """Two float64 tensors of one shape; (n, 1) goes with (n,), but (n, T) is never broadcast against (n,)."""
    one = floats(first)
    two = floats(second).to(one.device)
    if one.numel() == 0 and two.numel() == 0:
        raise DataError("a score needs at least one row", received="0 rows")
    if one.shape == two.shape:
        return one, two
    squeezed = [[size for i, size in enumerate(t.shape) if i == 0 or size != 1] for t in (one, two)]
    if one.dim() == 0 or two.dim() == 0 or squeezed[0] != squeezed[1]:
        raise DataError(
            f"{names[0]} and {names[1]} must have one shape",
            received=f"{tuple(one.shape)} and {tuple(two.shape)}",
            expected="the same rows and the same columns",
        )
    return one.reshape(squeezed[0]), two.reshape(squeezed[0])


def class_probabilities(probabilities: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Probabilities (rows, K), in their own dtype, and labels (rows,); pixels of (n, K, ...) become rows."""
    given, truth = as_tensor(probabilities), integers(labels, "labels")
    truth = truth.to(given.device)
    if given.dim() < 2:
        raise DataError(
            "probabilities must have one column for each class",
            received=f"shape {tuple(given.shape)}",
            expected="(n, K), or (n, K, ...) with labels (n, ...)",
            write="torch.stack((1 - probabilities, probabilities), dim=1) for two classes",
        )
    if truth.shape == (given.shape[0], 1) and given.dim() == 2:
        truth = truth[:, 0]
    if truth.shape != (given.shape[0], *given.shape[2:]):
        raise DataError(
            "probabilities and labels do not belong together",
            received=f"{tuple(given.shape)} and {tuple(truth.shape)}",
            expected=f"labels {(given.shape[0], *given.shape[2:])}",
        )
    classes = given.shape[1]
    if truth.numel() == 0:
        raise DataError("a score needs at least one row", received="0 rows")
    low, high = int(truth.min()), int(truth.max())
    if low < 0 or high >= classes:
        raise DataError(
            "a label lies outside the classes",
            received=f"labels {low}..{high} for {classes} columns of probabilities",
            expected=f"labels 0..{classes - 1}",
        )
    given = given if given.is_floating_point() else given.double()
    flat = given.movedim(1, -1).reshape(-1, classes)
    _check_simplex(flat)
    return flat, truth.reshape(-1)


def _check_simplex(probabilities: Tensor) -> None:
    """Logits passed as probabilities give scores that look like scores; so look once."""
    # Rounding of a softmax in bfloat16 stays below 1e-2 for any usual number of classes.
    tolerance = 1e-3 if probabilities.dtype in (torch.float32, torch.float64) else 5e-2
    sums = probabilities.double().sum(1)
    if bool((probabilities < 0).any()) or bool(((sums - 1).abs() > tolerance).any()):
        row = int(torch.argmax(((sums - 1).abs() > tolerance).long() | (probabilities < 0).any(1).long()))
        smallest = probabilities[row].min().item()
        raise DataError(
            "probabilities must be non-negative and sum to one",
            received=f"row {row} sums to {sums[row].item():g}, its smallest entry is {smallest:g}",
            expected="probabilities over the classes",
            write="torch.softmax(logits, dim=1), or prediction.mean",
        )
