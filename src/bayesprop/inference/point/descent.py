"""Descent on one row of weights for each particle: what all point estimates share.

With the gradient g of a method's objective on the full-data scale, a step of any column optimiser moves theta along
-g / N, so that learning rates mean what they mean elsewhere.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.inference.method import Info, Method
from bayesprop.inference.optimizers import ColumnOptimizer, as_optimizer
from bayesprop.inference.schedules import Cosine, Schedule
from bayesprop.inference.starting_point import Start, starting_means
from bayesprop.model import Batch, Model, Place
from bayesprop.posteriors import Delta
from bayesprop.rng import Rng

__all__ = ["AbstractDescent", "PointState", "clip", "state_bytes"]


@dataclass
class PointState:
    """mean (particles, columns), the estimate itself; the optimiser's moments; buffers."""

    mean: Tensor
    moments: dict[str, Tensor]
    buffers: dict[str, Tensor]


def clip(gradient: Tensor, longest: float | None) -> Tensor | None:
    """Shorten the gradient of each particle to at most `longest`, in place; returns the lengths before."""
    if longest is None:
        return None
    norm = gradient.norm(dim=1)
    gradient.mul_((longest / norm.clamp_min(1e-30)).clamp_max(1.0)[:, None])
    return norm


def state_bytes(model: Model, rows: float) -> int:
    """Bytes of so many rows of theta and of one set of buffers."""
    buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers.values())
    return int(rows * model.layout.size * torch.finfo(model.dtype).bits // 8 + buffers)


@dataclass(frozen=True)
class AbstractDescent(Method[PointState]):
    """What point estimates share; a subclass says which gradient is followed.

    Args:
        learning_rate: step size, a number or one for each particle.
        optimizer: "adam", "adamw", "sgd", "momentum", an optimiser of `inference.optimizers` or a class of
            `torch.optim`.
        initial_mean: where the weights start; see `starting_means`.
        schedule: factor on the learning rate as a function of the training's progress; it falls to 0 along a cosine.
        clip_norm: longest gradient of one particle.
    """

    learning_rate: float | Tensor = 3e-3
    optimizer: str | ColumnOptimizer | type[torch.optim.Optimizer] = "adam"
    initial_mean: Start = "fan_in"
    schedule: Schedule = Cosine()
    clip_norm: float | None = None

    per_particle = frozenset({"learning_rate", "schedule"})

    def resolved(self) -> AbstractDescent:
        return dataclasses.replace(self, optimizer=as_optimizer(self.optimizer))

    def __post_init__(self) -> None:
        name = type(self).__name__
        limits = {"learning_rate": self.learning_rate, "clip_norm": 1.0 if self.clip_norm is None else self.clip_norm}
        faults = [
            f"{key} must be positive, got {value}"
            for key, value in limits.items()
            if not bool(torch.as_tensor(value > 0).all())
        ]
        if faults:
            raise ConfigurationError(
                f"{name} cannot work like this: " + "; ".join(faults), write=f"{name}(learning_rate=1e-3)"
            )
        as_optimizer(self.optimizer)

    @abstractmethod
    def gradient(self, model: Model, state: PointState, batch: Batch) -> tuple[Tensor, Tensor]:
        """The log-likelihood of the full data as the batch estimates it, and the gradient that is climbed."""

    def init(self, model: Model, rng: Rng) -> PointState:
        rate = self.learning_rate
        if isinstance(rate, Tensor) and tuple(rate.shape) not in ((), (rng.particles,)):
            raise ConfigurationError(
                "learning_rate: a tensor holds one number for each particle",
                received=f"a tensor of shape {list(rate.shape)}",
                expected=f"a number, or a tensor of shape [{rng.particles}]",
                write=f"fit(..., starts={rate.numel()})  # or learning_rate=1e-3",
            )
        mean = starting_means(model, rng, self.initial_mean)
        moments = as_optimizer(self.optimizer).init({"mean": mean})
        return PointState(mean, moments, model.initial_buffers(rng.particles))

    def numbers(self, place: Place, step: int | Tensor) -> tuple[Any, ...]:
        """The learning rate."""
        return (self.learning_rate * self.schedule(place.progress),)

    def update(self, model: Model, state: PointState, batch: Batch, rng: Rng) -> tuple[PointState, Info]:
        (rate,) = self.numbers(batch, rng.step) if batch.numbers is None else batch.numbers
        value, gradient = self.gradient(model, state, batch)
        gradient.mul_(-1.0 / batch.num_data)
        norm = clip(gradient, self.clip_norm)
        optimizer = as_optimizer(self.optimizer)
        optimizer.step({"mean": state.mean}, {"mean": gradient}, state.moments, {"mean": rate}, rng.step)
        return state, Info(value, norm)

    def posterior(self, model: Model, state: PointState) -> Delta:
        buffers = {name: buffer.clone() for name, buffer in state.buffers.items()}
        return Delta(model, state.mean.clone(), buffers)

    def memory(self, model: Model, particles: int, rows: int) -> int:
        """Bytes of the weights, their gradient, the optimiser's moments and the buffers."""
        kept = as_optimizer(self.optimizer).init({"mean": torch.zeros(1, 1)})
        moments = sum(moment.dim() == 2 for moment in kept.values())  # and not counters of steps
        return particles * state_bytes(model, 2 + moments)
