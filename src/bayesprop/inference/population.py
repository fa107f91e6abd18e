"""One method for many particles, each with settings of its own.

Methods of the same structure (`structure` says which that are) differ in fields that their class names in
`per_particle`. Numbers among those become a tensor with one for each particle; functions of the place in the training,
such as schedules, become one that returns such a tensor. A particle then takes the steps that it would take alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.inference.method import Method

__all__ = ["Several", "fingerprint", "structure", "together"]


@dataclass(frozen=True)
class Several:
    """A function of the place in the training for each particle: number `which[p]` of `functions` for particle p."""

    functions: tuple[Callable[..., float], ...]
    which: Tensor

    def __call__(self, *place: Any) -> Tensor:
        return torch.tensor([float(function(*place)) for function in self.functions], dtype=torch.float64)[self.which]


def fingerprint(value: Any) -> Hashable:
    """Something hashable that is equal for equal settings: dataclasses by their fields, tensors by their values,
    functions by identity."""
    if isinstance(value, Tensor):
        return str(value.dtype), tuple(value.shape), tuple(value.flatten().tolist())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((f.name, fingerprint(getattr(value, f.name))) for f in dataclasses.fields(value))
        return type(value), tuple(fields)
    if isinstance(value, Mapping):
        return "mapping", tuple((str(key), fingerprint(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return "sequence", tuple(fingerprint(item) for item in value)
    if isinstance(value, Hashable):
        return type(value), value
    return type(value), id(value)


def structure(method: Method) -> Hashable:
    """What two methods must have in common for `together`; equal objects if they do."""
    method = method.resolved()
    parts: list[tuple[str, Hashable]] = []
    for field in dataclasses.fields(method):  # type: ignore[arg-type]
        value = getattr(method, field.name)
        parts.append((field.name, _kind(value) if field.name in method.per_particle else fingerprint(value)))
    return type(method), tuple(parts)


def _kind(value: Any) -> Hashable:
    if _is_number(value):
        return "a number"
    return "a function" if callable(value) else fingerprint(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def together(methods: Sequence[Method]) -> Method:
    """The method of a population whose particle number i is trained by the i-th of these."""
    kinds = list(dict.fromkeys(structure(method) for method in methods))
    if len(kinds) > 1:
        raise ConfigurationError(
            "methods of one population differ in what each particle may have for itself",
            received=f"{len(kinds)} structures among {len(methods)} methods",
            expected=", ".join(sorted(methods[0].per_particle)) or "equal methods",
            write="a population for each of them",
        )
    if len(methods) == 1:
        return methods[0]
    each = [method.resolved() for method in methods]
    changes: dict[str, Any] = {}
    for name in each[0].per_particle:
        values = [getattr(method, name) for method in each]
        distinct = {fingerprint(value): value for value in values}
        if len(distinct) == 1:
            continue
        if _is_number(values[0]):
            changes[name] = torch.tensor([float(value) for value in values], dtype=torch.float64)
        else:
            places = {key: i for i, key in enumerate(distinct)}
            which = torch.tensor([places[fingerprint(value)] for value in values])
            changes[name] = Several(tuple(distinct.values()), which)
    return dataclasses.replace(each[0], **changes)  # type: ignore[type-var]
