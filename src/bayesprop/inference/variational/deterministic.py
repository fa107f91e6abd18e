"""DVI: variational inference without a single sample, for stacks of dense layers.

Approximates the posterior by q(w) = prod_i N(m_i, s_i^2), as Bayes by Backprop does. Where the weights are independent
Gaussians the mean and the covariance of a network's outputs can be propagated from layer to layer (`moments`), and the
expected log-likelihood follows from them (`expected_likelihood`). What is minimised is then a number and no estimate,

    loss = [ k T KL(q || prior) - (N / n) sum_rows E log p(y | x, w) ] / N,                                         (1)

whose gradient has no noise but that of minibatches. For one hidden layer and Gaussian noise (1) is the ELBO exactly
(Hinton and van Camp 1993); for more layers, and for classes, it is an approximation of it that the two modules name.
Choose it for small dense networks in regression, where it finds in few steps what sampled gradients find in many; other
networks, and hierarchical priors, have no such moments. Priors without a closed form are integrated by quadrature.

What differs from Wu et al. (2019): the covariance between hidden units is to first order; classes have a bound in the
place of an expansion; the prior is the model's and not set from the weights.

References: Hinton, van Camp, "Keeping Neural Networks Simple by Minimizing the Description Length of the Weights",
COLT 1993. Wu, Nowozin, Meeds, Turner, Hernandez-Lobato, Gaunt, "Deterministic Variational Inference for Robust Bayesian
Neural Networks", ICLR 2019.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.inference.method import About, Info, Method, check_particles
from bayesprop.inference.optimizers import ColumnOptimizer, as_optimizer
from bayesprop.inference.oracle import prior_score
from bayesprop.inference.schedules import Cosine, Schedule
from bayesprop.inference.starting_point import Start, rho_of, starting_means, starting_scales
from bayesprop.inference.variational.bayes_by_backprop import MeanFieldState
from bayesprop.inference.variational.expected_likelihood import check_likelihood, expected_log_likelihood
from bayesprop.inference.variational.gradients import scales
from bayesprop.inference.variational.kl_weights import KLWeights, as_weights
from bayesprop.inference.variational.moments import nodes, output_moments
from bayesprop.model import Batch, Model, Place
from bayesprop.posteriors import DiagonalGaussian
from bayesprop.rng import Rng
from bayesprop.stacks import dense_parts

__all__ = ["DVI", "data_term"]

PRIOR_NODES = 16


@dataclass(frozen=True)
class DVI(Method[MeanFieldState]):
    """Equation (1) of the module's docstring.

    Args:
        covariance: "full" between the units of a hidden layer, or "diagonal", which is cheaper and the same for one
            hidden layer.
        learning_rate: step size of mean and rho, a number or one for each particle.
        optimizer: "adam", "momentum", an optimiser of `inference.optimizers` or a class of `torch.optim`.
        kl_weights: "warmup" (0 to 1 over the first half of the training), "uniform", "geometric" or a function: k.
        temperature: T, a number or one for each particle.
        initial_mean, initial_scale: where q starts; see `starting_means`.
        schedule: factor on the learning rate as a function of the training's progress.

    >>> DVI(covariance="diagonal").temperature
    1.0
    """

    about: ClassVar[About | None] = About(
        approximates="the posterior by an independent Gaussian for each weight",
        cost="4 steps for one hidden layer; (rows, width, width) products for each further one",
        choose="small dense networks: the ELBO itself, without the noise of samples",
    )
    covariance: str = "full"
    learning_rate: float | Tensor = 3e-3
    optimizer: str | ColumnOptimizer | type[torch.optim.Optimizer] = "adam"
    kl_weights: str | KLWeights = "warmup"
    temperature: float | Tensor = 1.0
    initial_mean: Start = "fan_in"
    initial_scale: float | Tensor = 0.02
    schedule: Schedule = Cosine()

    per_particle = frozenset({"learning_rate", "kl_weights", "temperature", "initial_scale", "schedule"})

    def __post_init__(self) -> None:
        faults = [
            f"{name} must be positive, got {value}"
            for name, value in (("learning_rate", self.learning_rate), ("initial_scale", self.initial_scale))
            if not bool(torch.as_tensor(value > 0).all())
        ]
        if not bool(torch.as_tensor(self.temperature >= 0).all()):
            faults.append(f"temperature must not be negative, got {self.temperature}")
        if self.covariance not in ("full", "diagonal"):
            faults.append(f'covariance is "full" or "diagonal", got {self.covariance!r}')
        if faults:
            raise ConfigurationError("DVI cannot work like this: " + "; ".join(faults), write="DVI(learning_rate=1e-2)")
        as_optimizer(self.optimizer)
        as_weights(self.kl_weights)

    def resolved(self) -> DVI:
        return replace(self, optimizer=as_optimizer(self.optimizer), kl_weights=as_weights(self.kl_weights))

    # -- the functions of a method ------------------------------------------------------------------------------------

    def init(self, model: Model, rng: Rng) -> MeanFieldState:
        check_likelihood(model.likelihood, _parts(model)[-1][1].out_features)
        check_particles(self, rng.particles)
        mean = starting_means(model, rng, self.initial_mean)
        rho = rho_of(starting_scales(model, mean, self.initial_scale))
        moments = as_optimizer(self.optimizer).init({"mean": mean, "rho": rho})
        return MeanFieldState(mean, rho, moments, model.initial_buffers(rng.particles))

    def numbers(self, place: Place, step: int | Tensor) -> tuple[Any, ...]:
        """The learning rate, and k T."""
        weight = self.temperature * as_weights(self.kl_weights)(place.index, place.count, place.progress)
        return self.learning_rate * self.schedule(place.progress), weight

    def update(self, model: Model, state: MeanFieldState, batch: Batch, rng: Rng) -> tuple[MeanFieldState, Info]:
        rate, weight = self.numbers(batch, rng.step) if batch.numbers is None else batch.numbers
        weight = weight.to(state.mean).reshape(-1, 1) if isinstance(weight, Tensor) and weight.dim() else weight
        std, slope = scales(state.rho)
        leaves = state.mean.detach().requires_grad_(True), std.detach().requires_grad_(True)
        with torch.enable_grad():
            value = data_term(model, *leaves, batch, full=self.covariance == "full")
            by_mean, by_std = torch.autograd.grad(value.sum(), leaves, materialize_grads=True)
        kl_mean, kl_std = _divergence_gradients(model, state.mean[:, : std.shape[1]], std)
        mean = by_mean / -batch.rows
        mean[:, : std.shape[1]] += weight / batch.num_data * kl_mean
        rho = slope * (by_std / -batch.rows + weight / batch.num_data * kl_std)
        optimizer, rates = as_optimizer(self.optimizer), {"mean": rate, "rho": rate}
        found = {"mean": mean, "rho": rho}
        optimizer.step({"mean": state.mean, "rho": state.rho}, found, state.moments, rates, rng.step)
        return state, Info(value.detach() * (batch.num_data / batch.rows))

    def posterior(self, model: Model, state: MeanFieldState) -> DiagonalGaussian:
        buffers = {name: buffer.clone() for name, buffer in state.buffers.items()}
        return DiagonalGaussian(model, state.mean.clone(), scales(state.rho)[0], buffers)

    def memory(self, model: Model, particles: int, rows: int) -> int:
        """Bytes of the state and its gradient, and of the covariances between hidden units."""
        layout, size = model.layout, torch.finfo(model.dtype).bits // 8
        kept = as_optimizer(self.optimizer).init({"mean": torch.zeros(1, 1)})
        moments = sum(moment.dim() == 2 for moment in kept.values())
        widths = [module.out_features for _, module, _ in _parts(model)]
        units = 3 * sum(width**2 for width in widths[1:]) if self.covariance == "full" else widths[-1] ** 2
        buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers.values())
        return particles * (size * ((2 + moments) * (layout.size + layout.latent) + rows * units) + buffers)


def data_term(model: Model, mean: Tensor, std: Tensor, batch: Batch, *, full: bool = True) -> Tensor:
    """sum_rows E log p(y | x, w) of a minibatch, (particles,), differentiable by mean and std."""
    layout = model.layout
    means = layout.unflatten(mean, ("random", "point"))
    stds = layout.unflatten(torch.nn.functional.pad(std, (0, layout.size - std.shape[1])), ("random",))
    outputs, covariance = output_moments(_parts(model), means, stds, batch.inputs, full=full)
    found = {}
    for latent in model.likelihood.latents:
        columns = layout.by_name[latent.name].columns
        found[latent.name] = mean[:, columns], std[:, columns]
    return expected_log_likelihood(model.likelihood, outputs, covariance, batch.targets, found)


def _parts(model: Model) -> Any:
    """The layers of the network, or why there are no moments of it."""
    parts = dense_parts(model.network)
    reason = parts if isinstance(parts, str) else ""
    if not reason and len({id(module) for _, module, _ in parts}) < len(parts):
        reason = "a layer is used twice"
    if not reason and any(block.aliases for block in model.layout.blocks):
        reason = "a weight is tied to another"
    if not reason and model.output is not None:
        reason = "the prediction is picked out of what the network returns"
    if not reason and model.bound_prior.latents:
        reason = "weights and the learnt scale of their prior are not independent"
    if reason:
        raise ConfigurationError(
            "DVI propagates moments through stacks of dense layers with independent weights",
            received=reason,
            expected="torch.nn.Sequential of Linear layers with ReLU, Tanh or Sigmoid between them, and a prior whose "
            "scales are known",
            write="BayesByBackprop(estimator=LocalReparameterization())  # or ADVI(), for any network and prior",
        )
    return parts


def _divergence_gradients(model: Model, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of KL(q || prior) by mean and std: in closed form where there is one, by quadrature elsewhere.

    The prior is a product over columns, so that one node may stand for all of them at once.
    """
    random = model.layout.random
    closed = model.bound_prior.kl_gradients(mean[:, :random], std[:, :random])
    places, weights = nodes(mean, PRIOR_NODES)
    by_mean, by_std = torch.zeros_like(mean), -1.0 / std
    if closed is None or std.shape[1] > random:
        for place, weight in zip(places, weights, strict=True):
            score = prior_score(model, mean + std * place, skip_weights=closed is not None)
            by_mean -= weight * score
            by_std -= weight * place * score
    if closed is not None:
        by_mean[:, :random], by_std[:, :random] = closed
    return by_mean, by_std
