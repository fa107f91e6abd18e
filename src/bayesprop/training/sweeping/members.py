"""One setting of a sweep: what it is trained with, how it has done so far, and what became of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from bayesprop.inference.method import state_tensors
from bayesprop.posteriors import Posterior
from bayesprop.training.sweeping.addresses import Setup, shown

__all__ = ["Member", "Score", "fill", "park"]


@dataclass(frozen=True)
class Score:
    """On validation data after so many epochs: nats per example, and the error rate (RMSE for quantities)."""

    epoch: int
    steps: int
    nll: float
    error: float


@dataclass
class Member:
    """`fate` is empty while the setting is in the race, and says in words why it left it.

    `state` are its rows of the training's state, on the CPU, while others are trained; a winner has a `posterior`.
    """

    number: int
    values: Mapping[str, Any]
    setup: Setup
    scores: list[Score] = field(default_factory=list)
    steps: int = 0
    fate: str = ""
    state: dict[str, Tensor] = field(default_factory=dict)
    posterior: Posterior | None = None

    @property
    def alive(self) -> bool:
        return not self.fate

    @property
    def particles(self) -> int:
        """Rows of the state: one, unless the method trains several particles together."""
        return self.setup.method.population

    def last(self, by: str) -> float:
        """The newest score, infinite where there is none."""
        return float(getattr(self.scores[-1], by)) if self.scores else math.inf

    def drop(self, fate: str) -> None:
        """Out of the race; what it held is given back."""
        self.fate, self.state, self.posterior = fate, {}, None

    def describe(self) -> str:
        """For people: number 3 (learning_rate = 0.001)."""
        return f"number {self.number} ({', '.join(f'{key} = {shown(value)}' for key, value in self.values.items())})"


def park(members: Sequence[Member], state: Any) -> None:
    """Give each member its rows of a population's state."""
    tensors = state_tensors(state)
    start = 0
    for member in members:
        stop = start + member.particles
        member.state = {
            name: (tensor[start:stop] if tensor.dim() else tensor).detach().to("cpu", copy=True)
            for name, tensor in tensors.items()
        }
        start = stop


def fill(members: Sequence[Member], state: Any) -> None:
    """The inverse of `park`: put the members' rows into a population's state, in place."""
    start = 0
    tensors = state_tensors(state)
    for member in members:
        stop = start + member.particles
        for name, row in member.state.items():
            (tensors[name][start:stop] if tensors[name].dim() else tensors[name]).copy_(row)
        start = stop
