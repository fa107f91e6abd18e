"""A whole sweep in one file: what every setting has done so far, and the population in flight.

The file is written and read as checkpoints of `fit` are. Resuming a sweep of another grid, model or data is refused.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from bayesprop import storage
from bayesprop.errors import CheckpointError
from bayesprop.inference.method import load_tensors, state_tensors
from bayesprop.layout import Layout
from bayesprop.training.checkpoint import Progress, refuse_another_run
from bayesprop.training.sweeping.members import Member, Score

__all__ = ["Place", "load", "load_flight", "save"]


@dataclass
class Place:
    """Where a sweep is: the rung, and the numbers of the settings in each population of it that is still to train.

    `flight` is the state of the first of those in the middle of its training, as a file held it.
    """

    rung: int = 0
    waves: list[list[int]] = field(default_factory=list)
    seconds: float = 0.0
    flight: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)


def save(
    path: str | os.PathLike[str],
    run: Mapping[str, Any],
    place: Place,
    members: Sequence[Member],
    now: Progress | None,
) -> None:
    """Write everything; `now` is the population in flight, whose members' own rows are older."""
    tensors: dict[str, Tensor] = {}
    rows = []
    for member in members:
        tensors |= {f"member.{member.number}.{name}": tensor for name, tensor in member.state.items()}
        scores = [asdict(score) for score in member.scores]
        rows.append({"scores": scores, "steps": member.steps, "fate": member.fate})
    flight: dict[str, Any] = {}
    if now is not None:
        tensors |= {f"flight.{name}": tensor for name, tensor in state_tensors(now.state).items()}
        tensors |= {"total": now.total, "first_bad": now.first_bad}
        flight = {"epoch": now.epoch, "index": now.index, "step": now.step}
    document = {
        "kind": "sweep",
        "run": run,
        "members": rows,
        "place": {"rung": place.rung, "waves": place.waves, "seconds": place.seconds, "flight": flight},
    }
    # JSON has no infinity; a score that is none is written as its name.
    storage.write(path, _named(document), tensors)


def _named(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, Mapping):
        return {key: _named(item) for key, item in value.items()}
    return [_named(item) for item in value] if isinstance(value, list | tuple) else value


def _number(value: Any) -> float:
    return float(value["float"] if isinstance(value, Mapping) else value)


def load(path: str | os.PathLike[str], run: Mapping[str, Any], members: Sequence[Member], layout: Layout) -> Place:
    """Put a file's contents into members that have not been trained; returns the place."""
    document, tensors = storage.read(path)
    if document.get("kind") != "sweep":
        raise CheckpointError(
            f"{path} holds no sweep",
            received=f"a file of kind {document.get('kind')!r}",
            expected="a checkpoint that bp.sweep has written",
            write=f'bp.sweep(..., checkpoint="{Path(path).with_suffix(".sweep")}")',
        )
    refuse_another_run(path, document["run"], dict(_named(run)), layout)
    for member, row in zip(members, document["members"], strict=True):
        member.scores = [
            Score(one["epoch"], one["steps"], _number(one["nll"]), _number(one["error"])) for one in row["scores"]
        ]
        member.steps, member.fate = row["steps"], row["fate"]
        prefix = f"member.{member.number}."
        member.state = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
    place = document["place"]
    flying = {name: t for name, t in tensors.items() if not name.startswith("member.")}
    return Place(place["rung"], place["waves"], place["seconds"], place["flight"], flying)


def load_flight(path: str | os.PathLike[str], place: Place, now: Progress) -> None:
    """Put the population in flight into a freshly made one, in place."""
    state = {name.removeprefix("flight."): t for name, t in place.tensors.items() if name.startswith("flight.")}
    load_tensors(now.state, state, source=str(path))
    now.total.copy_(place.tensors["total"])
    now.first_bad.copy_(place.tensors["first_bad"])
    now.epoch, now.index, now.step = (place.flight[name] for name in ("epoch", "index", "step"))
    place.flight, place.tensors = {}, {}
