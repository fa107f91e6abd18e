"""IVON: a Gaussian for each weight, by natural-gradient steps that cost what Adam's cost.

Approximates the posterior by q(w) = prod_i N(m_i, s_i^2), as Bayes by Backprop does, and needs neither a second
parameter with a step size of its own nor the gradient of a scale: the precision of q is the curvature of the loss,
averaged over the path, and the same numbers precondition the step. Choose it in the place of Adam for a large network
that should also know its spread. It has the limits of any independent Gaussian.

With the loss l = -(1 / N) E log p(D | w) and T / N times the KL in it, temperature T and the precision t of q,

    w = m + s eps,    s^2 = 1 / t,    P = T t / N,    g = dl / dw,    h = g (w - m) / s^2                           (1)
    M <- b1 M + (1 - b1) g,                                             m <- m - r (M / (1 - b1^k)) / P             (2)
    P <- P + a (h - P) + a^2 (h - P)^2 / (2 P),                         a = 1 - b2                                  (3)

E h is E d^2 l / dw^2 for any q that is Gaussian (Price's theorem; no second derivative is ever taken), so that (3)
rests where t is the expected curvature of -log p(D | w) / T - log p(w). Its last term, half the square of the step,
keeps P positive whatever h is. The prior's part of g and h is in closed form where its KL is: for N(loc, c^2) h is the
constant T / (N c^2), the weight decay of the paper; for a double exponential prior it is the curvature of its
expectation; other priors are sampled with the likelihood. What (3) needs is h - P = (dl / ds) / s, entropy included.

The schedule is a factor on r and on a: as both fall to 0, mean and precision settle.

Map to Shen et al. (2024): P = h + delta, lambda = N / T, and r, b1, b2 are alpha, beta_1, beta_2 of algorithm 1.

Reference: Shen, Daheim, Cong, Nickl, Marconi, Bazan, Yokota, Gurevych, Cremers, Khan, Mollenhoff, "Variational Learning
is Effective for Large Deep Networks", ICML 2024.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.inference.method import About, Info, Method, check_particles
from bayesprop.inference.optimizers import Adam
from bayesprop.inference.oracle import likelihood_gradient, prior_score
from bayesprop.inference.schedules import Cosine, Schedule
from bayesprop.inference.starting_point import Start, starting_means, starting_scales
from bayesprop.inference.variational import gradients
from bayesprop.kernels import curvature
from bayesprop.model import Batch, Model, Place
from bayesprop.posteriors import DiagonalGaussian
from bayesprop.random_weights import Estimator, SharedWeights
from bayesprop.rng import Rng, Stream

__all__ = ["IVON", "CurvatureState"]

POINTS = Adam()


@dataclass
class CurvatureState:
    """mean (particles, columns); precision t (particles, columns with a distribution); momentum of the mean's gradient
    there; Adam's moments of the point estimates; buffers."""

    mean: Tensor
    precision: Tensor
    momentum: Tensor
    moments: dict[str, Tensor]
    buffers: dict[str, Tensor]


