"""A normalizing flow as the posterior of a small network: any smooth shape, found by the ELBO.

q is an independent Gaussian bent by affine coupling layers, theta = m + s T(z) (`posteriors.normalizing_flow`); it
starts with T the identity and as Bayes by Backprop starts. Minimised is, with n of N rows,

    loss = [ k (E log q(theta) - E log p(theta)) - (N / n) sum_rows E log p(y | x, theta) ] / N                     (1)
    E log q(theta) = const - sum log s - E log |det dT / dz|                                                       (2)

by its reparameterised gradient: the network is differentiated by the draws alone, the rest is the chain rule through
T. Choose it for networks of some hundred weights whose posterior is bent, where no Gaussian fits. T has networks of
its own, about `layers` times `hidden` times 1.5 parameters for each weight.

References: Rezende, Mohamed, "Variational Inference with Normalizing Flows", ICML 2015. Dinh, Sohl-Dickstein, Bengio,
"Density estimation using Real NVP", ICLR 2017.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.inference.method import About, Info, Method, check_particles
from bayesprop.inference.optimizers import ColumnOptimizer, as_optimizer
from bayesprop.inference.oracle import draws_gradient, prior_score
from bayesprop.inference.schedules import Cosine, Schedule
from bayesprop.inference.starting_point import Start, rho_of, starting_means, starting_scales
from bayesprop.inference.variational.gradients import scales
from bayesprop.inference.variational.kl_weights import KLWeights, as_weights
from bayesprop.model import Batch, Model, Place
from bayesprop.posteriors import NormalizingFlow
from bayesprop.posteriors.normalizing_flow import bend, warp
from bayesprop.rng import Rng, Stream

__all__ = ["Flow", "FlowState"]


@dataclass
class FlowState:
    """mean (particles, columns), rho (particles, W) and the parameters of T (particles, size); moments; buffers."""

    mean: Tensor
    rho: Tensor
    parameters: Tensor
    moments: dict[str, Tensor]
    buffers: dict[str, Tensor]


@dataclass(frozen=True)
class Flow(Method[FlowState]):
    """Equations of the module's docstring.

    Args:
        layers: couplings in T; each half of the weights is moved by every second one.
        hidden: units of the network in a coupling.
        learning_rate: step size of everything, a number or one for each particle.
        optimizer: "adam", "momentum", an optimiser of `inference.optimizers` or a class of `torch.optim`.
        samples: draws for a step.
        kl_weights: "warmup" (0 to 1 over the first half of the training), "uniform", "geometric" or a function: k.
        temperature: multiplies k, a number or one for each particle.
        initial_mean, initial_scale: where q starts; see `starting_means`.
        schedule: factor on the learning rate as a function of the training's progress.
        memory_budget: GiB that the state may take; more is refused.

    >>> Flow(layers=6).hidden
    32
    """

    about: ClassVar[About | None] = About(
        approximates="the posterior by a Gaussian bent by coupling layers",
        cost="8 steps with 4 draws; some hundred numbers for each weight",
        choose="small networks whose posterior no Gaussian fits",
    )
    layers: int = 4
    hidden: int = 32
    learning_rate: float | Tensor = 3e-3
    optimizer: str | ColumnOptimizer | type[torch.optim.Optimizer] = "adam"
    samples: int = 4
    kl_weights: str | KLWeights = "warmup"
    temperature: float | Tensor = 1.0
    initial_mean: Start = "fan_in"
    initial_scale: float | Tensor = 0.02
    schedule: Schedule = Cosine()
    memory_budget: float = 2.0

    per_particle = frozenset({"learning_rate", "kl_weights", "temperature", "initial_scale", "schedule"})

    def __post_init__(self) -> None:
        limits = (
            ("layers", self.layers),
            ("hidden", self.hidden),
            ("learning_rate", self.learning_rate),
            ("samples", self.samples),
            ("initial_scale", self.initial_scale),
            ("memory_budget", self.memory_budget),
        )
        faults = [
            f"{name} must be positive, got {value}"
            for name, value in limits
            if not bool(torch.as_tensor(value > 0).all())
        ]
        if not bool(torch.as_tensor(self.temperature >= 0).all()):
            faults.append(f"temperature must not be negative, got {self.temperature}")
        if faults:
            raise ConfigurationError("Flow cannot work like this: " + "; ".join(faults), write="Flow(layers=4)")
        as_optimizer(self.optimizer)
        as_weights(self.kl_weights)

    def resolved(self) -> Flow:
        return replace(self, optimizer=as_optimizer(self.optimizer), kl_weights=as_weights(self.kl_weights))

    # -- the functions of a method ------------------------------------------------------------------------------------

    def init(self, model: Model, rng: Rng) -> FlowState:
        check_particles(self, rng.particles)
        needed = self.memory(model, rng.particles, 1) / 2**30
        if needed > self.memory_budget:
            raise ConfigurationError(
                f"a flow over {model.layout.latent:,} columns needs {needed:.3g} GiB",
                received=f"{self.layers} layers of {self.hidden} units, {rng.particles} particles",
                expected=f"at most memory_budget={self.memory_budget:g} GiB",
                write='ADVI("low rank", rank=8)  # or BayesByBackprop(), or Flow(hidden=8)',
            )
        mean = starting_means(model, rng, self.initial_mean)
        rho = rho_of(starting_scales(model, mean, self.initial_scale))
        module, skip = warp(rho.shape[1], self.layers, self.hidden), model.layout.size
        drawn = rng.normal(skip + module.size, Stream.INITIAL, dtype=mean.dtype)[:, 0, skip:]
        parameters = module.start(drawn)
        moments = as_optimizer(self.optimizer).init({"mean": mean, "rho": rho, "parameters": parameters})
        return FlowState(mean, rho, parameters, moments, model.initial_buffers(rng.particles))

    def numbers(self, place: Place, step: int | Tensor) -> tuple[Any, ...]:
        """The learning rate, and k."""
        weight = self.temperature * as_weights(self.kl_weights)(place.index, place.count, place.progress)
        return self.learning_rate * self.schedule(place.progress), weight

    def update(self, model: Model, state: FlowState, batch: Batch, rng: Rng) -> tuple[FlowState, Info]:
        rate, weight = self.numbers(batch, rng.step) if batch.numbers is None else batch.numbers
        weight = weight.to(state.mean).reshape(-1, 1, 1) if isinstance(weight, Tensor) and weight.dim() else weight
        found, value = self.gradients(model, state, batch, rng, weight)
        optimizer, rows = as_optimizer(self.optimizer), {name: getattr(state, name) for name in found}
        optimizer.step(rows, found, state.moments, dict.fromkeys(rows, rate), rng.step)
        return state, Info(value)

    def gradients(
        self, model: Model, state: FlowState, batch: Batch, rng: Rng, weight: Any
    ) -> tuple[dict[str, Tensor], Tensor]:
        """The gradient of (1) by mean, rho and the parameters of T, and the log-likelihood of the full data."""
        width = state.rho.shape[1]
        white = rng.normal(width, Stream.WEIGHTS, self.samples, state.mean.dtype)
        leaves = [tensor.detach().requires_grad_(True) for tensor in (state.rho, state.parameters)]
        with torch.enable_grad():
            std = scales(leaves[0])[0]
            bent, determinant = bend(warp(width, self.layers, self.hidden), leaves[1], white)
            spread = std[:, None] * bent
        mean = state.mean[:, None].expand(-1, self.samples, -1)
        theta = torch.cat((mean[..., :width] + spread.detach(), mean[..., width:]), dim=-1)
        value, gradient = draws_gradient(model, theta, state.buffers, batch)
        gradient[..., :width] += weight * prior_score(model, theta[..., :width])
        with torch.enable_grad():
            entropy = determinant[..., None] + std.log().sum(1)[:, None, None]
            objective = (gradient[..., :width] * spread).sum() + (weight * entropy).sum()
            by_rho, by_parameters = torch.autograd.grad(objective, leaves, materialize_grads=True)
        share = -1.0 / (batch.num_data * self.samples)
        by_mean = gradient.sum(1)
        return {"mean": by_mean * share, "rho": by_rho * share, "parameters": by_parameters * share}, value.mean(1)

    def posterior(self, model: Model, state: FlowState) -> NormalizingFlow:
        buffers = {name: buffer.clone() for name, buffer in state.buffers.items()}
        shape = torch.tensor([[self.layers, self.hidden]], device=state.mean.device).repeat(state.mean.shape[0], 1)
        std = scales(state.rho)[0]
        return NormalizingFlow(model, state.mean.clone(), std, state.parameters.clone(), shape, buffers)

    def memory(self, model: Model, particles: int, rows: int) -> int:
        """Bytes of the state with its gradient and moments, of draws in each layer, and of buffers."""
        layout, size = model.layout, torch.finfo(model.dtype).bits // 8
        kept = as_optimizer(self.optimizer).init({"mean": torch.zeros(1, 1)})
        moments = sum(moment.dim() == 2 for moment in kept.values())
        half = -(-layout.latent // 2)
        parameters = self.layers * (self.hidden * (half + 1) + 2 * half * (self.hidden + 1))
        columns = (2 + moments) * (layout.size + layout.latent + parameters)
        columns += 6 * self.samples * (layout.size + self.layers * self.hidden)
        buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers.values())
        return particles * (size * columns + buffers)
