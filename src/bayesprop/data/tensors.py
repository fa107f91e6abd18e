"""Whatever a user holds, as tensors: arrays, lists, tables, and dicts or tuples of them.

Values keep their type: float64 stays float64 and integers stay integers, because only the model knows what its network
takes. What cannot become a tensor without a guess (text, dates, mixed columns, sparse matrices) is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from bayesprop.errors import DataError

__all__ = ["Inputs", "check_finite", "column_names", "each", "first", "num_rows", "to_inputs", "to_tensor"]

Inputs = Tensor | dict[str, Tensor] | tuple[Tensor, ...]

# torch has few operations on these, so they move to the next signed type that holds every value.
_WIDER = {"uint16": np.int32, "uint32": np.int64, "uint64": np.int64}


def to_tensor(value: Any, name: str) -> Tensor:
    """A dense tensor without history; `name` is what messages call it."""
    if isinstance(value, Tensor):
        if value.layout != torch.strided:
            raise DataError(f"{name} is a sparse tensor", expected="a dense tensor", write=f"{name}.to_dense()")
        if value.is_meta:
            raise DataError(f"{name} has no values: it is on the meta device", expected="numbers, on a CPU or a GPU")
        return value.detach()
    if isinstance(value, list | tuple) and value and all(isinstance(item, Tensor) for item in value):
        shapes = {tuple(item.shape) for item in value}
        if len(shapes) > 1:
            raise DataError(f"{name} has rows of different shapes", received=", ".join(map(str, sorted(shapes))))
        return torch.stack([item.detach() for item in value])
    tensor = _from_array(to_array(value, name), value, name)
    if isinstance(value, list | tuple) and tensor.is_floating_point() and _is_python_number(value):
        return tensor.to(torch.get_default_dtype())  # Python's floats have no width of their own
    return tensor


def to_array(value: Any, name: str) -> np.ndarray:
    """A numpy array of anything that is not a tensor: pandas-like tables, arrays, nested lists."""
    if hasattr(value, "toarray"):
        raise DataError(f"{name} is a sparse matrix", expected="a dense array", write=f"{name}.toarray()")
    to_numpy = getattr(value, "to_numpy", None)
    if to_numpy is not None:
        return np.asarray(to_numpy())
    try:
        return np.asarray(value)
    except ValueError as error:
        raise DataError(f"{name} has rows of different lengths", expected="a rectangular array") from error


def to_inputs(value: Any) -> Inputs:
    """One tensor, or a dict or tuple of tensors for a network that takes several arguments."""
    if isinstance(value, Mapping):
        if not value:
            raise DataError("the inputs are an empty dict", expected="at least one tensor, by the argument's name")
        return {str(key): to_tensor(item, f"inputs[{key!r}]") for key, item in value.items()}
    if isinstance(value, tuple) and value and all(hasattr(item, "shape") for item in value):
        return tuple(to_tensor(item, f"inputs[{i}]") for i, item in enumerate(value))
    return to_tensor(value, "inputs")


def as_inputs(value: Any) -> Inputs:
    """Inputs to predict at: arrays, tensors, tables, or the inputs of `Data`; finite, with at least one row."""
    if isinstance(value, DataLoader | Dataset):
        loader = isinstance(value, DataLoader)
        raise DataError(
            "there are targets among these inputs",
            received=f"a {type(value).__name__}",
            expected="inputs alone",
            write="torch.cat([inputs for inputs, _ in loader])" if loader else "bp.data.as_data(dataset).inputs",
        )
    inputs = to_inputs(getattr(value, "inputs", value))
    if num_rows(inputs) == 0:
        raise DataError("there is nothing to predict at", received="0 rows", expected="at least one row of inputs")
    check_finite(inputs, columns=column_names(value))
    return inputs


def column_names(value: Any) -> list[str]:
    """The names of a table's columns; empty for anything else."""
    return [str(label) for label in getattr(value, "columns", [])]


def each(inputs: Inputs, function: Callable[[Tensor], Tensor]) -> Inputs:
    """Apply `function` to every tensor and keep the structure."""
    if isinstance(inputs, Tensor):
        return function(inputs)
    if isinstance(inputs, dict):
        return {key: function(tensor) for key, tensor in inputs.items()}
    return tuple(function(tensor) for tensor in inputs)


