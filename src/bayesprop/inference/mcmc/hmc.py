"""Hamiltonian Monte Carlo on all rows: samples of the posterior itself, by which other methods are judged.

One step of a run is one trajectory of all chains: fresh momenta, about T / e leapfrog steps (`leapfrog`), and

    accept theta' with probability min(1, exp(H(theta, r) - H(theta', r')))                                      (1)

with energies summed in float64. The first `warm_up` trajectories adapt step size, scales and T (`adaptation`); then all
of them are held, and what is sampled is exact but for how far the chains have come. Chains are particles: a leapfrog
step is one batched pass of the network for all of them, and they share what they learn in the warm-up.

Columns that are point estimates climb the log joint after each trajectory of the warm-up (Monte-Carlo EM, with Adam)
and are held from then on. A network with dropout is sampled without it, as it predicts. Batch statistics are those of
all rows; their running means, which predictions use, belong to each sample.

References: Duane, Kennedy, Pendleton, Roweth, "Hybrid Monte Carlo", Physics Letters B, 1987; Neal, "MCMC using
Hamiltonian dynamics", 2011.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from bayesprop.errors import BayespropWarning, ConfigurationError
from bayesprop.inference.collection import Kept, check_budget, keep, kept_bytes, kept_samples, make_kept
from bayesprop.inference.mcmc.adaptation import Spread, Tuning, chees_slope, jitter_of, window_ends
from bayesprop.inference.mcmc.leapfrog import energy, trajectory
from bayesprop.inference.mcmc.native_chains import explain, native_target
from bayesprop.inference.mcmc.target import Point, Target
from bayesprop.inference.method import About, Info, Method
from bayesprop.inference.optimizers import Adam
from bayesprop.inference.starting_point import Start, starting_means
from bayesprop.model import Batch, Model
from bayesprop.posteriors import Samples
from bayesprop.rng import Rng, Stream

__all__ = ["HMC", "HamiltonianState"]

DIVERGENT = 1000.0  # nats of energy that a trajectory may gain by its steps, as in Stan
SETTLED = 10  # trajectories of a window before its mean serves as a centre
LEAST_STEP = 2.0**-40


@dataclass
class HamiltonianState:
    """Where the chains are, with the log joint and its gradient there; scales (particles, columns), 0 for point
    estimates, and all rows equal; sums of acceptance probabilities and counts of divergences since the warm-up; the
    number of trajectories so far."""

    point: Point
    scale: Tensor
    spread: Spread
    tuning: dict[str, Tensor]
    moments: dict[str, Tensor]
    accepted: Tensor
    divergences: Tensor
    taken: Tensor
    kept: Kept


@dataclass(frozen=True)
class HMC(Method[HamiltonianState]):
    """Equations of the module's docstring and of its neighbours.

    Args:
        samples: how many are kept of each chain.
        warm_up: trajectories before the first of them.
        thinning: trajectories from one sample to the next.
        chains: independent chains that run side by side; all are kept.
        trajectory: "chees" to adapt the length T, or T itself in units of the adapted scales.
        jitter: lengths are spread evenly over [(1 - jitter) T, T].
        step_size: of leapfrog, in units of the scales; None to adapt it to `acceptance`.
        acceptance: share of accepted proposals that the step size is adapted to.
        longest: leapfrog steps that a trajectory has at most.
        adapt_scales: whether to learn a scale for each column; all are 1 if not.
        point_rate: learning rate of columns that are point estimates, falling to 0 over the warm-up.
        initial_mean: where chains start; see `starting_means`.
        memory_budget: GiB that the samples may take, with the copy of them that a posterior is.

    >>> HMC(samples=100, warm_up=200).steps
    300
    """

    about: ClassVar[About | None] = About(
        approximates="nothing: samples of the posterior itself, once chains have met",
        cost="all rows in each of some hundred leapfrog steps for a sample",
        choose="small networks and data, and as the standard that other methods are held to",
    )
    samples: int = 500
    warm_up: int = 500
    thinning: int = 1
    chains: int = 4
    trajectory: str | float = "chees"
    jitter: float = 1.0
    step_size: float | None = None
    acceptance: float = 0.8
    longest: int = 1000
    adapt_scales: bool = True
    point_rate: float = 1e-2
    initial_mean: Start = "fan_in"
    memory_budget: float = 2.0

    needs_all_rows = True
    looks_at_host = "the step size of a Hamiltonian trajectory decides how many steps it has"

    def __post_init__(self) -> None:
        faults = []
        for key in ("samples", "thinning", "chains", "longest"):
            if getattr(self, key) < 1:
                faults.append(f"{key} must be at least 1, got {getattr(self, key)}")
        if self.warm_up < 0:
            faults.append(f"warm_up must not be negative, got {self.warm_up}")
        if isinstance(self.trajectory, str):
            if self.trajectory != "chees":
                faults.append(f'trajectory must be "chees" or a length, got {self.trajectory!r}')
        elif not self.trajectory > 0.0:
            faults.append(f"trajectory must be positive, got {self.trajectory}")
        if not 0.0 <= self.jitter <= 1.0:
            faults.append(f"jitter must lie in [0, 1], got {self.jitter}")
        if not 0.0 < self.acceptance < 1.0:
            faults.append(f"acceptance must lie in (0, 1), got {self.acceptance}")
        if self.step_size is not None and not self.step_size > 0.0:
            faults.append(f"step_size must be positive, got {self.step_size}")
        for key in ("point_rate", "memory_budget"):
            if not getattr(self, key) > 0.0:
                faults.append(f"{key} must be positive, got {getattr(self, key)}")
        if faults:
            raise ConfigurationError("HMC cannot work like this: " + "; ".join(faults), write="HMC(chains=4)")

    @property
    def population(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number of chains."""
        return self.chains

    @property
    def steps(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Trajectories of a whole run. A longer one goes on, and keeps the newest samples."""
        return self.warm_up + self.samples * self.thinning

    # -- the functions of a method ------------------------------------------------------------------------------------

    def init(self, model: Model, rng: Rng) -> HamiltonianState:
        check_budget(model, rng.particles, self.samples, self.memory_budget, "HMC")
        theta, width = starting_means(model, rng, self.initial_mean), model.layout.latent
        nothing = torch.zeros(rng.particles, dtype=torch.float64, device=theta.device)
        start = Point(theta, nothing, nothing.clone(), torch.zeros_like(theta), model.initial_buffers(rng.particles))
        scale = torch.ones_like(theta)
        scale[:, width:] = 0.0
        return HamiltonianState(
            start,
            scale,
            Spread.empty(theta),
            Tuning().tensors(),
            Adam().init({"mean": theta[:, width:]}) if theta.shape[1] > width else {},
            nothing.clone(),
            nothing.long(),
            torch.zeros((), dtype=torch.float64),
            make_kept(model, rng.particles, self.samples),
        )

    def update(self, model: Model, state: HamiltonianState, batch: Batch, rng: Rng) -> tuple[HamiltonianState, Info]:
        """One trajectory of all chains. The state knows how many there were: the place in the run plays no part."""
        target, index, width = Target(model, batch), int(state.taken), model.layout.latent
        warm, climbs = index < self.warm_up, width < model.layout.size
        noise = rng.normal(width + 1, Stream.WEIGHTS, dtype=model.dtype)[:, 0]
        momentum = torch.nn.functional.pad(noise[:, :-1], (0, model.layout.size - width))
        with target.steady():
            if index == 0 or (climbs and index <= self.warm_up):
                before = state.point.buffers
                state.point = target(state.point.theta, before)
                if index == 0:
                    target.check_steady(state.point, before)
            tuning = Tuning.read(state.tuning)
            if index == 0:
                tuning.log_length = math.log(10.0)  # ten steps, and longer from there
                tuning.restart(self._first_step(target, state, momentum))
            step, length, share = self._lengths(tuning, index, warm)
            count = min(max(math.ceil(share * length / step), 1), self.longest)
            proposal, last = self._travel(target, state.point, momentum, state.scale, step, count)
            gain = energy(state.point, momentum) - energy(proposal, last)
            acceptance = gain.clamp_max(0.0).exp().nan_to_num(0.0)
            if warm:
                self._learn(state, tuning, proposal, last, acceptance, share * length)
            taken = torch.special.log_ndtr(noise[:, -1].double()) < gain
            state.point = proposal.where(taken, state.point)
            if warm:
                self._renew(target, state, tuning, momentum, index)
            else:
                state.accepted.add_(acceptance)
                state.divergences.add_(~(gain > -DIVERGENT))
        state.tuning = tuning.tensors()
        if warm and climbs:
            self._climb(state, width, index, batch.num_data)
        state.taken += 1.0
        place, apart = divmod(index + 1 - self.warm_up, self.thinning)
        if place > 0 and apart == 0:
            keep(state.kept, (place - 1) % self.samples, state.point.theta, state.point.buffers)
        return state, Info(state.point.log_likelihood)

    def explain(self, model: Model) -> str:
        """Which body runs the trajectories of a model, and why, in one sentence."""
        return explain(model)

    @staticmethod
    def _travel(
        target: Target, start: Point, momentum: Tensor, scale: Tensor, step_size: float, steps: int
    ) -> tuple[Point, Tensor]:
        """A trajectory, as native code where there is one for the model."""
        native = native_target(target.model, target.batch)
        if native is None:
            return trajectory(target, start, momentum, scale, step_size, steps)
        return native.trajectory(start, momentum, scale, step_size, steps)

    # -- what is learnt in the warm-up --------------------------------------------------------------------------------

    def _lengths(self, tuning: Tuning, index: int, warm: bool) -> tuple[float, float, float]:
        """Step size, T, and the share of T that this trajectory takes."""
        step = math.exp(tuning.log_step if warm else tuning.log_step_mean)
        length = math.exp(tuning.log_length if warm else tuning.log_length_mean)
        if not isinstance(self.trajectory, str):
            length = self.trajectory
        return self.step_size or step, length, jitter_of(index, self.jitter)

    def _first_step(self, target: Target, state: HamiltonianState, momentum: Tensor) -> float:
        """The largest power of 2 up to 1 with which a single leapfrog step is accepted as often as wanted."""
        if self.step_size is not None:
            return self.step_size
        step, now = 1.0, energy(state.point, momentum)
        while step > LEAST_STEP:
            gain = now - energy(*self._travel(target, state.point, momentum, state.scale, step, 1))
            if float(gain.clamp_max(0.0).exp().nan_to_num(0.0).mean()) >= self.acceptance:
                break
            step *= 0.5
        return step

    def _learn(
        self,
        state: HamiltonianState,
        tuning: Tuning,
        proposal: Point,
        last: Tensor,
        acceptance: Tensor,
        length: float,
    ) -> None:
        """Step size and length from one trajectory."""
        if self.step_size is None:
            tuning.adapt_step(float(acceptance.mean()), self.acceptance)
        if self.trajectory == "chees" and float(state.spread.count) >= SETTLED:
            unit = torch.where(state.scale > 0.0, 1.0 / state.scale, 0.0)
            start, end = ((point.theta - state.spread.mean) * unit for point in (state.point, proposal))
            tuning.adapt_length(chees_slope(start, end, last, acceptance, length), self.longest)

    def _renew(self, target: Target, state: HamiltonianState, tuning: Tuning, momentum: Tensor, index: int) -> None:
        """The scales at the end of a window, with a step size that fits them."""
        state.spread.add(state.point.theta)
        if self.adapt_scales and index + 1 in window_ends(self.warm_up):
            state.scale = state.spread.renewed(state.scale).expand_as(state.scale).contiguous()
            tuning.restart(self._first_step(target, state, momentum))

    def _climb(self, state: HamiltonianState, width: int, index: int, count: int) -> None:
        """A step of the point estimates up the log joint."""
        rate = self.point_rate * (1.0 - index / self.warm_up)
        columns = {"mean": state.point.theta[:, width:]}
        gradient = {"mean": state.point.gradient[:, width:] * (-1.0 / count)}
        Adam().step(columns, gradient, state.moments, {"mean": rate}, index)

    # -- afterwards ---------------------------------------------------------------------------------------------------

    def finish(
        self, model: Model, state: HamiltonianState, epoch: Callable[[], Iterator[Batch]], rng: Rng
    ) -> HamiltonianState:
        """Say what speaks against the samples."""
        taken, count = int(state.taken) - self.warm_up, int(state.divergences.sum())
        if taken < self.thinning:
            warnings.warn(
                f"HMC took {int(state.taken)} trajectories, and its warm-up has {self.warm_up}: there is no sample "
                f"yet, only where the chains are. Train for epochs={self.steps}, or let the warm-up be shorter.",
                BayespropWarning,
                stacklevel=3,
            )
        elif count > 0:
            share = count / (taken * state.divergences.shape[0])
            warnings.warn(
                f"HMC: {count} trajectories ({share:.1%}) diverged after the warm-up: there are places that steps of "
                "this size cannot enter, and samples lack them. Ask for smaller steps with HMC(acceptance=0.95), or "
                "for a longer warm-up.",
                BayespropWarning,
                stacklevel=3,
            )
        return state

    def posterior(self, model: Model, state: HamiltonianState) -> Samples:
        """The samples so far; the weights as they are while there is none."""
        point = state.point
        theta, own = kept_samples(state.kept, point.theta, point.buffers)
        buffers = {name: buffer.clone() for name, buffer in point.buffers.items()}
        return Samples(model, theta, buffers, sample_buffers=own)

    def memory(self, model: Model, particles: int, rows: int) -> int:
        """Bytes of two points with gradients, momenta and scales, of what is learnt about them, and of the samples."""
        points = 2 * (model.layout.size - model.layout.latent)
        columns = (9 * model.layout.size + points) * torch.finfo(model.dtype).bits // 8
        buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers.values())
        return particles * (columns + 3 * buffers + 32) + 128 + kept_bytes(model, particles, self.samples)
