"""A grid becomes a list of settings: the product of a dict of lists, or a list of dicts as it is."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.inference.population import fingerprint

__all__ = ["settings_of"]

EXAMPLE = 'bp.sweep(model, data, method, {"learning_rate": [1e-3, 1e-2]}, validation=0.1)'


def settings_of(grid: Any) -> list[dict[str, Any]]:
    """Every setting of a grid, in its order: the last key of a dict runs fastest."""
    if isinstance(grid, Mapping):
        values = {_key(key): _values(key, listed) for key, listed in grid.items()}
        found = [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())] if values else []
    elif isinstance(grid, Sequence) and not isinstance(grid, str) and all(isinstance(one, Mapping) for one in grid):
        found = [{_key(key): _plain(value) for key, value in one.items()} for one in grid]
    else:
        raise ConfigurationError(
            "sweep: a grid is a dict of lists, whose product is taken, or a list of dicts",
            received=f"a {type(grid).__name__}" + (f": {grid!r}" if grid is None else ""),
            expected="settings by name",
            write=EXAMPLE,
        )
    if not found:
        raise ConfigurationError("sweep: the grid is empty", received=repr(grid), write=EXAMPLE)
    _refuse_repetition(found)
    return found


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise ConfigurationError("sweep: settings have names", received=repr(key), write=EXAMPLE)
    return key


def _values(key: str, listed: Any) -> list[Any]:
    if isinstance(listed, Tensor | np.ndarray) and listed.ndim == 1:
        listed = listed.tolist()
    if isinstance(listed, range):
        listed = list(listed)
    if not isinstance(listed, list | tuple):
        raise ConfigurationError(
            f"sweep: the values of {key} are a list",
            received=repr(listed),
            expected="a list of the values to try, also if it is one",
            write=f'{{"{key}": [{listed!r}]}}',
        )
    if not listed:
        raise ConfigurationError(f"sweep: there are no values of {key}", received="[]", write=EXAMPLE)
    return [_plain(value) for value in listed]


def _plain(value: Any) -> Any:
    """Numbers of numpy and tensors of one number as numbers of Python."""
    if isinstance(value, np.generic) or (isinstance(value, Tensor) and value.dim() == 0):
        return value.item()
    return value


def _refuse_repetition(settings: Sequence[Mapping[str, Any]]) -> None:
    seen: dict[Any, int] = {}
    for number, setting in enumerate(settings):
        key = tuple(sorted((name, repr(fingerprint(value))) for name, value in setting.items()))
        if key in seen:
            raise ConfigurationError(
                "sweep: a setting is there twice",
                received=f"numbers {seen[key]} and {number} are both {dict(setting)}",
                expected="settings that differ; runs that differ in their noise alone have other seeds",
                write='{"seed": [0, 1], ...}',
            )
        seen[key] = number
