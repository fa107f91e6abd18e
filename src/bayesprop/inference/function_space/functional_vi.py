"""Functional variational inference: mean-field weights, held to a prior over functions.

q(theta) = prod N(mean_i, std_i^2) as in Bayes by Backprop, but what it is kept close to is a Gaussian process on the
functions: for measured inputs X_m, some rows of the minibatch and some places drawn around them, maximised is

    N / n sum_rows E_q log p(y | f(x)) - KL(q(f(X_m)) || p(f(X_m))) - KL(q(t) || p(t))                             (1)

with t the likelihood's own latents. The divergence between processes is the supremum of the second term over all finite
X_m (Sun et al. 2019); random X_m bound it from below. Their q(f) has no density, so that they estimate its score from
samples (the spectral Stein estimator). Here it is Gaussian in closed form, by the network's expansion at the mean,

    q(f(X_m)) = N(f(X_m; mean), J diag(std^2) J' + g^2),     p(f(X_m)) = N(0, k(X_m, X_m) + g^2)                    (2)

with the Jacobian J and a nugget g on both sides (Rudner et al. 2022): exact where the network is linear in its weights
and close where q is narrow, without noise, and with a gradient through J. The first term of (1) is sampled with a pair
of draws, mean + std e and mean - std e. The prior over the weights plays no part.

References: Sun, Zhang, Shi, Grosse, "Functional Variational Bayesian Neural Networks", ICLR 2019; Rudner, Chen, Teh,
Gal, "Tractable Function-Space Variational Inference in Bayesian Neural Networks", NeurIPS 2022.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from bayesprop import lanes
from bayesprop.errors import ConfigurationError, MemoryBudgetError
from bayesprop.inference.function_space.process_prior import RBF, FunctionPrior, gaussian_divergence
from bayesprop.inference.method import About, Info, Method
from bayesprop.inference.optimizers import Adam
from bayesprop.inference.schedules import Cosine, Schedule
from bayesprop.inference.starting_point import Start, rho_of, starting_means
from bayesprop.model import Batch, Model, Place
from bayesprop.posteriors import DiagonalGaussian
from bayesprop.rng import Rng, Stream

__all__ = ["FunctionalState", "FunctionalVI", "measured", "process_moments"]

GIBIBYTE = 2**30


@dataclass
class FunctionalState:
    """mean (particles, columns); rho of those with a distribution, std = softplus(rho); moments; buffers."""

    mean: Tensor
    rho: Tensor
    moments: dict[str, Tensor]
    buffers: dict[str, Tensor]


def measured(inputs: Tensor, rows: int, places: int, margin: float, rng: Rng) -> Tensor:
    """X_m for each particle (particles, m, ...): up to `rows` of the rows (particles, n, ...), and `places` drawn
    uniformly from their box, which is wider by `margin` times its size on each side."""
    count = inputs.shape[1]
    order = rng.permutation(count, Stream.MEASUREMENT)[:, :rows]
    some = torch.stack([part[chosen] for part, chosen in zip(inputs, order, strict=True)])
    if places == 0:
        return some
    low, high = inputs.amin(1, keepdim=True), inputs.amax(1, keepdim=True)
    noise = torch.special.ndtr(rng.normal(places * some[0, 0].numel(), Stream.MEASUREMENT, dtype=torch.float64))
    share = noise[:, 0].reshape(len(inputs), places, *inputs.shape[2:]).to(inputs.dtype)
    drawn = low + (high - low) * ((1.0 + 2.0 * margin) * share - margin)
    return torch.cat((some, drawn), dim=1)


def process_moments(
    model: Model, mean: Tensor, std: Tensor, buffers: Mapping[str, Tensor], inputs: Tensor
) -> tuple[Tensor, Tensor]:
    """Equation (2) without g for one row of means (columns,), spreads (columns with a distribution,), and inputs
    (m, ...): mean (K, m) and covariance (K m, K m), float64, differentiable."""
    width = len(std)

    def outputs(columns: Tensor) -> tuple[Tensor, Tensor]:
        theta = torch.cat((columns, mean[width:]))
        found = model.forward(model.weights(theta), dict(buffers), inputs)
        found = found.reshape(len(inputs), -1).T.flatten()
        return found, found

    if model.vectorised:
        with lanes.batchable():
            jacobian, value = torch.func.jacrev(outputs, has_aux=True)(mean[:width])
    else:
        value, _ = outputs(mean[:width])
        pieces = [torch.autograd.grad(v, mean, create_graph=True, materialize_grads=True)[0][:width] for v in value]
        jacobian = torch.stack(pieces)
    scaled = jacobian.double() * std.double()
    return value.double().reshape(-1, len(inputs)), scaled @ scaled.T


@dataclass(frozen=True)
class FunctionalVI(Method[FunctionalState]):
    """Equations of the module's docstring.

    Args:
        prior: over functions: `RBF(amplitude, length)`, `WidePrior()` or an object with their two functions.
        measured_rows: rows of the minibatch among the measured inputs.
        measured_places: places drawn around them; where functions are held to the prior although there are no data.
        margin: how far the box that places come from goes beyond the rows, as a share of its size.
        nugget: g of equation (2), in units of the network's output.
        learning_rate: of Adam on means and rho.
        initial_mean, initial_scale: where q starts; see `starting_means`.
        schedule: factor on the learning rate over the training.
        memory_budget: GiB that Jacobians may take.

    >>> FunctionalVI(prior=RBF(length=0.5)).measured_rows
    16
    """

    about: ClassVar[About | None] = About(
        approximates="the posterior by an independent Gaussian for each weight, under a prior over functions",
        cost="a backward pass for each measured input and output: some 10 steps",
        choose="a belief about functions (smoothness, size) in place of one about weights, on small networks",
    )
    prior: FunctionPrior = RBF()
    measured_rows: int = 16
    measured_places: int = 16
    margin: float = 0.5
    nugget: float = 0.03
    learning_rate: float = 3e-3
    initial_mean: Start = "fan_in"
    initial_scale: float = 0.05
    schedule: Schedule = Cosine()
    memory_budget: float = 2.0

    def __post_init__(self) -> None:
        faults = []
        if self.measured_rows < 1:
            faults.append(f"measured_rows must be at least 1, got {self.measured_rows}")
        for key in ("measured_places", "margin"):
            if getattr(self, key) < 0:
                faults.append(f"{key} must not be negative, got {getattr(self, key)}")
        for key in ("nugget", "learning_rate", "initial_scale", "memory_budget"):
            if not getattr(self, key) > 0:
                faults.append(f"{key} must be positive, got {getattr(self, key)}")
        if isinstance(self.prior, type) or not isinstance(self.prior, FunctionPrior):
            faults.append(f"prior is a prior over functions, RBF() or WidePrior(), got {self.prior!r}")
        if faults:
            raise ConfigurationError(
                "FunctionalVI cannot work like this: " + "; ".join(faults), write="FunctionalVI(prior=RBF(length=1.0))"
            )

    # -- the functions of a method ------------------------------------------------------------------------------------

    def init(self, model: Model, rng: Rng) -> FunctionalState:
        self.prior.check(model)
        needed, allowed = self._jacobian(model, 1), self.memory_budget * GIBIBYTE
        if needed > allowed:
            raise MemoryBudgetError(
                "FunctionalVI: the Jacobian of one output at the measured inputs does not fit into its memory budget",
                received=f"{self.measured_rows + self.measured_places} inputs by {model.layout.latent:,} columns: "
                f"{needed / GIBIBYTE:.2f} GiB for each output",
                expected=f"at most memory_budget={self.memory_budget:g} GiB",
                write="FunctionalVI(measured_rows=4, measured_places=4)  # or BayesByBackprop()",
            )
        mean = starting_means(model, rng, self.initial_mean)
        spread = torch.full_like(mean[:, : model.layout.latent], self.initial_scale)
        rho = rho_of(spread)
        moments = Adam().init({"mean": mean, "rho": rho})
        return FunctionalState(mean, rho, moments, model.initial_buffers(rng.particles))

    def numbers(self, place: Place, step: int) -> tuple[float | Tensor, ...]:
        """The learning rate."""
        return (self.learning_rate * self.schedule(place.progress),)

    def update(self, model: Model, state: FunctionalState, batch: Batch, rng: Rng) -> tuple[FunctionalState, Info]:
        (rate,) = self.numbers(batch, 0) if batch.numbers is None else batch.numbers
        if not isinstance(batch.inputs, Tensor) or not batch.inputs.is_floating_point():
            raise ConfigurationError(
                "FunctionalVI measures functions at inputs that it draws around the rows",
                received="inputs that are whole numbers, or several tensors",
                expected="one tensor of numbers",
                write="BayesByBackprop()",
            )
        mean, rho = (t.detach().clone().requires_grad_(True) for t in (state.mean, state.rho))
        width = model.layout.latent
        with torch.enable_grad():
            std = torch.nn.functional.softplus(rho)
            noise = rng.normal(width, Stream.WEIGHTS, dtype=model.dtype)[:, 0]
            points = mean[:, width:]
            pair = [torch.cat((mean[:, :width] + sign * std * noise, points), dim=1) for sign in (1.0, -1.0)]
            theta = torch.stack(pair, dim=1)
            value = model.log_likelihood(theta, state.buffers, batch).mean(1) * (batch.num_data / batch.rows)
            penalty = self.divergence(model, mean, std, state.buffers, batch.inputs, rng)
            objective = value.double() - penalty - self._of_latents(model, theta, std)
            found = torch.autograd.grad(objective.sum(), (mean, rho), materialize_grads=True)
        gradients = {name: g.mul(-1.0 / batch.num_data) for name, g in zip(("mean", "rho"), found, strict=True)}
        parts = {"mean": state.mean, "rho": state.rho}
        Adam().step(parts, gradients, state.moments, {"mean": rate, "rho": rate}, rng.step)
        return state, Info(value.detach())

    def posterior(self, model: Model, state: FunctionalState) -> DiagonalGaussian:
        buffers = {name: buffer.clone() for name, buffer in state.buffers.items()}
        return DiagonalGaussian(model, state.mean.clone(), torch.nn.functional.softplus(state.rho), buffers)

    def memory(self, model: Model, particles: int, rows: int) -> int:
        """Bytes of means and rho, their gradients and moments, and of a Jacobian for one output."""
        columns = 4 * (model.layout.size + model.layout.latent) * torch.finfo(model.dtype).bits // 8
        buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers.values())
        return particles * (columns + buffers) + self._jacobian(model, 1)

    # -- the divergence -----------------------------------------------------------------------------------------------

    def divergence(
        self, model: Model, mean: Tensor, std: Tensor, buffers: Mapping[str, Tensor], inputs: Tensor, rng: Rng
    ) -> Tensor:
        """KL(q(f(X_m)) || p(f(X_m))) of (2) at measured inputs, (particles,). The network is in evaluation mode, where
        rows do not touch one another."""
        places = measured(inputs, self.measured_rows, self.measured_places, self.margin, rng)
        training, found = model.network.training, []
        model.set_mode(False)
        for particle, rows in enumerate(places):
            own = {name: buffer[particle] for name, buffer in buffers.items()}
            center, covariance = process_moments(model, mean[particle], std[particle], own, rows)
            prior = self.prior.covariance(model, rows)
            for matrix in (covariance, prior):
                matrix.diagonal().add_(self.nugget**2)
            found.append(gaussian_divergence(center, covariance, prior))
        model.set_mode(training)
        return torch.stack(found)

    @staticmethod
    def _of_latents(model: Model, theta: Tensor, std: Tensor) -> Tensor:
        """KL(q(t) || p(t)) of the likelihood's latents but for a constant: log p at both draws, the exact entropy."""
        total = torch.zeros(len(theta), dtype=torch.float64, device=theta.device)
        for latent in model.likelihood.latents:
            columns = model.layout.by_name[latent.name].columns
            total = total - latent.unconstrained_log_density(theta[..., columns]).mean(1) - std[:, columns].log().sum(1)
        return total

    def _jacobian(self, model: Model, outputs: int) -> int:
        """Bytes of J and of its product with the deviations, in theta's dtype and float64."""
        inputs = self.measured_rows + self.measured_places
        return outputs * inputs * model.layout.latent * (2 * 8 + torch.finfo(model.dtype).bits // 8)
