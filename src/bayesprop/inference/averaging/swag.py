"""SWAG: the mean and covariance of the weights that stochastic descent passes through near a good optimum.

Training goes on at a constant rate after it has arrived; M snapshots theta_i of that last part give, with their running
means and the deviations of the last K of them,

    mean = (1 / M) sum theta_i,    variance = (1 / M) sum theta_i^2 - mean^2,    d_i = theta_i - mean_i         (1)
    q = N(mean, 1/2 diag(variance) + D D^T / (2 (K - 1)))                                     (paper's equation 1)

The spread of q is that of descent's noise, which is related to the posterior's but not equal to it: it depends on the
learning rate and on the size of the batches, and is too narrow where gradients of batches agree. Point estimates are
averaged and have no spread. Statistics of BatchNorm belong to the weights: a network that has them gets `draws` draws
of q at the end, each with statistics of its own, as its posterior.

With `members` > 1 this is MultiSWAG (Wilson, Izmailov 2020): independent runs side by side, mixed equally.

Reference: Maddox, Izmailov, Garipov, Vetrov, Wilson, "A Simple Baseline for Bayesian Uncertainty in Deep Learning",
NeurIPS 2019.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesprop.errors import BayespropWarning, ConfigurationError
from bayesprop.inference.averaging.batch_statistics import normalising, renewed
from bayesprop.inference.collection import place_of
from bayesprop.inference.method import About, Info, Method
from bayesprop.inference.optimizers import ColumnOptimizer, as_optimizer
from bayesprop.inference.oracle import joint_gradient
from bayesprop.inference.starting_point import Start, starting_means
from bayesprop.model import Batch, Model, Place
from bayesprop.posteriors import Delta, LowRankGaussian, Posterior, Samples
from bayesprop.rng import Rng

__all__ = ["SWAG", "AveragingState"]

SMALLEST = 1e-30  # variance of a weight that does not move at all


@dataclass
class AveragingState:
    """theta (particles, columns), where descent is; running mean and sum of squared deviations; the last deviations
    (particles, K + 1, W), of which the last place takes what is not kept; the number of snapshots (particles, 1).
    `drawn` is empty until the end."""

    theta: Tensor
    moments: dict[str, Tensor]
    mean: Tensor
    squares: Tensor
    deviations: Tensor
    count: Tensor
    buffers: dict[str, Tensor]
    drawn: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class SWAG(Method[AveragingState]):
    """Equations of the module's docstring.

    Args:
        learning_rate: step size until averaging begins; it then falls to `averaging_rate` between 50 and 90 % of the
            way there.
        averaging_rate: constant step size while snapshots are taken; None for half of `learning_rate`.
        optimizer: "momentum", "adam", ... as for point estimates; the objective is MAP's.
        start: share of the run before the first snapshot.
        snapshots: M, spread evenly over the rest of the run.
        rank: K.
        members: independent runs that are mixed.
        draws: samples that a network with batch statistics gets.
        initial_mean: where weights start; see `starting_means`.
        clip_norm: longest gradient of one particle.

    >>> SWAG(members=5).population
    5
    """

    about: ClassVar[About | None] = About(
        approximates="the posterior around one optimum by a Gaussian of the path of descent",
        cost="1 step; K + 4 copies of the weights",
        choose="spread and correlations for a large network that trains by SGD",
    )
    learning_rate: float | Tensor = 1e-2
    averaging_rate: float | None = None
    optimizer: str | ColumnOptimizer | type[torch.optim.Optimizer] = "momentum"
    start: float = 0.75
    snapshots: int = 100
    rank: int = 20
    members: int = 1
    draws: int = 30
    initial_mean: Start = "fan_in"
    clip_norm: float | None = None

    per_particle = frozenset({"learning_rate"})

    def __post_init__(self) -> None:
        faults = [
            f"{key} must be positive, got {value}"
            for key, value in (
                ("learning_rate", self.learning_rate),
                ("averaging_rate", 1.0 if self.averaging_rate is None else self.averaging_rate),
                ("clip_norm", 1.0 if self.clip_norm is None else self.clip_norm),
            )
            if not bool(torch.as_tensor(value > 0).all())
        ]
        least = (("rank", self.rank, 2), ("snapshots", self.snapshots, 2), ("members", self.members, 1))
        faults += [
            f"{key} must be at least {low}, got {value}"
            for key, value, low in (*least, ("draws", self.draws, 1))
            if value < low
        ]
        if not 0.0 <= self.start < 1.0:
            faults.append(f"start is a share of the run in [0, 1), got {self.start}")
        if faults:
            raise ConfigurationError("SWAG cannot work like this: " + "; ".join(faults), write="SWAG(rank=20)")
        as_optimizer(self.optimizer)

    @property
    def population(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number of members."""
        return self.members

    def resolved(self) -> SWAG:
        return replace(self, optimizer=as_optimizer(self.optimizer))

    # -- the functions of a method ------------------------------------------------------------------------------------

    def init(self, model: Model, rng: Rng) -> AveragingState:
        theta = starting_means(model, rng, self.initial_mean)
        moments = as_optimizer(self.optimizer).init({"mean": theta})
        deviations = theta.new_zeros(rng.particles, self.rank + 1, model.layout.latent)
        squares = torch.zeros_like(theta[:, : model.layout.latent])
        count = theta.new_zeros(rng.particles, 1)
        buffers = model.initial_buffers(rng.particles)
        return AveragingState(theta, moments, torch.zeros_like(theta), squares, deviations, count, buffers)

    def share(self, progress: float) -> float:
        """Which part of all snapshots is taken."""
        return max(0.0, progress - self.start) / (1.0 - self.start)

    def numbers(self, place: Place, step: int | Tensor) -> tuple[Any, ...]:
        """The learning rate, and whether a snapshot is taken (1 or 0)."""
        last = 0.5 * self.learning_rate if self.averaging_rate is None else self.averaging_rate
        way = place.progress / self.start if self.start > 0.0 else 1.0
        fallen = min(max((way - 0.5) / 0.4, 0.0), 1.0)
        rate = self.learning_rate + (last - self.learning_rate) * fallen
        return rate, 1 if place_of(place, self.share, self.snapshots) >= 0 else 0

    def update(self, model: Model, state: AveragingState, batch: Batch, rng: Rng) -> tuple[AveragingState, Info]:
        rate, taken = self.numbers(batch, rng.step) if batch.numbers is None else batch.numbers
        value, gradient = joint_gradient(model, state.theta, state.buffers, batch)
        gradient.mul_(-1.0 / batch.num_data)
        norm = None
        if self.clip_norm is not None:
            norm = gradient.norm(dim=1)
            gradient.mul_((self.clip_norm / norm.clamp_min(1e-30)).clamp_max(1.0)[:, None])
        optimizer = as_optimizer(self.optimizer)
        optimizer.step({"mean": state.theta}, {"mean": gradient}, state.moments, {"mean": rate}, rng.step)
        if isinstance(taken, Tensor):
            self._collect(state, taken.to(state.theta).reshape(-1, 1))
        elif taken:
            self._collect(state, torch.ones_like(state.count))
        return state, Info(value, norm)

    def _collect(self, state: AveragingState, taken: Tensor) -> None:
        """Equation (1) by running means (Welford) where `taken` (particles, 1) is 1; nothing where it is 0.

        The newest deviation takes the place of the oldest. All particles are at the same place of their runs.
        """
        width = state.squares.shape[1]
        place = torch.where(taken[0] > 0, state.count[0] % self.rank, self.rank).long()
        state.count.add_(taken)
        before = state.theta - state.mean
        state.mean.add_(taken * before / state.count.clamp_min(1.0))
        after = (state.theta - state.mean)[:, :width]
        state.squares.add_(taken * before[:, :width] * after)
        state.deviations.index_copy_(1, place, after[:, None])

    def finish(
        self, model: Model, state: AveragingState, epoch: Callable[[], Iterator[Batch]], rng: Rng
    ) -> AveragingState:
        """Batch statistics of `draws` draws, where the network has any."""
        found = self.posterior(model, state)
        if not isinstance(found, LowRankGaussian):
            warnings.warn(
                "SWAG took less than two snapshots: this is a point estimate. Train longer, or let averaging begin "
                f"earlier than at {self.start:g} of the run with SWAG(start=0.5).",
                BayespropWarning,
                stacklevel=3,
            )
        elif normalising(model):
            theta = found.draw(rng, self.draws)
            own = renewed(model, theta, state.buffers, epoch, rng)
            state.drawn = {"theta": theta, **{f"buffer/{name}": stack for name, stack in own.items()}}
        return state

    def posterior(self, model: Model, state: AveragingState) -> Posterior:
        """The Gaussian so far; where descent is while there are less than two snapshots."""
        buffers = {name: buffer.clone() for name, buffer in state.buffers.items()}
        if state.drawn:
            own = {n.removeprefix("buffer/"): t for n, t in state.drawn.items() if n != "theta"}
            return Samples(model, state.drawn["theta"], buffers, sample_buffers=own)
        count = int(state.count.min())
        if count < 2:
            return Delta(model, state.theta.clone(), buffers)
        known = min(count, self.rank)
        variance = (state.squares / state.count).clamp_min(SMALLEST)
        factors = state.deviations[:, :known] / math.sqrt(2.0 * (known - 1))
        return LowRankGaussian(model, state.mean.clone(), (0.5 * variance).sqrt(), factors, buffers)

    def memory(self, model: Model, particles: int, rows: int) -> int:
        """Bytes of the weights, their gradient, moments, running means and deviations, and of draws with statistics."""
        kept = as_optimizer(self.optimizer).init({"mean": torch.zeros(1, 1)})
        moments = sum(moment.dim() == 2 for moment in kept.values())  # and not counters of steps
        buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers.values())
        draws = self.draws if normalising(model) else 0
        columns = model.layout.size * (3 + moments + draws) + model.layout.latent * (self.rank + 2) + 1
        return particles * (columns * torch.finfo(model.dtype).bits // 8 + buffers * (1 + draws))
