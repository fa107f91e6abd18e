"""Everything that a training needs to go on as if nothing had happened, in one file.

The file holds the state with the optimiser's moments, the place (epoch, batch, step), the sums of the epoch in flight,
the best state for early stopping, the history, and a description of the run. Resuming a run with another description
is refused: it would be neither the old run nor a new one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesprop import specification, storage
from bayesprop.data import Data, Stream
from bayesprop.errors import CheckpointError
from bayesprop.inference.method import Method, load_tensors, state_tensors
from bayesprop.layout import Layout
from bayesprop.model import Model
from bayesprop.posteriors.files import describe_fixed, layout_differences, padding_rows

__all__ = ["Progress", "describe_run", "load", "refuse_another_run", "save"]


@dataclass
class Progress:
    """Where a training is. `total` sums the log-likelihood estimates of the epoch in flight, `first_bad` is the first
    step whose value was not finite (2^62 if none); both stay on the device until somebody looks."""

    state: Any
    total: Tensor
    first_bad: Tensor
    epoch: int = 0
    index: int = 0
    step: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    best_score: float = float("inf")
    best_epoch: int = -1
    best: dict[str, Tensor] = field(default_factory=dict)


def describe_run(model: Model, method: Method, data: Data | Stream, **settings: Any) -> dict[str, Any]:
    """What must be equal for a resumed run to be the same run."""
    tensors: dict[str, Tensor] = {}
    return {
        "layout": model.layout.to_json(),
        "prior": specification.to_json(model.prior, tensors, "prior"),
        "likelihood": specification.to_json(model.likelihood, tensors, "likelihood"),
        "method": specification.to_json(method, tensors, "method"),
        "tensors of prior, likelihood and method": storage.digest("", tensors),
        "fixed parameters": describe_fixed(model),
        "padding rows": storage.digest("", padding_rows(model)),
        "num_data": data.num_data,
        **settings,
    }


def _differences(stored: Any, now: Any, path: str) -> list[str]:
    """What differs between two descriptions, down to the single argument."""
    if stored == now:
        return []
    if not isinstance(stored, Mapping) or not isinstance(now, Mapping) or stored.get("type") != now.get("type"):
        return [f"{path}: {_shown(stored)} in the file, {_shown(now)} now"]
    lines = []
    for key in dict.fromkeys((*stored, *now)):
        # "fields" and its like are words of the description, not of the user.
        inner = path if key in ("fields", "mapping", "sequence") else f"{path}.{key}" if path else key
        lines += _differences(stored.get(key), now.get(key), inner)
    return lines


def _shown(value: Any) -> str:
    """A class by its name, anything else as it is."""
    return str(value["type"]).rpartition(":")[2] if isinstance(value, Mapping) and "type" in value else repr(value)


def refuse_another_run(
    path: str | os.PathLike[str], stored: Mapping[str, Any], run: Mapping[str, Any], layout: Layout
) -> None:
    """Refuse a file whose run is described in other words than this one."""
    differences = layout_differences(layout, stored["layout"])
    differences += _differences({**stored, "layout": None}, {**run, "layout": None}, "")
    if differences:
        raise CheckpointError(
            f"{path} belongs to another run",
            received="; ".join(differences[:8]),
            expected="the same network, prior, method and settings",
            write='checkpoint="another/path"',
        )


def save(path: str | os.PathLike[str], progress: Progress, run: dict[str, Any]) -> Path:
    """Write a checkpoint; the caller has made sure that the state is finite."""
    tensors = {f"state.{n}": t for n, t in state_tensors(progress.state).items()}
    tensors |= {f"best.{n}": t for n, t in progress.best.items()}
    tensors |= {"total": progress.total, "first_bad": progress.first_bad}
    document = {
        "kind": "training",
        "run": run,
        "place": {name: getattr(progress, name) for name in ("epoch", "index", "step", "history", "best_epoch")},
        "best_score": repr(progress.best_score),
        "torch": torch.__version__,
    }
    return storage.write(path, document, tensors)


def load(path: str | os.PathLike[str], progress: Progress, run: dict[str, Any], layout: Layout) -> None:
    """Put a checkpoint's contents into a freshly started training, in place."""
    document, tensors = storage.read(path)
    if document.get("kind") != "training":
        raise CheckpointError(
            f"{path} holds no training",
            received=f"a file of kind {document.get('kind')!r}",
            expected="a checkpoint",
            write=f'bp.load("{path}", network=...)  # if it is a posterior',
        )
    refuse_another_run(path, document["run"], run, layout)
    state = {n.removeprefix("state."): t for n, t in tensors.items() if n.startswith("state.")}
    load_tensors(progress.state, state, source=str(path))
    progress.best = {
        n.removeprefix("best."): t.to(progress.total.device) for n, t in tensors.items() if n.startswith("best.")
    }
    progress.total.copy_(tensors["total"])
    progress.first_bad.copy_(tensors["first_bad"])
    for name, value in document["place"].items():
        setattr(progress, name, value)
    progress.best_score = float(document["best_score"])
