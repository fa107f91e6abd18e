"""What an observer is told. It may look, and it may ask to stop; it cannot change the training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

__all__ = ["Event", "Observer", "Stop"]


class Stop:
    """Return this (the class itself) from an observer to end the training after the current epoch."""


@dataclass(frozen=True)
class Event:
    """`kind` is "start", "step", "epoch" or "end". Numbers are of the best particle of a population."""

    kind: str
    epoch: int
    epochs: int
    step: int
    steps_per_epoch: int | None
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


Observer = Callable[[Event], type[Stop] | None]