def named(inputs: Inputs) -> dict[str, Tensor]:
    """Every tensor by the name that messages use."""
    if isinstance(inputs, Tensor):
        return {"inputs": inputs}
    items = inputs.items() if isinstance(inputs, dict) else enumerate(inputs)
    return {f"inputs[{key!r}]": tensor for key, tensor in items}


def first(inputs: Inputs) -> Tensor:
    """The first tensor: all of them share its device and its number of rows."""
    return next(iter(named(inputs).values()))


def num_rows(inputs: Inputs) -> int:
    """The number of rows that all tensors share; a tensor without rows, or with another number, is refused."""
    rows = {}
    for name, tensor in named(inputs).items():
        if tensor.dim() == 0:
            raise DataError(f"{name} is a single number", expected="one row for each example")
        rows[name] = tensor.shape[0]
    if len(set(rows.values())) > 1:
        raise DataError(
            "the inputs have different numbers of rows",
            received=", ".join(f"{name}: {count}" for name, count in rows.items()),
            expected="the same first dimension everywhere",
        )
    return next(iter(rows.values()))


def check_finite(inputs: Inputs, *, columns: list[str] | None = None, where: str = "") -> None:
    """Refuse NaN and infinities, and name the first one by row and column."""
    for name, tensor in named(inputs).items():
        if not (tensor.is_floating_point() or tensor.is_complex()):
            continue
        finite = torch.isfinite(tensor)
        if bool(finite.all()):
            continue
        bad = torch.nonzero(~finite)
        row, *rest = bad[0].tolist()
        place = f"row {row}"
        if len(rest) == 1:
            label = f" ({columns[rest[0]]!r})" if columns and len(columns) == tensor.shape[1] else ""
            place += f", column {rest[0]}{label}"
        elif rest:
            place += f", position {tuple(rest)}"
        raise DataError(
            f"{name} has a value that is not finite{where}",
            received=f"{tensor[tuple(bad[0])].item()} at {place}; {len(bad)} such values in all",
            expected="finite numbers: leave these rows out, or fill the gaps first",
        )


def _is_python_number(value: Any) -> bool:
    """Whether the first leaf of a nested list is one of Python's own numbers."""
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return type(value) in (bool, int, float)


def _from_array(array: np.ndarray, original: Any, name: str) -> Tensor:
    if array.dtype == object:
        array = _numeric(array, original, name)
    if array.dtype.kind not in "biufc":
        kind = {"U": "text", "S": "bytes", "M": "dates", "m": "durations", "V": "records"}.get(array.dtype.kind, "no")
        raise DataError(
            f"{name} has {kind} where numbers are needed",
            received=f"dtype {array.dtype}",
            expected="numbers; encode categories first, for example as integers for torch.nn.Embedding",
        )
    if array.dtype.name in _WIDER:
        array = array.astype(_WIDER[array.dtype.name])
    elif array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    # Memory is shared where torch can share it; it cannot with read-only arrays, foreign byte orders, negative strides.
    array = np.require(array, dtype=array.dtype.newbyteorder("="), requirements=["C", "W"])
    return torch.from_numpy(array)


def _numeric(array: np.ndarray, original: Any, name: str) -> np.ndarray:
    """An array of Python objects as int64 or float64 if all are numbers; otherwise the column at fault is named."""
    flat = array.reshape(-1)
    for i, item in enumerate(flat):
        if not isinstance(item, bool | int | float | np.number | np.bool_):
            position = np.unravel_index(i, array.shape) if array.ndim else ()
            place = f"row {position[0]}" if position else "the value itself"
            if len(position) > 1:
                labels = column_names(original)
                label = f" ({labels[position[1]]!r})" if len(labels) == array.shape[1] else ""
                place += f", column {position[1]}{label}"
            raise DataError(
                f"{name} holds something that is not a number",
                received=f"{str(item)[:60]!r} ({type(item).__name__}) at {place}",
                expected="numbers; encode categories first, and fill or leave out what is missing",
            )
    whole = all(isinstance(item, bool | int | np.integer | np.bool_) for item in flat)
    return array.astype(np.int64 if whole else np.float64)
