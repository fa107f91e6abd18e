"""ADVI: one Gaussian over all unconstrained columns, with as many correlations as are asked for.

Weights, scales of priors and a noise scale lie on the real line side by side; q is a Gaussian over all of them, whose
draws are a location-scale map of white noise:

    mean field:  theta = m + s z                                                   covariance diag(s^2)             (1)
    low rank:    theta = m + s (z + C^T u)                         diag(s) (1 + C^T C) diag(s), C of r rows         (2)
    full rank:   theta = m + s (1 + B) z                    F F^T with F = diag(s) (1 + B), B strictly lower        (3)

C and B are relative to s = log(1 + exp(rho)), so that one step size fits all of them. Choose it for small networks
whose posterior is correlated (full rank finds a Gaussian posterior exactly; its state grows with the square of the
columns), low rank for larger ones, and Bayes by Backprop for large ones. Minimised is, with n of N rows,

    loss = [ k (E log q(theta) - E log p(theta)) - (N / n) sum_rows E log p(y | x, theta) ] / N                     (4)

by its reparameterised gradient. With `stick_the_landing` log q is differentiated along the path of the draw alone
(Roeder et al. 2017): the noise of the gradient vanishes where q is the posterior. Otherwise the entropy of q is in
closed form. `optimizer="sequence"` takes the steps of the paper (its equation 10) in the place of Adam's.

What differs from the paper: means start at the scale of the fan-in and deviations small, and the divergence is warmed
up; started at the prior, q is often caught where the network is linear.

Reference: Kucukelbir, Tran, Ranganath, Gelman, Blei, "Automatic Differentiation Variational Inference", JMLR 2017. Low
rank: Ong, Nott, Smith 2018.
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
from bayesprop.inference.variational import location_scale
from bayesprop.inference.variational.gradients import scales
from bayesprop.inference.variational.kl_weights import KLWeights, as_weights
from bayesprop.inference.variational.step_sequence import StepSequence
from bayesprop.model import Batch, Model, Place
from bayesprop.posteriors import Posterior
from bayesprop.rng import Rng, Stream

__all__ = ["ADVI", "GaussianState"]

WIDTH = 64  # columns up to which B moves at the learning rate; beyond, its rate falls as one over their number


@dataclass
class GaussianState:
    """mean (particles, columns); shape: "rho" (particles, W) and, as the covariance needs, "factors" C (particles, r,
    W) or "lower" B (particles, W, W), over the W columns with a distribution; the optimiser's moments; buffers."""

    mean: Tensor
    shape: dict[str, Tensor]
    moments: dict[str, Tensor]
    buffers: dict[str, Tensor]


