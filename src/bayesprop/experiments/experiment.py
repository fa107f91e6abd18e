"""What an experiment is: settings for each scale, a list of parts, and a page made from what the parts found.

A *part* is a piece of work with a name, such as one row of a table with all its seeds. Its result is stored as soon as
it is there, so that a run which is interrupted goes on with the parts that are missing; a training inside of a part
goes on from its own checkpoint (`Bench.checkpoint`). A page is made from records alone: whatever it shows is part of a
result, as plain numbers that JSON can carry.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesprop import storage
from bayesprop.errors import BayespropError, ConfigurationError
from bayesprop.training.observers import Event, Stop

if TYPE_CHECKING:
    from bayesprop.experiments.record import Record
    from bayesprop.report import Section

__all__ = ["SCALES", "Bench", "Experiment", "Part", "Settings", "Unfinished"]

SCALES = ("smoke", "laptop", "paper")


class Unfinished(BayespropError):
    """A part was stopped before its end; what it has is in its checkpoint."""


@dataclass(frozen=True)
class Settings:
    """What all experiments have; a subclass adds its own fields, with values that JSON can carry."""

    seeds: int = 5


@dataclass
class Bench:
    """Where a part works: its own folder, the device, the results of parts before it, and the time that is left.

    `tensors` are what a part leaves to later parts beside its result; `bench.tensors_of("part")` reads them.
    """

    folder: Path
    device: torch.device
    results: Mapping[str, Mapping[str, Any]]
    root: Path
    progress: bool = False
    ends: float | None = None
    tensors: dict[str, Tensor] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Path:
        """Of the part's training, for `checkpoint=` of `fit` and `sweep`; a second training takes `folder / "x"`."""
        return self.folder / "training.checkpoint"

    @property
    def late(self) -> bool:
        """Whether the minutes that were given are over."""
        return self.ends is not None and time.monotonic() > self.ends

    def watch(self, event: Event) -> type[Stop] | None:
        """An observer for `fit` and `sweep` that stops when the time is over."""
        return Stop if event.kind in ("step", "epoch") and self.late else None

    def tensors_of(self, part: str) -> dict[str, Tensor]:
        """What another part, one of `Part.needs`, left in its `tensors`."""
        return storage.read(tensors_path(self.root, part))[1]


@dataclass(frozen=True)
class Part:
    """One piece of work. `run` returns numbers, texts, lists and dicts; `needs` names parts that come before.

    A name consists of small letters, digits, dots and dashes: it is the name of files, too.
    """

    name: str
    what: str
    run: Callable[[Bench], dict[str, Any]]
    needs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", self.name):
            raise ConfigurationError(
                "the name of a part is the name of a file, too",
                received=repr(self.name),
                expected="small letters, digits, dots and dashes",
                write='Part("mixture-400", ...)',
            )


@dataclass(frozen=True)
class Experiment:
    """`parts(settings)` are made anew for each run; `page(record)` are the sections of its page.

    `title` is the page's, `shows` one sentence for the list, `sources` who published what it is compared with, and
    `cost` says for each scale how long it takes and on what.
    """

    name: str
    title: str
    shows: str
    sources: tuple[str, ...]
    cost: Mapping[str, str]
    scales: Mapping[str, Settings]
    parts: Callable[[Any], Sequence[Part]]
    page: Callable[[Record], Sequence[Section]]

    def settings(self, scale: str, seeds: int | None = None, changes: Mapping[str, Any] | None = None) -> Settings:
        """Those of a scale, with another number of seeds and other values of fields if these are given."""
        if scale not in self.scales:
            raise ConfigurationError(
                f"{self.name} has no scale {scale!r}",
                expected=", ".join(self.scales),
                write=f"bayesprop reproduce {self.name} --scale {next(iter(self.scales))}",
            )
        found = self.scales[scale]
        changes = dict(changes or {}) | ({} if seeds is None else {"seeds": seeds})
        for name, value in changes.items():
            kind = type(getattr(found, name, None))
            value = float(value) if kind is float and type(value) is int else value
            if kind not in (int, float, str, tuple) or not isinstance(value, list if kind is tuple else kind):
                plain = [f.name for f in fields(found) if type(getattr(found, f.name)) in (int, float, str, tuple)]
                raise ConfigurationError(
                    f"{self.name} has no setting {name!r} with such a value",
                    received=f"{value!r}",
                    expected=", ".join(f"{field}={getattr(found, field)}" for field in plain),
                    write="--set epochs=100",
                )
            changes[name] = tuple(value) if isinstance(value, list) else value
        found = replace(found, **changes)
        if found.seeds < 1:
            raise ConfigurationError("an experiment needs at least one seed", received=f"seeds={found.seeds}")
        return found


def tensors_path(root: Path, part: str) -> Path:
    """Where the tensors of a part lie in the folder of a run."""
    return root / f"{part}.tensors"
