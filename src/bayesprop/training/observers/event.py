"""What an observer is told. It may look, and it may ask to stop; it cannot change the training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

__all__ = ["Event", "Observer", "Stop"]


class Stop:
    """Return this (the class itself) from an observer to end the training after the step or the epoch in the event."""


@dataclass(frozen=True)
class Event:
    """`kind` is "start", "step", "epoch" or "end"; of a sweep also "rung", where settings were compared.

    `epoch` counts from 0 and is the epoch that the event is in; `step` is the number of steps taken. `metrics` are told
    with some epochs (see `report_every`), of the best particle of a population; steps have none, because looking at a
    number makes a device wait. Those of a sweep say which population is trained, and at the start what it will take.

    `posterior()` is what is believed at this moment, by all particles that are in training; of a sweep by the settings
    that `metrics["members"]` numbers, in their order. It copies the weights, so ask for it now and then.
    """

    kind: str
    epoch: int
    epochs: int
    step: int
    steps_per_epoch: int | None
    seconds: float
    metrics: Mapping[str, Any] = field(default_factory=dict)
    posterior: Callable[[], Any] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", MappingProxyType(dict(self.metrics)))


Observer = Callable[[Event], type[Stop] | None]
