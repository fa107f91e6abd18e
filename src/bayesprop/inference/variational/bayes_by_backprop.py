"""Bayes by Backprop: a Gaussian for each weight, trained by the reparameterised gradient of the ELBO.

Approximates the posterior by q(w) = prod_i N(mean_i, std_i^2) with std = log(1 + exp(rho)). Choose it first: it costs
little more than ordinary training, scales to any network and minibatch, and tells which weights matter. It
underestimates variances where weights are correlated (std_i^2 tends to 1 / Lambda_ii, not to the marginal variance)
and sits in one mode.

Minimised is, for minibatch number i of M with n of N rows, and eps ~ N(0, 1),

    loss = [ k_i T KL(q || prior) - (N / n) sum_rows E log p(y | x, w) ] / N,      w = mean + std * eps              (1)

where k_i comes from the KL schedule (1 for "uniform"; mean 1 over an epoch) and T is the temperature. The division by
N makes learning rates mean what they mean elsewhere. With f(w, theta) = log q(w | theta) - log p(w) p(D | w) the
paper's gradients are

    d mean = df/dw + df/dmean                                                                      (paper's equation 3)
    d rho  = df/dw * eps / (1 + exp(-rho)) + df/drho                                               (paper's equation 4)

Of log q only -log std is left of their sum, exactly and for every eps; so the entropy is never sampled. The prior's
part is closed form where there is one (Normal, Laplace, flat) and otherwise sampled at the same w. `stick_the_landing`
drops the score term df/dtheta of log q instead: then the gradient's noise vanishes where q equals the posterior
(Roeder et al. 2017).

Map to Blundell et al. (2015): learning_rate is theirs times N/M when they sum over a minibatch; T = 1 and k_i = M pi_i.

References: Blundell, Cornebise, Kavukcuoglu, Wierstra, "Weight Uncertainty in Neural Networks", ICML 2015. Kingma,
Salimans, Welling 2015 (local reparameterisation). Wen et al. 2018 (flipout).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.inference.method import About, Info, Method, check_particles
from bayesprop.inference.optimizers import Adam, ColumnOptimizer, Torch, as_optimizer
from bayesprop.inference.schedules import Cosine, Schedule
from bayesprop.inference.starting_point import Start, rho_of, starting_means, starting_rho, starting_scales
from bayesprop.inference.variational import fused, gradients, on_device
from bayesprop.inference.variational.kl_weights import KLWeights, as_weights
from bayesprop.model import Batch, Model, Place
from bayesprop.posteriors import DiagonalGaussian
from bayesprop.random_weights import Estimator, SharedWeights
from bayesprop.rng import Rng

__all__ = ["BayesByBackprop", "MeanFieldState"]


@dataclass
class MeanFieldState:
    """mean (particles, columns); rho (particles, columns with a distribution); the optimiser's moments; buffers."""

    mean: Tensor
    rho: Tensor
    moments: dict[str, Tensor]
    buffers: dict[str, Tensor]


