"""What all stochastic-gradient samplers share: the scale of a step, burn-in, and the samples that are kept.

The target is exp(-U / T) with U = -log p(theta, D), the log joint on the scale of the full data, and temperature T
(1: the posterior). A learning rate r stands for a step of size

    epsilon = 2 r / N                                                                                          (1)

in the convention theta <- theta - (epsilon / 2) grad U + N(0, epsilon T), which is descent on U / N with rate r, plus
noise of variance 2 r T / N: rates mean what they mean elsewhere and need not be tuned again when there are more data.

Gradients of minibatches add noise of their own, which is not corrected for; it vanishes with the step. Columns that
are point estimates get no noise. Chains are particles: `chains=4` trains four at once.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.inference.collection import (
    Kept,
    check_budget,
    keep,
    kept_bytes,
    kept_samples,
    make_kept,
    place_of,
)
from bayesprop.inference.method import Info, Method
from bayesprop.inference.oracle import joint_gradient
from bayesprop.inference.schedules import Constant, Schedule
from bayesprop.inference.sgmcmc.cyclical import Cyclical
from bayesprop.inference.starting_point import Start, starting_means
from bayesprop.model import Batch, Model, Place
from bayesprop.posteriors import Samples
from bayesprop.rng import Rng, Stream

__all__ = ["AbstractSampler", "ChainState", "Step", "add_product", "add_scaled"]


@dataclass
class ChainState:
    """theta (particles, columns); what a sampler remembers besides; the samples kept so far; buffers."""

    theta: Tensor
    memory: dict[str, Tensor]
    kept: Kept
    buffers: dict[str, Tensor]


@dataclass(frozen=True)
class Step:
    """What a step moves by: the gradient of U / N, the rate r and T / N (numbers, or columns with one for each
    particle), and standard normal noise (0 for point estimates), all (particles, columns)."""

    gradient: Tensor
    rate: Any
    heat: Any
    noise: Tensor
    more: tuple[Any, ...]


@dataclass(frozen=True)
class AbstractSampler(Method[ChainState]):
    """What samplers share; a subclass says how a step moves.

    Args:
        learning_rate: r of equation (1), a number or one for each chain.
        schedule: factor on it as a function of the run's progress, or `Cyclical()`.
        burn_in: share of the run before the first sample; a cyclical schedule says so itself.
        samples: how many are kept of each chain, spread evenly over the rest of the run.
        thinning: least number of steps between two samples; None for what spreads them evenly. If more are taken than
            `samples`, the newest are kept.
        chains: independent chains that run side by side; all are kept.
        temperature: T of the target, a number or one for each chain.
        initial_mean: where chains start; see `starting_means`.
        memory_budget: GiB that the samples may take, with the copy of them that a posterior is.
    """

    learning_rate: float | Tensor = 1e-2
    schedule: Schedule = Constant()
    burn_in: float = 0.5
    samples: int = 100
    thinning: int | None = None
    chains: int = 1
    temperature: float | Tensor = 1.0
    initial_mean: Start = "fan_in"
    memory_budget: float = 2.0

    per_particle = frozenset({"learning_rate", "temperature"})

    def __post_init__(self) -> None:
        name, faults = type(self).__name__, self.faults()
        for key, value in (("learning_rate", self.learning_rate), ("memory_budget", self.memory_budget)):
            if not bool(torch.as_tensor(value > 0).all()):
                faults.append(f"{key} must be positive, got {value}")
        for key, value in (("samples", self.samples), ("thinning", self.thinning or 1), ("chains", self.chains)):
            if value < 1:
                faults.append(f"{key} must be at least 1, got {value}")
        if not 0.0 <= self.burn_in < 1.0:
            faults.append(f"burn_in is a share of the run in [0, 1), got {self.burn_in}")
        if not bool(torch.as_tensor(self.temperature >= 0).all()):
            faults.append(f"temperature must not be negative, got {self.temperature}")
        if faults:
            raise ConfigurationError(f"{name} cannot work like this: " + "; ".join(faults), write=f"{name}(chains=4)")

    @property
    def population(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number of chains."""
        return self.chains

    # -- what a subclass says -----------------------------------------------------------------------------------------

    @abstractmethod
    def move(self, state: ChainState, step: Step) -> None:
        """Take a step, in place."""

    def remembered(self, theta: Tensor) -> dict[str, Tensor]:
        """What the sampler keeps from step to step besides theta, as it is at the start."""
        return {}

    def more_numbers(self, place: Place) -> tuple[Any, ...]:
        """What else a step needs that depends on its place in the run."""
        return ()

    def faults(self) -> list[str]:
        """What is wrong with the settings of the subclass, in words."""
        return []

    # -- burn-in and sampling -----------------------------------------------------------------------------------------

    def sampling(self, progress: float) -> bool:
        """Whether samples are taken at this place of the run."""
        if isinstance(self.schedule, Cyclical):
            return self.schedule.sampling(progress)
        return progress >= self.burn_in

    def share(self, progress: float) -> float:
        """Which part of all sampling is done."""
        if isinstance(self.schedule, Cyclical):
            return self.schedule.share(progress)
        return max(0.0, progress - self.burn_in) / (1.0 - self.burn_in)

    @property
    def portion(self) -> float:
        """How much of the run is sampling."""
        return self.schedule.portion if isinstance(self.schedule, Cyclical) else 1.0 - self.burn_in

    # -- the functions of a method ------------------------------------------------------------------------------------

    def init(self, model: Model, rng: Rng) -> ChainState:
        check_budget(model, rng.particles, self.samples, self.memory_budget, type(self).__name__)
        for name in self.per_particle:
            value = getattr(self, name)
            if isinstance(value, Tensor) and tuple(value.shape) not in ((), (rng.particles,)):
                raise ConfigurationError(
                    f"{name}: a tensor holds one number for each chain",
                    received=f"a tensor of shape {list(value.shape)}",
                    expected=f"a number, or a tensor of shape [{rng.particles}]",
                    write=f"{type(self).__name__}(chains={value.numel()}, {name}=...)",
                )
        theta = starting_means(model, rng, self.initial_mean)
        kept = make_kept(model, rng.particles, self.samples)
        return ChainState(theta, self.remembered(theta), kept, model.initial_buffers(rng.particles))

    def numbers(self, place: Place, step: int | Tensor) -> tuple[Any, ...]:
        """The learning rate, the temperature of the noise, the place for this sample, and what a subclass adds."""
        explores = isinstance(self.schedule, Cyclical) and not self.sampling(place.progress)
        slot = place_of(place, self.share, self.samples, portion=self.portion, thinning=self.thinning)
        rate, heat = self.learning_rate * self.schedule(place.progress), self.temperature * (0.0 if explores else 1.0)
        return rate, heat, slot, *self.more_numbers(place)

    def update(self, model: Model, state: ChainState, batch: Batch, rng: Rng) -> tuple[ChainState, Info]:
        numbers: Any = self.numbers(batch, rng.step) if batch.numbers is None else batch.numbers
        rate, heat, slot, *more = numbers
        value, gradient = joint_gradient(model, state.theta, state.buffers, batch)
        width, size = model.layout.latent, model.layout.size
        noise = rng.normal(width, Stream.WEIGHTS, dtype=state.theta.dtype)[:, 0]
        if size > width:
            noise = torch.nn.functional.pad(noise, (0, size - width))
        rate, heat, *more = (_column(number, state.theta) for number in (rate, heat, *more))
        gradient.mul_(-1.0 / batch.num_data)
        self.move(state, Step(gradient, rate, heat / batch.num_data, noise, tuple(more)))
        keep(state.kept, slot, state.theta, state.buffers)
        return state, Info(value)

    def posterior(self, model: Model, state: ChainState) -> Samples:
        """The samples so far; the weights as they are while there is none."""
        theta, own = kept_samples(state.kept, state.theta, state.buffers)
        buffers = {name: buffer.clone() for name, buffer in state.buffers.items()}
        return Samples(model, theta, buffers, sample_buffers=own)

    def memory(self, model: Model, particles: int, rows: int) -> int:
        """Bytes of the chains, their gradient and noise, what is remembered, and the samples."""
        row = model.layout.size * torch.finfo(model.dtype).bits // 8
        remembered = sum(t.numel() for t in self.remembered(torch.zeros(1, model.layout.size)).values())
        buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers.values())
        own = 3 * row + remembered * torch.finfo(model.dtype).bits // 8 + buffers
        return particles * own + kept_bytes(model, particles, self.samples)


def add_scaled(target: Tensor, direction: Tensor, factor: Any) -> None:
    """target += factor * direction, for a number (one pass) or a column of them."""
    if isinstance(factor, Tensor):
        target.add_(factor * direction)
    else:
        target.add_(direction, alpha=factor)


def add_product(target: Tensor, first: Tensor, second: Tensor, factor: Any) -> None:
    """target += factor * first * second, for a number (one pass) or a column of them."""
    if isinstance(factor, Tensor):
        target.add_(factor * first * second)
    else:
        target.addcmul_(first, second, value=factor)


def _column(number: Any, like: Tensor) -> Any:
    return number.to(like).reshape(-1, 1) if isinstance(number, Tensor) else number