@dataclass(frozen=True)
class IVON(Method[CurvatureState]):
    """Equations (1) to (3) of the module's docstring.

    Args:
        learning_rate: r, a number or one for each particle: 1 is Newton's step for a weight by itself. Point estimates
            take Adam's steps with the rate `point_learning_rate`.
        beta1, beta2: how much is kept of the momentum and of the precision at each step.
        estimator: `SharedWeights(samples, antithetic)`, `LocalReparameterization(samples)` or `Flipout(samples)`.
        temperature: T, a number or one for each particle.
        initial_mean, initial_scale: where q starts; see `starting_means`.
        schedule: factor on the learning rates as a function of the training's progress.
        clip_radius: longest step of one weight, before the learning rate; None for any. Where the curvature of a weight
            is estimated too small, as for a unit that is mostly off, its step would be far too long.

    >>> IVON(learning_rate=0.02).temperature
    1.0
    """

    about: ClassVar[About | None] = About(
        approximates="the posterior by an independent Gaussian for each weight",
        cost="1.3 times the step, 1.5 times the memory",
        choose="a spread for every weight of a large network, at the price of Adam",
    )
    learning_rate: float | Tensor = 0.2
    beta1: float = 0.9
    beta2: float = 0.999
    estimator: Estimator = SharedWeights()
    temperature: float | Tensor = 1.0
    initial_mean: Start = "fan_in"
    initial_scale: float | Tensor = 0.02
    schedule: Schedule = Cosine()
    clip_radius: float | None = 0.02
    point_learning_rate: float | Tensor = 3e-3

    per_particle = frozenset({"learning_rate", "temperature", "initial_scale", "schedule", "point_learning_rate"})

    def __post_init__(self) -> None:
        positive = {
            "learning_rate": self.learning_rate,
            "temperature": self.temperature,
            "initial_scale": self.initial_scale,
            "clip_radius": 1.0 if self.clip_radius is None else self.clip_radius,
            "point_learning_rate": self.point_learning_rate,
        }
        faults = [
            f"{name} must be positive, got {value}"
            for name, value in positive.items()
            if not bool(torch.as_tensor(value > 0).all())
        ]
        faults += [
            f"{name} lies in [0, 1), got {value}"
            for name, value in (("beta1", self.beta1), ("beta2", self.beta2))
            if not 0.0 <= value < 1.0
        ]
        if faults:
            raise ConfigurationError(
                "IVON cannot work like this: " + "; ".join(faults), write="IVON(learning_rate=0.1)"
            )

    @property
    def kl(self) -> str:
        """The prior's part is in closed form where there is one."""
        return "auto"

    @property
    def stick_the_landing(self) -> bool:
        """(3) needs the entropy as it is."""
        return False

    # -- the functions of a method ------------------------------------------------------------------------------------

    def init(self, model: Model, rng: Rng) -> CurvatureState:
        check_particles(self, rng.particles)
        mean = starting_means(model, rng, self.initial_mean)
        precision = starting_scales(model, mean, self.initial_scale).pow(-2)
        width = model.layout.latent
        moments = POINTS.init({"mean": mean[:, width:]}) if model.layout.size > width else {}
        return CurvatureState(
            mean, precision, torch.zeros_like(precision), moments, model.initial_buffers(rng.particles)
        )

    def numbers(self, place: Place, step: int | Tensor) -> tuple[Any, ...]:
        """r, a, T, the correction 1 - b1^k of the momentum, and the rate of point estimates."""
        factor = self.schedule(place.progress)
        correction = 1.0 - self.beta1 ** (step + 1.0)
        rates = self.learning_rate * factor, (1.0 - self.beta2) * factor
        return *rates, self.temperature, correction, self.point_learning_rate * factor

    def update(self, model: Model, state: CurvatureState, batch: Batch, rng: Rng) -> tuple[CurvatureState, Info]:
        numbers: Any = self.numbers(batch, rng.step) if batch.numbers is None else batch.numbers
        done = self._native(model) if batch.numbers is None else 0
        if done:
            value, gradient, curved = self._natively(model, state, batch, rng, numbers, done)
        else:
            value, gradient, curved = self._plainly(model, state, batch, rng, numbers[2])
        rate, share, heat, correction = (_column(number, state.mean) for number in numbers[:4])
        width, rest = state.precision.shape[1], slice(done, state.precision.shape[1])
        if done < width:
            precision, momentum = state.precision[:, rest], state.momentum[:, rest]
            momentum.lerp_(gradient[:, rest], 1.0 - self.beta1)
            step = momentum / (correction * heat) / precision
            if self.clip_radius is not None:
                step.clamp_(-self.clip_radius, self.clip_radius)
            state.mean[:, rest] -= rate * step
            change = curved * (share / heat)
            precision.add_(change + 0.5 * change.square() / precision)
        if model.layout.size > width:
            mean, points = state.mean[:, width:], gradient[:, width:] / batch.num_data
            POINTS.step({"mean": mean}, {"mean": points}, state.moments, {"mean": numbers[4]}, rng.step)
        return state, Info(value)

    def _plainly(
        self, model: Model, state: CurvatureState, batch: Batch, rng: Rng, temperature: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The log-likelihood of the full data, N dl / dm and N (dl / ds) / s."""
        std = state.precision.rsqrt()
        found = gradients.moment_gradients(self, model, state.mean, std, state.buffers, batch, rng, temperature)
        count, by_name = batch.num_data, found.by_name
        return found.log_likelihood, by_name["mean"].mul_(count), by_name["std"].mul_(count).div_(std)

    def _native(self, model: Model) -> int:
        """How many columns the native pass takes: all random weights, or none."""
        plain = self.estimator == SharedWeights() and model.dtype == torch.float32 and model.device.type == "cpu"
        families = model.bound_prior.families if plain else ()
        known = bool(families) and all(family.name in ("normal", "flat") for family in families)
        return model.layout.random if known and curvature.library().handle is not None else 0

    def _natively(
        self, model: Model, state: CurvatureState, batch: Batch, rng: Rng, numbers: Any, columns: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What `_plainly` gives, after the step of the first columns; right in the others."""
        particles, width = state.precision.shape
        noise = rng.normal(width, Stream.WEIGHTS, dtype=state.mean.dtype)[:, 0]
        theta = curvature.spread(state.mean, state.precision, noise, width)
        value, gradient = likelihood_gradient(model, theta, state.buffers, batch)
        families, found = model.bound_prior.families, []
        for p in range(particles):
            own: list[float] = [float(n[p]) if isinstance(n, Tensor) and n.dim() else float(n) for n in numbers[:4]]
            rate, share, heat, correction = own
            loc, scale = families[p % len(families)].parameters or (0.0, math.inf)
            row = (rate, share, heat, self.beta1, correction, self.clip_radius, loc, scale**-2.0)
            found.append(curvature.Numbers(*row))
        curvature.take_step(state.mean, state.precision, state.momentum, gradient, noise, columns, found)
        if columns == width == gradient.shape[1]:
            return value, gradient, gradient
        by_mean, heat, rest = gradient.neg_(), _column(numbers[2], state.mean), slice(columns, width)
        score = prior_score(model, theta[:, :width], skip_weights=True)[:, rest]
        by_mean[:, rest] -= heat * score
        tail, std = state.precision[:, rest], state.precision[:, rest].rsqrt()
        return value, by_mean, by_mean[:, rest] * noise[:, rest] / std - heat * tail

    def posterior(self, model: Model, state: CurvatureState) -> DiagonalGaussian:
        buffers = {name: buffer.clone() for name, buffer in state.buffers.items()}
        return DiagonalGaussian(model, state.mean.clone(), state.precision.rsqrt(), buffers)

    def memory(self, model: Model, particles: int, rows: int) -> int:
        """Bytes of mean, precision, momentum, sampled weights, their gradient and noise, and buffers."""
        layout, size = model.layout, torch.finfo(model.dtype).bits // 8
        columns = layout.size * (1 + 3 * self.estimator.samples) + 3 * layout.latent + 2 * (layout.size - layout.latent)
        buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers.values())
        return particles * (size * columns + buffers)


def _column(number: Any, like: Tensor) -> Any:
    """Numbers of particles as a column that meets `like`."""
    return number.to(like).reshape(-1, 1) if isinstance(number, Tensor) and number.dim() == 1 else number
