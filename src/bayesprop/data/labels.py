"""Class labels of any kind as the integers 0, 1, ..., K - 1, in training and again at prediction time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesprop.data.tensors import to_array, to_tensor
from bayesprop.errors import DataError, did_you_mean

__all__ = ["encode_labels", "find_classes"]


def find_classes(targets: Any) -> list[str] | None:
    """The sorted distinct labels when the targets are text; None when they are numbers already."""
    if isinstance(targets, Tensor):
        return None
    array = to_array(targets, "targets")
    if not _is_text(array):
        return None
    return _distinct(array)


def encode_labels(targets: Any, classes: Sequence[Any] | None) -> Tensor:
    """Targets as a tensor: labels become their position in `classes`, other targets are only converted.

    Integers next to text classes are taken as positions already, so that `classes` can also just give names to integer
    labels. Integers next to integer classes (say 3, 5, 8) are labels and are looked up.
    """
    if classes is None:
        return _numbers(targets)
    known = {_plain(label): position for position, label in enumerate(classes)}
    if len(known) != len(classes):
        raise DataError("a class is listed twice", received=f"classes={_listing(classes)}")
    array = targets.detach().cpu().numpy() if isinstance(targets, Tensor) else to_array(targets, "targets")
    if array.dtype.kind in "iub" and all(isinstance(label, str) for label in known):
        return _positions(_numbers(targets), classes)
    flat = [_plain(label) for label in array.reshape(-1).tolist()]
    codes = np.empty(len(flat), dtype=np.int64)
    for row, label in enumerate(flat):
        position = known.get(label)
        if position is None:
            raise DataError(
                f"{label!r} at row {row} is not one of the classes.{did_you_mean(str(label), map(str, classes))}",
                expected=f"one of {_listing(classes)}",
                write="Data(inputs, targets, classes=[...]) with every class that can occur, when training",
            )
        codes[row] = position
    encoded = torch.from_numpy(codes.reshape(array.shape))
    return encoded.to(targets.device) if isinstance(targets, Tensor) else encoded


def _numbers(targets: Any) -> Tensor:
    """Targets that are numbers; booleans become 0 and 1."""
    if not isinstance(targets, Tensor):
        array = to_array(targets, "targets")
        if _is_text(array):
            raise DataError(
                "the targets are text, and no classes are known",
                received=f"{str(array.reshape(-1)[0])!r} in row 0",
                expected="the classes in their order, or integers",
                write=f"classes={_listing(_distinct(array))}",
            )
    tensor = to_tensor(targets, "targets")
    return tensor.long() if tensor.dtype == torch.bool else tensor


def _positions(targets: Tensor, classes: Sequence[Any]) -> Tensor:
    outside = (targets < 0) | (targets >= len(classes))
    if bool(outside.any()):
        place = torch.nonzero(outside)[0].tolist()
        raise DataError(
            f"a label is outside of the {len(classes)} classes",
            received=f"{targets[tuple(place)].item()} at row {place[0]}",
            expected=f"an integer from 0 to {len(classes) - 1}, or one of {_listing(classes)}",
        )
    return targets.long()


def _is_text(array: np.ndarray) -> bool:
    if array.dtype.kind in "US":
        return array.size > 0
    if array.dtype != object or array.size == 0:
        return False
    text = [isinstance(label, str) for label in array.reshape(-1)]
    if any(text) and not all(text):
        row = text.index(False)
        raise DataError(
            "the labels are partly text",
            received=f"{array.reshape(-1)[row]!r} ({type(array.reshape(-1)[row]).__name__}) at row {row}",
            expected="one kind of label, and no missing ones",
        )
    return all(text)


def _distinct(array: np.ndarray) -> list[str]:
    return sorted({str(_plain(label)) for label in array.reshape(-1)})


def _plain(label: Any) -> Any:
    """A label as Python's own type, so that numpy's 3 and Python's 3 are one class."""
    label = label.item() if isinstance(label, np.generic | Tensor) else label
    return label.decode() if isinstance(label, bytes) else label


def _listing(classes: Sequence[Any]) -> str:
    shown = ", ".join(repr(_plain(label)) for label in list(classes)[:10])
    return f"[{shown}{', ...' if len(classes) > 10 else ''}]"
