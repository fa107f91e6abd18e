"""Taking the steps of an epoch: one after the other, or many at a time from a captured graph.

`epoch` of a stepper takes steps until the epoch is over and yields after each run of them, so that the loop in `fit`
can look at the clock, at observers and at Ctrl-C. What was taken stands in `Progress`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

from bayesprop import rng
from bayesprop.inference.method import Method
from bayesprop.kernels.device import tf32_products
from bayesprop.model import Batch, Model
from bayesprop.training.checkpoint import Progress
from bayesprop.training.source import Source

__all__ = ["OneByOne", "Stepper", "precision"]

Precision = Callable[[], contextlib.AbstractContextManager[Any]]


def precision(device: torch.device, autocast: torch.dtype | None, tf32: bool) -> Precision:
    """The context in which steps multiply: autocast for the forward pass, TF32 on a GPU. Torch's own setting is put
    back behind each step."""

    @contextlib.contextmanager
    def context() -> Iterator[None]:
        forward = torch.autocast(device.type, autocast) if autocast is not None else contextlib.nullcontext()
        with tf32_products(device, tf32), forward:
            yield

    return context if device.type == "cuda" or autocast is not None else contextlib.nullcontext


class Stepper(Protocol):
    """`description` says in one sentence how steps are taken, and why."""

    description: str

    def epoch(self, now: Progress) -> Iterator[None]: ...


class OneByOne:
    """One step after the other: the plain path, for every method, network and source."""

    def __init__(
        self, model: Model, method: Method, source: Source, seeds: rng.Rng, precision: Precision, reason: str
    ) -> None:
        self.model, self.method, self.source, self.seeds, self.precision = model, method, source, seeds, precision
        self.description = reason

    def epoch(self, now: Progress) -> Iterator[None]:
        model = self.model
        place: list[tuple[Batch, rng.Rng]] = []  # of the next step
        steps = self.method.run(model, now.state, iter(place.pop, None))
        for batch in self.source.epoch(now.epoch, now.index):
            model.set_mode(True)
            step = self.seeds.at(now.step)
            place.append((batch, step))
            guard = (
                rng.quarantine(step.integer(rng.Stream.GLOBAL), model.device)
                if model.draws_globally
                else contextlib.nullcontext()
            )
            with guard, self.precision():
                now.state, info = next(steps)
            value = info.log_likelihood.detach()
            now.total += value
            now.first_bad = torch.where(torch.isfinite(value), now.first_bad, now.first_bad.clamp(max=now.step))
            now.step, now.index = now.step + 1, now.index + 1
            yield