@dataclass(frozen=True)
class ADVI(Method[GaussianState]):
    """Equations of the module's docstring.

    Args:
        covariance: "mean field", "low rank" or "full rank".
        rank: r of the low rank.
        learning_rate: step size, a number or one for each particle.
        optimizer: "adam", ..., or "sequence" for that of the paper, where a good rate lies between 0.01 and 1.
        samples, antithetic: draws of q for a step; antithetic ones come in pairs of opposite noise.
        stick_the_landing: as the module's docstring says.
        kl_weights: "warmup" (0 to 1 over the first half of the training, then the ELBO), "uniform", "geometric" or a
            function of (index, count, progress): k of equation (4).
        temperature: multiplies k, a number or one for each particle.
        initial_mean, initial_scale: where q starts; see `starting_means`.
        schedule: factor on the learning rate as a function of the training's progress.
        memory_budget: GiB that the state may take; the full rank is refused where it takes more.

    >>> ADVI("low rank", rank=8).rank
    8
    """

    about: ClassVar[About | None] = About(
        approximates="the posterior of all columns by a Gaussian: independent, low rank + diagonal, or with all "
        "correlations",
        cost="2 steps (mean field), 2 to 7 (low rank); full rank: products and memory of the square of the weights",
        choose="correlations between weights, and between weights and scales, in small networks",
    )
    covariance: str = "full rank"
    rank: int = 8
    learning_rate: float | Tensor = 5e-3
    optimizer: str | ColumnOptimizer | type[torch.optim.Optimizer] = "adam"
    samples: int = 2
    antithetic: bool = True
    stick_the_landing: bool = True
    kl_weights: str | KLWeights = "warmup"
    temperature: float | Tensor = 1.0
    initial_mean: Start = "fan_in"
    initial_scale: float | Tensor = 0.02
    schedule: Schedule = Cosine()
    memory_budget: float = 2.0

    per_particle = frozenset({"learning_rate", "kl_weights", "temperature", "initial_scale", "schedule"})

    def __post_init__(self) -> None:
        limits = (
            ("learning_rate", self.learning_rate),
            ("initial_scale", self.initial_scale),
            ("memory_budget", self.memory_budget),
            ("rank", self.rank),
            ("samples", self.samples),
        )
        faults = [
            f"{name} must be positive, got {value}"
            for name, value in limits
            if not bool(torch.as_tensor(value > 0).all())
        ]
        if not bool(torch.as_tensor(self.temperature >= 0).all()):
            faults.append(f"temperature must not be negative, got {self.temperature}")
        if self.covariance not in location_scale.COVARIANCES:
            faults.append(f"covariance is one of {', '.join(location_scale.COVARIANCES)}, got {self.covariance!r}")
        if self.antithetic and self.samples % 2:
            faults.append(f"antithetic samples come in pairs, got {self.samples}")
        if faults:
            raise ConfigurationError(
                "ADVI cannot work like this: " + "; ".join(faults), write='ADVI("low rank", rank=8)'
            )
        self._optimizer()
        as_weights(self.kl_weights)

    def _optimizer(self) -> ColumnOptimizer:
        return StepSequence() if self.optimizer == "sequence" else as_optimizer(self.optimizer)

    def resolved(self) -> ADVI:
        return replace(self, optimizer=self._optimizer(), kl_weights=as_weights(self.kl_weights))

    # -- the functions of a method ------------------------------------------------------------------------------------

    def init(self, model: Model, rng: Rng) -> GaussianState:
        check_particles(self, rng.particles)
        needed = self.memory(model, rng.particles, 1) / 2**30
        if needed > self.memory_budget:
            raise ConfigurationError(
                f"ADVI with a {self.covariance} covariance needs {needed:.3g} GiB",
                received=f"{model.layout.latent:,} columns with a distribution, {rng.particles} particles",
                expected=f"at most memory_budget={self.memory_budget:g} GiB",
                write='ADVI("low rank", rank=8)  # or BayesByBackprop(), or a larger memory_budget',
            )
        mean = starting_means(model, rng, self.initial_mean)
        rho = rho_of(starting_scales(model, mean, self.initial_scale))
        shape = location_scale.start(self.covariance, rho, self.rank, rng, model.layout.size)
        moments = self._optimizer().init(_rows(mean, shape))
        return GaussianState(mean, shape, moments, model.initial_buffers(rng.particles))

    def numbers(self, place: Place, step: int | Tensor) -> tuple[Any, ...]:
        """The learning rate, and k."""
        weight = self.temperature * as_weights(self.kl_weights)(place.index, place.count, place.progress)
        return self.learning_rate * self.schedule(place.progress), weight

    def update(self, model: Model, state: GaussianState, batch: Batch, rng: Rng) -> tuple[GaussianState, Info]:
        rate, weight = self.numbers(batch, rng.step) if batch.numbers is None else batch.numbers
        weight = weight.to(state.mean).reshape(-1, 1, 1) if isinstance(weight, Tensor) and weight.dim() else weight
        optimizer = self._optimizer()
        # The paper's steps are those for the sum over all rows.
        share = 1.0 if isinstance(optimizer, StepSequence) else 1.0 / batch.num_data
        found, value = self.gradients(model, state, batch, rng, weight, share)
        rows = _rows(state.mean, state.shape)
        found = {name: tensor.flatten(1) for name, tensor in found.items()}
        rates = dict.fromkeys(rows, rate)
        if "lower" in rates:  # the noise of a row of B adds up over its columns
            rates["lower"] = rate * min(1.0, WIDTH / state.shape["rho"].shape[1])
        optimizer.step(rows, found, state.moments, rates, rng.step)
        return state, Info(value)

    def gradients(
        self, model: Model, state: GaussianState, batch: Batch, rng: Rng, weight: Any, share: float
    ) -> tuple[dict[str, Tensor], Tensor]:
        """The gradient of `share` N times (4) by mean and shape, and the log-likelihood of the full data.

        The network is differentiated by the draws alone; the rest is the chain rule through (1), (2) or (3).
        """
        width, columns = model.layout.latent, self.rank if self.covariance == "low rank" else 0
        draws = self.samples // 2 if self.antithetic else self.samples
        noise = rng.normal(width + columns, Stream.WEIGHTS, draws, state.mean.dtype)
        if self.antithetic:
            noise = torch.cat((noise, -noise), dim=1)
        with torch.enable_grad():
            leaves = {name: tensor.detach().requires_grad_(True) for name, tensor in state.shape.items()}
            std = scales(leaves["rho"])[0]
            white = location_scale.white(leaves, noise, width)
            spread = std[:, None] * white
        mean = state.mean[:, None].expand(-1, noise.shape[1], -1)
        theta = torch.cat((mean[..., :width] + spread.detach(), mean[..., width:]), dim=-1)
        value, gradient = draws_gradient(model, theta, state.buffers, batch)
        gradient[..., :width] += weight * prior_score(model, theta[..., :width])
        if self.stick_the_landing:
            gradient[..., :width] += (
                weight * location_scale.descent(state.shape, white.detach()) / std.detach()[:, None]
            )
        gradient /= noise.shape[1]
        with torch.enable_grad():
            objective = (gradient[..., :width] * spread).sum()
            if not self.stick_the_landing:
                objective = objective + (weight * location_scale.log_det(leaves, std)[:, None, None]).sum()
            shape = torch.autograd.grad(objective, list(leaves.values()), materialize_grads=True)
        by_name = {"mean": gradient.sum(1), **dict(zip(leaves, shape, strict=True))}
        return {name: tensor * -share for name, tensor in by_name.items()}, value.mean(1)

    def posterior(self, model: Model, state: GaussianState) -> Posterior:
        """DiagonalGaussian, LowRankGaussian or FullGaussian."""
        buffers = {name: buffer.clone() for name, buffer in state.buffers.items()}
        return location_scale.posterior(model, state.mean.clone(), state.shape, scales(state.shape["rho"])[0], buffers)

    def memory(self, model: Model, particles: int, rows: int) -> int:
        """Bytes of mean and shape, their gradient and the optimiser's moments, the draws, and buffers."""
        layout, size = model.layout, torch.finfo(model.dtype).bits // 8
        kept = self._optimizer().init({"mean": torch.zeros(1, 1)})
        copies = 2 + sum(moment.dim() == 2 for moment in kept.values())
        shape = {"mean field": 1, "low rank": 1 + self.rank, "full rank": 1 + layout.latent}[self.covariance]
        columns = copies * (layout.size + shape * layout.latent) + 3 * self.samples * layout.size
        buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers.values())
        return particles * (size * columns + buffers)


def _rows(mean: Tensor, shape: dict[str, Tensor]) -> dict[str, Tensor]:
    """Everything that is learnt as matrices with a row for each particle: views, which an optimiser moves in place."""
    return {"mean": mean, **{name: tensor.flatten(1) for name, tensor in shape.items()}}
