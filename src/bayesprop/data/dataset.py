"""A torch Dataset read into memory: items (inputs, target) become one tensor each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset, default_collate

from bayesprop import rng
from bayesprop.errors import DataError, MemoryBudgetError

__all__ = ["LARGEST_STACK", "stack"]

LARGEST_STACK = 8 << 30
"""Bytes up to which a Dataset is read into memory at once."""

_PROBES, _READINGS = 4, 4  # a random flip goes unnoticed with probability 1/2 per pair of readings of one item


def stack(dataset: Any) -> tuple[Any, Any]:
    """(inputs, targets) of all items, read in order with a private state of torch's generator."""
    if not hasattr(dataset, "__len__"):
        raise DataError(
            "a Dataset without a length cannot be read into memory",
            received=f"a {type(dataset).__name__}",
            expected="__len__, or a DataLoader",
            write="fit(model, DataLoader(dataset, batch_size=128), ..., num_data=<number of examples>)",
        )
    count = len(dataset)
    if count == 0:
        raise DataError("the data are empty", received=f"a {type(dataset).__name__} of length 0")
    if isinstance(dataset, TensorDataset):
        return _tensors(dataset.tensors)
    with rng.quarantine(0):
        probe = _item(dataset, 0)
        _check_memory(dataset, probe, count)
        _check_repeatable(dataset, count)
    with rng.quarantine(0):
        items = [_item(dataset, i) for i in range(count)]
    inputs = _collate([item[0] for item in items], "inputs")
    targets = [item[1] for item in items]
    return inputs, targets if isinstance(targets[0], str) else _collate(targets, "targets")


def _tensors(tensors: Sequence[Tensor]) -> tuple[Any, Tensor]:
    if len(tensors) < 2:
        raise _unlabelled("a TensorDataset of one tensor")
    *inputs, targets = tensors
    return inputs[0] if len(inputs) == 1 else tuple(inputs), targets


def _unlabelled(received: str) -> DataError:
    return DataError("the items have no targets", received=received, expected="items (inputs, target)")


def _item(dataset: Any, index: int) -> tuple[Any, Any]:
    item = dataset[index]
    if not isinstance(item, tuple | list) or len(item) != 2:
        size = f" of {len(item)}" if isinstance(item, tuple | list | dict) else ""
        raise _unlabelled(f"a {type(item).__name__}{size} for item {index}")
    return item[0], item[1]


def _collate(values: list[Any], name: str) -> Any:
    try:
        return default_collate(values)
    except (RuntimeError, TypeError, KeyError) as error:
        shapes = [tuple(getattr(value, "shape", ())) for value in values]
        odd = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
        received = f"{type(values[0]).__name__} items"
        if odd is not None:
            received = f"shape {shapes[0]} for item 0 and {shapes[odd]} for item {odd}"
        raise DataError(
            f"the {name} of this Dataset cannot be stacked",
            received=received,
            expected="tensors or numbers of one shape; images need a transform that makes tensors",
        ) from error


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


def _check_memory(dataset: Any, probe: tuple[Any, Any], count: int) -> None:
    size = sum(int(getattr(leaf, "nbytes", 8)) for leaf in _leaves(probe))
    if size * count > LARGEST_STACK:
        raise MemoryBudgetError(
            f"this {type(dataset).__name__} is too large to be read into memory",
            received=f"{count} items of about {size} bytes, {size * count / 2**30:.1f} GiB",
            expected=f"at most {LARGEST_STACK / 2**30:.0f} GiB, or a DataLoader",
            write="fit(model, DataLoader(dataset, batch_size=128, shuffle=True), ...)",
        )


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return left.shape == right.shape and torch.equal(torch.nan_to_num(left), torch.nan_to_num(right))
    if isinstance(left, int | float | str):
        return left == right or left != left  # a NaN is the same NaN
    bytes_of = getattr(left, "tobytes", None), getattr(right, "tobytes", None)  # arrays and images
    return bytes_of[0] is None or bytes_of[1] is None or bytes_of[0]() == bytes_of[1]()


def _check_repeatable(dataset: Any, count: int) -> None:
    """Refuse items that change from reading to reading: in memory, one random view of each would be kept for good."""
    for index in range(min(count, _PROBES)):
        once = _leaves(_item(dataset, index))
        for _ in range(_READINGS - 1):
            again = _leaves(_item(dataset, index))
            if len(once) != len(again) or not all(_same(a, b) for a, b in zip(once, again, strict=True)):
                raise DataError(
                    "this Dataset gives another item at each reading",
                    received=f"two different readings of item {index}",
                    expected="a DataLoader, which reads every epoch anew, for random transforms",
                    write="fit(model, DataLoader(dataset, batch_size=128, shuffle=True), ...)",
                )
