"""Training with multiplicative noise: what the methods of the dropout family share.

Every one of them moves a row of weights theta and, if its noise is learnt, the numbers that say how much of it there is
(`strength`), along the gradient of

    loss = [ -(N / n) sum_rows E log p(y | x, w) + T k(progress) penalty(theta, strength) ] / N                     (1)

in which w is theta with noise, drawn anew in each step, and the penalty is KL(q || prior) up to a constant. k rises
from 0 to 1 over the first `warmup` of the training: a penalty that is there from the start drops everything before the
data have spoken.
"""

from __future__ import annotations

import contextlib
import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesprop.errors import ConfigurationError
from bayesprop.inference.method import Info, Method, check_particles
from bayesprop.inference.optimizers import ColumnOptimizer, as_optimizer
from bayesprop.inference.schedules import Cosine, Schedule
from bayesprop.inference.starting_point import Start, starting_means
from bayesprop.model import Batch, Model, Place
from bayesprop.random_weights import NoiseSource, dropout_modules, elsewhere, silent
from bayesprop.rng import Rng

__all__ = ["AbstractDropout", "DropoutState", "Noisy", "check_samples", "noisy_log_likelihood"]

# Weights of one network, the strength of its noise and its source of noise: the weights with noise.
Noisy = Callable[[dict[str, Tensor], Tensor, NoiseSource], Mapping[str, Tensor]]


@dataclass
class DropoutState:
    """mean (particles, columns); strength (particles, A) of the noise; the optimiser's moments; buffers."""

    mean: Tensor
    strength: Tensor
    moments: dict[str, Tensor]
    buffers: dict[str, Tensor]


def check_samples(samples: int) -> list[str]:
    """What is wrong with a number of samples, in words."""
    right = isinstance(samples, int) and not isinstance(samples, bool) and samples >= 1
    return [] if right else [f"samples is a whole number of at least 1, got {samples!r}"]


def noisy_log_likelihood(
    model: Model,
    mean: Tensor,
    strength: Tensor,
    buffers: dict[str, Tensor],
    batch: Batch,
    rng: Rng,
    *,
    samples: int,
    noisy: Noisy,
    surroundings: Callable[[NoiseSource], contextlib.AbstractContextManager[None]] | None = None,
) -> Tensor:
    """Mean over `samples` of log p(batch | w), (particles,), with gradients for mean and strength.

    `noisy` puts noise into weights. `surroundings` is the context in which a network runs, made from its noise; by
    default one in which dropout layers of its own are off.
    """

    drops, nothing = bool(dropout_modules(model.network) or elsewhere(model.network)), contextlib.nullcontext()

    def lane(
        weights: dict[str, Tensor],
        latents: Any,
        own: dict[str, Tensor],
        strengths: Tensor,
        key: Tensor,
        inputs: Any,
        targets: Tensor,
    ) -> Tensor:
        source = NoiseSource(key, rng.step)
        with surroundings(source) if surroundings is not None else silent(model.network) if drops else nothing:
            return model.batch_log_likelihood(noisy(weights, strengths, source), latents, own, inputs, targets)

    theta = mean[:, None].expand(-1, samples, -1)
    copies = model.spread_buffers(buffers, samples)
    each = (model.weights(theta), model.latent_values(theta), copies, strength)
    arguments = (*each, rng.keys(samples), batch.inputs, batch.targets)
    value = model.over_lanes(lane, arguments, ("PS", "PS", "PS", "P", "PS", "P", "P"), mean.shape[0], samples)
    model.gather_buffers(buffers, copies)
    return value.mean(1)


