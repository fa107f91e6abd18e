"""Frozen dataclasses to JSON and back: how priors, likelihoods and methods travel inside a file.

Only classes of this library are ever built from a file, by their import path; tensors among the fields are stored next
to the document. Of torch, a file may name classes of optimisers and of distributions. What JSON cannot carry (a user's
own function) is written down by name, and loading asks the user for it.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesprop.errors import CheckpointError

__all__ = ["from_json", "to_json"]

LIBRARY = ("bayesprop",)
CLASSES_OF_TORCH = ("torch.optim", "torch.distributions")


def to_json(value: Any, tensors: dict[str, Tensor], path: str) -> Any:
    """Describe `value`; tensors are put into `tensors` under names that start with `path`."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Tensor):
        while path in tensors:  # the key "a" with a field "b", beside the key "a.b"
            path += "'"
        tensors[path] = value
        return {"tensor": path}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            f.name: to_json(getattr(value, f.name), tensors, f"{path}.{f.name}")
            for f in dataclasses.fields(value)
            if f.init
        }
        return {"type": f"{type(value).__module__}:{type(value).__qualname__}", "fields": fields}
    if isinstance(value, Mapping):
        return {"mapping": [[str(k), to_json(v, tensors, f"{path}.{k}")] for k, v in value.items()]}
    if isinstance(value, tuple | list):
        return {"sequence": [to_json(v, tensors, f"{path}.{i}") for i, v in enumerate(value)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, type) and _inside(value.__module__, CLASSES_OF_TORCH):
        return {"class": f"{value.__module__}:{value.__qualname__}"}
    return {"unknown": getattr(value, "__qualname__", type(value).__qualname__)}


def from_json(document: Any, tensors: Mapping[str, Tensor], *, argument: str = "") -> Any:
    """Build what `to_json` described. `argument` is the name by which a user may pass what cannot be built."""
    if not isinstance(document, Mapping):
        return document
    if "tensor" in document:
        if document["tensor"] not in tensors:
            raise CheckpointError(f"the file describes a tensor {document['tensor']!r} that it does not hold")
        return tensors[document["tensor"]]
    if "type" in document:
        cls = _find(document["type"], allowed=LIBRARY, argument=argument)
        if not dataclasses.is_dataclass(cls):
            raise _no_description(document["type"])
        fields = {k: from_json(v, tensors, argument=argument) for k, v in document["fields"].items()}
        try:
            return cls(**fields)
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"the file describes a {cls.__name__} that cannot be made: {error}") from error
    if "mapping" in document:
        return {k: from_json(v, tensors, argument=argument) for k, v in document["mapping"]}
    if "sequence" in document:
        return tuple(from_json(v, tensors, argument=argument) for v in document["sequence"])
    if "float" in document:
        return float(document["float"])
    if "dtype" in document:
        found = getattr(torch, document["dtype"], None)
        if not isinstance(found, torch.dtype):
            raise _no_description(f"torch.{document['dtype']}")
        return found
    if "class" in document:
        return _find(document["class"], allowed=CLASSES_OF_TORCH, argument=argument)
    raise CheckpointError(
        f"the file refers to a function of yours, {document.get('unknown')!r}, which a file cannot hold",
        write=f"pass it again: {argument or 'argument'}=...",
    )


def _inside(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _no_description(path: str) -> CheckpointError:
    return CheckpointError(f"the file asks for {path!r}, which is no description that a file may hold")


def _find(path: str, *, allowed: tuple[str, ...], argument: str) -> type:
    """A class by its import path, defined in one of the packages `allowed`: a file must not be able to call a function,
    nor to import whatever it likes."""
    module, _, name = path.partition(":")
    if not _inside(module, allowed) or "__main__" in module:
        raise CheckpointError(
            f"the file asks for {path!r}, which is not part of {' or '.join(allowed)}",
            write=f"pass it again: {argument or 'argument'}=...",
        )
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise CheckpointError(
            f"the file asks for {path!r}, which does not exist here",
            expected=f"the version of {allowed[0].split('.')[0]} that wrote the file, or a later one",
        ) from error
    if not isinstance(found, type) or found.__module__ != module:
        raise _no_description(path)
    return found