@dataclass(frozen=True)
class BayesByBackprop(Method[MeanFieldState]):
    """See the module's docstring for the equations.

    Args:
        learning_rate: step size, a number or one for each particle; `scale_learning_rate` is that of rho (None: the
            same).
        optimizer: "adam", "adamw", "sgd", "momentum", an optimiser of `inference.optimizers` or a class of
            `torch.optim`.
        estimator: `SharedWeights(samples, antithetic)`, `LocalReparameterization(samples)` or `Flipout(samples)`.
        kl: "auto" (closed form where there is one), "closed_form" (refused where there is none) or "monte_carlo".
        kl_weights: "warmup" (0 to 1 over the first half of the training, then the ELBO), "uniform", "geometric" or a
            function of (index, count, progress).
        temperature: multiplies the KL, a number or one for each particle.
        stick_the_landing: leaves the score of q out; the KL is then sampled.
        initial_mean, initial_scale: where q starts; see `starting_means`. With `relative_initial_scale` d the scale
            of a weight is d times its mean's size instead (MOPED); `initial_rho` (a number, or a pair for a uniform
            draw) overrides both, for experiments that are stated in rho.
        schedule: factor on the learning rates as a function of the training's progress; it falls to 0 along a cosine.
        clip_norm: longest gradient of (mean, rho) of one particle.

    Numbers for each particle are tensors (particles,): all of `per_particle`.

    >>> BayesByBackprop(learning_rate=1e-3).temperature
    1.0
    """

    about: ClassVar[About | None] = About(
        approximates="the posterior by an independent Gaussian for each weight",
        cost="1.3 to 1.5 times the step, 2 times the memory",
        choose="first: any network, any minibatch, and a spread for every weight",
    )
    learning_rate: float | Tensor = 3e-3
    scale_learning_rate: float | Tensor | None = None
    optimizer: str | ColumnOptimizer | type[torch.optim.Optimizer] = "adam"
    estimator: Estimator = SharedWeights()
    kl: str = "auto"
    kl_weights: str | KLWeights = "warmup"
    temperature: float | Tensor = 1.0
    stick_the_landing: bool = False
    initial_mean: Start = "fan_in"
    initial_scale: float | Tensor = 0.02
    relative_initial_scale: float | Tensor | None = None
    initial_rho: float | Tensor | tuple[float, float] | None = None
    schedule: Schedule = Cosine()
    clip_norm: float | Tensor | None = None

    def __post_init__(self) -> None:
        faults = [
            f"{name} must be positive, got {value}"
            for name, value in (
                ("learning_rate", self.learning_rate),
                ("scale_learning_rate", 1.0 if self.scale_learning_rate is None else self.scale_learning_rate),
                ("initial_scale", self.initial_scale),
                ("relative_initial_scale", 1.0 if self.relative_initial_scale is None else self.relative_initial_scale),
                ("clip_norm", 1.0 if self.clip_norm is None else self.clip_norm),
            )
            if not bool(torch.as_tensor(value > 0).all())
        ]
        if not bool(torch.as_tensor(self.temperature >= 0).all()):
            faults.append(f"temperature must not be negative, got {self.temperature}")
        if self.kl not in ("auto", "closed_form", "monte_carlo"):
            faults.append(f'kl must be "auto", "closed_form" or "monte_carlo", got {self.kl!r}')
        if self.stick_the_landing and self.kl == "closed_form":
            faults.append('stick_the_landing samples the KL: use it with kl="monte_carlo"')
        if self.initial_rho is not None and bool(torch.as_tensor(self.initial_scale != type(self).initial_scale).any()):
            faults.append("initial_rho and initial_scale say the same thing: give one of them")
        if faults:
            raise ConfigurationError(
                "BayesByBackprop cannot work like this: " + "; ".join(faults),
                write="BayesByBackprop(learning_rate=1e-3)",
            )
        as_optimizer(self.optimizer)
        as_weights(self.kl_weights)

    @property
    def per_particle(self) -> frozenset[str]:  # type: ignore[override]
        starts = {"initial_scale", "relative_initial_scale", "initial_rho"}
        found = starts | {"temperature", "kl_weights", "clip_norm"}
        if isinstance(as_optimizer(self.optimizer), Torch):  # which takes one rate for all particles
            return frozenset(found)
        return frozenset(found | {"learning_rate", "scale_learning_rate", "schedule"})

    def resolved(self) -> BayesByBackprop:
        return replace(self, optimizer=as_optimizer(self.optimizer), kl_weights=as_weights(self.kl_weights))

    @property
    def looks_at_host(self) -> str:  # type: ignore[override]
        """The classes of torch.optim want a learning rate that is a number of Python."""
        optimizer = as_optimizer(self.optimizer)
        return f"torch's {optimizer.cls.__name__} is told its rate by the host" if isinstance(optimizer, Torch) else ""

    # -- the three functions of a method ------------------------------------------------------------------------------

    def init(self, model: Model, rng: Rng) -> MeanFieldState:
        if self.kl == "closed_form" and not gradients.has_closed_form(model):
            raise ConfigurationError(
                'kl="closed_form" needs a prior whose KL with a Gaussian has one',
                received=f"{model.prior!r}",
                expected="Normal, Laplace or Flat with numbers as scales",
                write='kl="auto"',
            )
        check_particles(self, rng.particles)
        mean = starting_means(model, rng, self.initial_mean)
        if self.initial_rho is None:
            rho = rho_of(starting_scales(model, mean, self.initial_scale, self.relative_initial_scale))
        else:
            rho = starting_rho(model, rng, self.initial_rho)
        moments = as_optimizer(self.optimizer).init({"mean": mean, "rho": rho})
        return MeanFieldState(mean, rho, moments, model.initial_buffers(rng.particles))

    def update(self, model: Model, state: MeanFieldState, batch: Batch, rng: Rng) -> tuple[MeanFieldState, Info]:
        numbers: Any = self.numbers(batch, rng.step) if batch.numbers is None else batch.numbers
        if model.device.type == "cuda":
            program = on_device.program(self, model)
            if program.body != "plain":
                return state, on_device.update(program, self, model, state, batch, rng, numbers)
        mean_rate, rho_rate, kl_weight, *_ = numbers
        rates = {"mean": mean_rate, "rho": rho_rate}
        chosen = fused.explain(self, model)
        if chosen.native:
            return state, fused.update(self, model, state, batch, rng, rates, kl_weight, joint=chosen.joint)
        found = gradients.elbo_gradients(self, model, state, batch, rng, kl_weight)
        norm = self._clip(found.by_name)
        optimizer = as_optimizer(self.optimizer)
        optimizer.step({"mean": state.mean, "rho": state.rho}, found.by_name, state.moments, rates, rng.step)
        return state, Info(found.log_likelihood, norm)

    def run(
        self, model: Model, state: MeanFieldState, places: Iterable[tuple[Batch, Rng]]
    ) -> Iterator[tuple[MeanFieldState, Info]]:
        program = on_device.program(self, model) if model.device.type == "cuda" else None
        if program is not None and program.body != "plain":
            yield from on_device.run(program, self, model, state, places)
        elif program is None and fused.explain(self, model).native:
            yield from fused.run(self, model, state, places)
        else:
            yield from super().run(model, state, places)

    def numbers(self, place: Place, step: int | Tensor) -> tuple[Any, ...]:
        """Learning rates of mean and rho, the weight of the KL, and Adam's two corrections."""
        factor = self.schedule(place.progress)
        scale_rate = self.learning_rate if self.scale_learning_rate is None else self.scale_learning_rate
        kl_weight = self.temperature * as_weights(self.kl_weights)(place.index, place.count, place.progress)
        optimizer = as_optimizer(self.optimizer)
        corrections = optimizer.corrections(step) if isinstance(optimizer, Adam) else (1.0, 1.0)
        return self.learning_rate * factor, scale_rate * factor, kl_weight, *corrections

    def explain(self, model: Model) -> str:
        """Which body runs a step of this method for a model, and why, in one sentence."""
        if model.device.type == "cuda":
            return on_device.program(self, model).reason
        return fused.explain(self, model).reason

    def posterior(self, model: Model, state: MeanFieldState) -> DiagonalGaussian:
        buffers = {name: buffer.clone() for name, buffer in state.buffers.items()}
        return DiagonalGaussian(model, state.mean.clone(), gradients.scales(state.rho)[0], buffers)

    def memory(self, model: Model, particles: int, rows: int) -> int:
        """Bytes of the state with the buffers, the sampled weights and their gradient (activations are the network's
        own)."""
        layout, size = model.layout, torch.finfo(model.dtype).bits // 8
        kept = as_optimizer(self.optimizer).init({"mean": torch.zeros(1, 1), "rho": torch.zeros(1, 1)})
        moments = sum(moment.dim() == 2 for moment in kept.values()) / 2  # and not counters of steps
        state = (layout.size + layout.latent) * (1 + moments)
        buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers.values())
        return int(particles * (size * (state + 2 * self.estimator.samples * layout.size) + buffers))

    # -- the parts of a step ------------------------------------------------------------------------------------------

    def _clip(self, by_name: Mapping[str, Tensor]) -> Tensor | None:
        """Scale the gradients of each particle to at most `clip_norm`, in place; returns the norms before."""
        if self.clip_norm is None:
            return None
        norm = torch.sqrt(sum(g.square().sum(1) for g in by_name.values()))  # type: ignore[arg-type]
        longest = self.clip_norm.to(norm) if isinstance(self.clip_norm, Tensor) else self.clip_norm
        factor = (longest / norm.clamp_min(1e-30)).clamp_max(1.0)
        for gradient in by_name.values():
            gradient.mul_(factor[:, None])
        return norm