@dataclass(frozen=True)
class AbstractDropout(Method[DropoutState]):
    """What the family shares; a subclass says what the noise is and what it costs.

    Args:
        learning_rate: step size, a number or one for each particle; `strength_learning_rate` is that of learnt noise
            (None: the same).
        optimizer: "adam", "adamw", "sgd", "momentum", an optimiser of `inference.optimizers` or a class of
            `torch.optim`.
        initial_mean: where the weights start; see `starting_means`.
        schedule: factor on the learning rates as a function of the training's progress; it falls to 0 along a cosine.
        clip_norm: longest gradient of one particle's weights.
        warmup: share of the training over which the penalty comes in.
        temperature: T of equation (1) of `dropout.descent`.
    """

    learning_rate: float | Tensor = 3e-3
    strength_learning_rate: float | Tensor | None = None
    optimizer: str | ColumnOptimizer | type[torch.optim.Optimizer] = "adam"
    initial_mean: Start = "fan_in"
    schedule: Schedule = Cosine()
    clip_norm: float | None = None
    warmup: float = 0.0
    temperature: float | Tensor = 1.0

    learns: ClassVar[bool] = True
    per_particle = frozenset({"learning_rate", "strength_learning_rate", "schedule", "temperature"})

    def resolved(self) -> AbstractDropout:
        return dataclasses.replace(self, optimizer=as_optimizer(self.optimizer))

    def faults(self) -> list[str]:
        """What is wrong with the settings, in words."""
        limits = {
            "learning_rate": self.learning_rate,
            "strength_learning_rate": 1.0 if self.strength_learning_rate is None else self.strength_learning_rate,
            "clip_norm": 1.0 if self.clip_norm is None else self.clip_norm,
        }
        found = [
            f"{key} must be positive, got {value}"
            for key, value in limits.items()
            if not bool(torch.as_tensor(value > 0).all())
        ]
        if not 0.0 <= self.warmup <= 1.0:
            found.append(f"warmup is a share of the training, got {self.warmup}")
        if not bool(torch.as_tensor(self.temperature >= 0).all()):
            found.append(f"temperature must not be negative, got {self.temperature}")
        return found

    def __post_init__(self) -> None:
        name, found = type(self).__name__, self.faults()
        if found:
            raise ConfigurationError(
                f"{name} cannot work like this: " + "; ".join(found), write=f"{name}(learning_rate=1e-3)"
            )
        as_optimizer(self.optimizer)

    # -- what a subclass says -----------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def noises(self) -> int:
        """How many noises a step draws."""

    @abstractmethod
    def starting_strength(self, model: Model, rng: Rng) -> Tensor:
        """The strength (particles, A) to start from; where `learns` is False, to stay with."""

    @abstractmethod
    def log_likelihood(
        self, model: Model, mean: Tensor, strength: Tensor, buffers: dict[str, Tensor], batch: Batch, rng: Rng
    ) -> Tensor:
        """E log p(batch | w) as some noises estimate it, (particles,), differentiable."""

    @abstractmethod
    def penalty(self, model: Model, mean: Tensor, strength: Tensor) -> Tensor:
        """KL(q || prior) up to a constant, (particles,), differentiable."""

    def penalty_gradients(self, model: Model, mean: Tensor, strength: Tensor) -> dict[str, Tensor]:
        """The gradients of `penalty` by what descent moves; by autograd, unless a subclass knows a closed form."""
        leaves = {"mean": mean.detach().requires_grad_(True)}
        if self.learns:
            leaves["strength"] = strength.detach().requires_grad_(True)
        with torch.enable_grad():
            value = self.penalty(model, leaves["mean"], leaves.get("strength", strength))
            found = torch.autograd.grad(value.sum(), list(leaves.values()), materialize_grads=True)
        return dict(zip(leaves, found, strict=True))

    # -- the functions of a method ------------------------------------------------------------------------------------

    def init(self, model: Model, rng: Rng) -> DropoutState:
        check_particles(self, rng.particles)
        mean, strength = starting_means(model, rng, self.initial_mean), self.starting_strength(model, rng)
        state = DropoutState(mean, strength.to(mean), {}, model.initial_buffers(rng.particles))
        state.moments = as_optimizer(self.optimizer).init(self.moving(state))
        return state

    def moving(self, state: DropoutState) -> dict[str, Tensor]:
        """What descent moves."""
        return {"mean": state.mean, "strength": state.strength} if self.learns else {"mean": state.mean}

    def numbers(self, place: Place, step: int | Tensor) -> tuple[Any, ...]:
        """Learning rates of weights and noise, and the weight of the penalty."""
        factor = self.schedule(place.progress)
        other = self.learning_rate if self.strength_learning_rate is None else self.strength_learning_rate
        weight = min(1.0, place.progress / self.warmup) if self.warmup > 0.0 else 1.0
        return self.learning_rate * factor, other * factor, self.temperature * weight

    def update(self, model: Model, state: DropoutState, batch: Batch, rng: Rng) -> tuple[DropoutState, Info]:
        rate, other, weight = self.numbers(batch, rng.step) if batch.numbers is None else batch.numbers
        value, gradients = self.gradients(model, state, batch, rng, weight)
        norm = None
        if self.clip_norm is not None:
            norm = gradients["mean"].norm(dim=1)
            gradients["mean"].mul_((self.clip_norm / norm.clamp_min(1e-30)).clamp_max(1.0)[:, None])
        rates = {"mean": rate, "strength": other}
        as_optimizer(self.optimizer).step(self.moving(state), gradients, state.moments, rates, rng.step)
        return state, Info(value, norm)

    def gradients(
        self, model: Model, state: DropoutState, batch: Batch, rng: Rng, weight: float | Tensor = 1.0
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The log-likelihood of the full data as the batch estimates it, and the gradients of equation (1)."""
        leaves = {name: tensor.detach().requires_grad_(True) for name, tensor in self.moving(state).items()}
        with torch.enable_grad():
            value = self.log_likelihood(
                model, leaves["mean"], leaves.get("strength", state.strength), state.buffers, batch, rng
            )
            found = torch.autograd.grad(value.sum(), list(leaves.values()), materialize_grads=True)
        penalties = self.penalty_gradients(model, state.mean, state.strength)
        share = weight.to(state.mean).reshape(-1, 1) if isinstance(weight, Tensor) else weight
        by_name = {
            name: penalties[name].mul_(share / batch.num_data).sub_(gradient, alpha=1.0 / batch.rows)
            for name, gradient in zip(leaves, found, strict=True)
        }
        return value.detach() * (batch.num_data / batch.rows), by_name

    def memory(self, model: Model, particles: int, rows: int) -> int:
        """Bytes of weights and noise, the optimiser's moments, the weights with noise and their gradients; buffers."""
        size = torch.finfo(model.dtype).bits // 8
        kept = as_optimizer(self.optimizer).init({"mean": torch.zeros(1, 1)})
        moments = sum(moment.dim() == 2 for moment in kept.values())  # and not counters of steps
        learnt = self.starting_strength(model, Rng.create(0)).numel()
        state = model.layout.size * (1 + moments) + learnt * (1 + moments * self.learns)
        buffers = sum(pytree.tree_map(lambda b: b.numel() * b.element_size(), list(model.buffers.values())))
        return int(particles * (size * (state + 2 * self.noises * model.layout.size) + buffers))
