"""Boosting: a mixture of Gaussians that grows component by component.

The training is cut into K phases of equal length. In phase k a new component c = prod_i N(m_i, s_i^2) joins what there
is, q = (1 - a) q_old + a c, and c and a climb the ELBO of the whole mixture while the old components rest:

    d ELBO / d (m, s) = a E_c d / d theta [log p(theta, D) - log q(theta)] . d theta / d (m, s)                     (1)
    d ELBO / d a      = E_c [log p(theta, D) - log q(theta)] - E_old [log p(theta, D) - log q(theta)]               (2)

log q is differentiated along the path of the draw alone, which leaves nothing out: the score of q has mean 0 under q.
Where the old components are dense, -log q repels the new one; it starts at means of its own, so that it may find
another mode. The factor a of (1) is left out, as a step size. a moves, by Adam on its logit, in the second half of a
phase, when c has found a place; with `weights="equal"` it is 1 / (k + 1), and the mixture an ensemble whose members
keep their distance. Choose it where the posterior has several modes or a shape that no Gaussian has. Weights that are
learnt go where the ELBO is, and leave little to a mode that is some nats worse.

References: Guo, Wang, Fan, Broderick, Dunson, "Boosting Variational Inference", 2016. Miller, Foti, Adams,
"Variational Boosting: Iteratively Refining Posterior Approximations", ICML 2017. Locatello et al., AISTATS 2018.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.inference.method import About, Info, Method, check_particles
from bayesprop.inference.optimizers import Adam, ColumnOptimizer, as_optimizer
from bayesprop.inference.oracle import draws_gradient, prior_score
from bayesprop.inference.schedules import Cosine, Schedule
from bayesprop.inference.starting_point import Start, rho_of, starting_means, starting_scales
from bayesprop.inference.variational.gradients import scales
from bayesprop.model import Batch, Model, Place
from bayesprop.posteriors import GaussianMixture
from bayesprop.posteriors.gaussian_mixture import mixture_log_density
from bayesprop.rng import Rng, Stream

__all__ = ["Boosting", "MixtureState", "stick_weights"]

LOGIT = Adam()


@dataclass
class MixtureState:
    """mean (particles, K, columns); rho (particles, K, W); logit of a (particles, K), whose first is not used; how many
    steps each component (particles, K) has taken, and how many since it counts; moments by component; buffers
    (particles, K, ...)."""

    mean: Tensor
    rho: Tensor
    logit: Tensor
    steps: Tensor
    joined: Tensor
    moments: list[dict[str, Tensor]]
    buffers: dict[str, Tensor]


def stick_weights(shares: Tensor) -> Tensor:
    """w_k = a_k prod_(j > k) (1 - a_j) of a (particles, K): what each component has when the last has joined."""
    rest = torch.cat((1.0 - shares[:, 1:], torch.ones_like(shares[:, :1])), dim=1)
    return shares * rest.flip(1).cumprod(1).flip(1)


@dataclass(frozen=True)
class Boosting(Method[MixtureState]):
    """Equations of the module's docstring.

    Args:
        components: K.
        weights: "learnt", by (2), or "equal".
        learning_rate: step size of means and rho, a number or one for each particle; it falls to 0 in each phase as
            `schedule` says. `weight_learning_rate` is that of the logit of a.
        optimizer: "adam", "momentum", an optimiser of `inference.optimizers` or a class of `torch.optim`.
        samples: draws of the new component for a step.
        warmup: share of a phase over which the divergence grows to its full weight.
        initial_mean, initial_scale: where components start; see `starting_means`.

    >>> Boosting(components=5).weights
    'learnt'
    """

    about: ClassVar[About | None] = About(
        approximates="the posterior by a mixture of independent Gaussians",
        cost="2 to 3 steps; 2 copies of the weights for each component",
        choose="several modes, or a shape that no Gaussian has",
    )
    components: int = 3
    weights: str = "learnt"
    learning_rate: float | Tensor = 3e-3
    weight_learning_rate: float = 0.02
    optimizer: str | ColumnOptimizer | type[torch.optim.Optimizer] = "adam"
    samples: int = 1
    warmup: float = 0.5
    initial_mean: Start = "fan_in"
    initial_scale: float | Tensor = 0.02
    schedule: Schedule = Cosine()

    per_particle = frozenset({"learning_rate", "initial_scale"})
    looks_at_host = "which component is trained is chosen by the host"

    def __post_init__(self) -> None:
        limits = (
            ("components", self.components),
            ("learning_rate", self.learning_rate),
            ("weight_learning_rate", self.weight_learning_rate),
            ("samples", self.samples),
            ("initial_scale", self.initial_scale),
        )
        faults = [
            f"{name} must be positive, got {value}"
            for name, value in limits
            if not bool(torch.as_tensor(value > 0).all())
        ]
        if self.weights not in ("learnt", "equal"):
            faults.append(f'weights is "learnt" or "equal", got {self.weights!r}')
        if not 0.0 <= self.warmup <= 1.0:
            faults.append(f"warmup is a share of a phase in [0, 1], got {self.warmup}")
        if faults:
            raise ConfigurationError(
                "Boosting cannot work like this: " + "; ".join(faults), write="Boosting(components=3)"
            )
        as_optimizer(self.optimizer)

    def resolved(self) -> Boosting:
        return replace(self, optimizer=as_optimizer(self.optimizer))

    # -- the functions of a method ------------------------------------------------------------------------------------

    def init(self, model: Model, rng: Rng) -> MixtureState:
        check_particles(self, rng.particles)
        places = [starting_means(model, rng.at(k), self.initial_mean) for k in range(self.components)]
        mean = torch.stack(places, dim=1)
        rho = torch.stack([rho_of(starting_scales(model, place, self.initial_scale)) for place in places], dim=1)
        shares = 1.0 / torch.arange(1, self.components + 1, dtype=mean.dtype, device=mean.device)
        optimizer, moments = as_optimizer(self.optimizer), []
        for k in range(self.components):
            found = optimizer.init({"mean": mean[:, k], "rho": rho[:, k]})
            moments.append(found | LOGIT.init({"logit": mean.new_zeros(rng.particles, 1)}))
        logit = torch.logit(shares.clamp(max=0.5)).expand(rng.particles, -1).clone()
        counters = torch.zeros_like(logit)
        buffers = model.initial_buffers(rng.particles).items()
        copies = {n: b[:, None].repeat(1, self.components, *[1] * (b.dim() - 1)) for n, b in buffers}
        return MixtureState(mean, rho, logit, counters, counters.clone(), moments, copies)

    def numbers(self, place: Place, step: int | Tensor) -> tuple[Any, ...]:
        """The component that is trained, how far its phase is, its learning rate, and that of a."""
        passed = place.progress * self.components + 1e-9
        phase = min(int(passed), self.components - 1)
        progress = min(passed - phase, 1.0)
        factor = self.schedule(progress)
        return phase, progress, self.learning_rate * factor, self.weight_learning_rate * factor

    def update(self, model: Model, state: MixtureState, batch: Batch, rng: Rng) -> tuple[MixtureState, Info]:
        k, progress, rate, weight_rate = self.numbers(batch, rng.step)
        heat = min(1.0, progress / self.warmup) if self.warmup > 0.0 else 1.0
        width, count = state.rho.shape[2], batch.num_data
        std, slope = scales(state.rho)
        noise = rng.normal(width + 1, Stream.WEIGHTS, 2 * self.samples, state.mean.dtype)
        epsilon = noise[:, : self.samples, :width]
        mean, buffers = state.mean[:, k], {name: stack[:, k] for name, stack in state.buffers.items()}
        theta = mean[:, None].repeat(1, self.samples, 1)
        theta[..., :width] += std[:, k, None] * epsilon
        value, gradient = draws_gradient(model, theta, buffers, batch)
        mixture = self._weights(state, k + 1).log(), state.mean[:, : k + 1, :width], std[:, : k + 1]
        leaf = theta[..., :width].detach().requires_grad_(True)
        with torch.enable_grad():
            log_q = mixture_log_density(leaf, *mixture)
            (fall,) = torch.autograd.grad(log_q.sum(), leaf)
        gradient[..., :width] += heat * (prior_score(model, theta[..., :width]) - fall)
        if k == 0 or progress >= 0.5:
            if k > 0 and self.weights == "learnt":
                here = value - heat * (log_q.detach() - model.log_prior(theta))
                there = self._at_old(model, state, std, noise[:, self.samples :], batch, k, heat, mixture)
                share = torch.sigmoid(state.logit[:, k : k + 1])
                climb = share * (1.0 - share) * (here - there).mean(1, keepdim=True) / -count
                moving, place = {"logit": state.logit[:, k : k + 1]}, int(state.joined[0, k])
                LOGIT.step(moving, {"logit": climb}, state.moments[k], {"logit": weight_rate}, place)
            state.joined[:, k] += 1.0
        rows = {"mean": mean, "rho": state.rho[:, k]}
        by_rho = (gradient[..., :width] * epsilon).mean(1) * slope[:, k]
        found = {"mean": gradient.mean(1) / -count, "rho": by_rho / -count}
        optimizer, rates = as_optimizer(self.optimizer), {"mean": rate, "rho": rate}
        optimizer.step(rows, found, state.moments[k], rates, int(state.steps[0, k]))
        state.steps[:, k] += 1.0
        return state, Info(value.mean(1))

    def _weights(self, state: MixtureState, count: int) -> Tensor:
        """Weights of the first components (particles, count)."""
        shares = torch.sigmoid(state.logit[:, :count])
        return stick_weights(torch.cat((torch.ones_like(shares[:, :1]), shares[:, 1:]), dim=1))

    def _at_old(
        self,
        model: Model,
        state: MixtureState,
        std: Tensor,
        noise: Tensor,
        batch: Batch,
        k: int,
        heat: float,
        mixture: tuple[Tensor, Tensor, Tensor],
    ) -> Tensor:
        """log p(theta, D) - log q(theta) at draws of the first k components, (particles, samples)."""
        width = state.rho.shape[2]
        rows = torch.arange(noise.shape[0], device=noise.device)
        steps = self._weights(state, k).cumsum(1)[:, :-1].contiguous()
        chosen = torch.searchsorted(steps, torch.special.ndtr(noise[..., width]), right=True)
        found = []
        for sample in range(noise.shape[1]):
            which = chosen[:, sample]
            theta = state.mean[rows, which].clone()
            theta[:, :width] += std[rows, which] * noise[:, sample, :width]
            buffers = {name: stack[rows, which] for name, stack in state.buffers.items()}
            value = model.log_likelihood(theta[:, None], buffers, batch)[:, 0] * (batch.num_data / batch.rows)
            log_q = mixture_log_density(theta[:, None, :width], *mixture)[:, 0]
            found.append(value - heat * (log_q - model.log_prior(theta)))
        return torch.stack(found, dim=1).detach()

    def posterior(self, model: Model, state: MixtureState) -> GaussianMixture:
        """The components that count so far; the first at the start."""
        count = max(1, int((state.joined[0] > 0).sum()))
        mean, std = state.mean[:, :count].clone(), scales(state.rho[:, :count])[0]
        own = {name: stack[:, :count].clone() for name, stack in state.buffers.items()}
        buffers = {name: stack[:, 0].clone(memory_format=torch.contiguous_format) for name, stack in own.items()}
        return GaussianMixture(model, self._weights(state, count), mean, std, buffers, component_buffers=own)

    def memory(self, model: Model, particles: int, rows: int) -> int:
        """Bytes of the components with their moments, of draws and gradients, and of the components' buffers."""
        layout, size = model.layout, torch.finfo(model.dtype).bits // 8
        kept = as_optimizer(self.optimizer).init({"mean": torch.zeros(1, 1)})
        moments = sum(moment.dim() == 2 for moment in kept.values())
        columns = self.components * ((1 + moments) * (layout.size + layout.latent) + 5)
        buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers.values())
        return particles * (size * (columns + 6 * self.samples * layout.size) + self.components * buffers)
