"""A problem: a model that has looked at its data, minibatches for any number of particles, and a place for q to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.inference import BayesByBackprop, Constant
from bayesprop.inference.variational.bayes_by_backprop import MeanFieldState
from bayesprop.model import Batch
from bayesprop.random_weights import SharedWeights
from bayesprop.rng import Rng


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers of a seed, float64."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Problem:
    """Inputs (rows, ...) in the dtype of the network; unless given, targets are standard normal numbers."""

    def __init__(
        self,
        network: nn.Module,
        inputs: Tensor,
        targets: Tensor | None = None,
        *,
        likelihood: likelihoods.Likelihood | None = None,
        prior: priors.Prior | Mapping[str, priors.Prior] | None = None,
        num_data: int | None = None,
        **options: Any,
    ) -> None:
        likelihood = likelihoods.Gaussian(scale=0.7) if likelihood is None else likelihood
        self.model = bp.Model(network, likelihood=likelihood, prior=prior, **options)
        self.inputs = self.model.prepare_inputs(inputs)
        if targets is None:
            outputs = self.model.probe(self.inputs, None)
            targets = normal(*outputs.shape, seed=5).to(outputs.dtype)
        self.targets = targets
        self.model.probe(self.inputs, targets)
        self.model.set_mode(True)
        self.num_data = inputs.shape[0] if num_data is None else num_data

    def batch(self, particles: int = 1, rows: slice = slice(None), **place: Any) -> Batch:
        """Some rows, the same for all particles."""
        inputs, targets = (t[rows].expand(particles, *t[rows].shape) for t in (self.inputs, self.targets))
        return Batch(inputs, targets, self.num_data, **place)

    def state(self, particles: int = 1, *, seed: int = 3, spread: float = 0.6) -> MeanFieldState:
        """q somewhere: means N(0, spread^2), standard deviations between 0.08 and 0.3; no optimiser."""
        layout, dtype = self.model.layout, self.model.dtype
        mean = spread * normal(particles, layout.size, seed=seed)
        rho = -2.5 + 1.5 * torch.special.ndtr(normal(particles, layout.latent, seed=seed + 1))
        return MeanFieldState(mean.to(dtype), rho.to(dtype), {}, self.model.initial_buffers(particles))


def method_with(**settings: Any) -> BayesByBackprop:
    """Bayes by Backprop by plain gradient descent on the ELBO, but for the settings; no default is left to chance."""
    plain = {
        "learning_rate": 0.1,
        "scale_learning_rate": None,
        "optimizer": "sgd",
        "estimator": SharedWeights(1),
        "kl": "auto",
        "kl_weights": "uniform",
        "temperature": 1.0,
        "stick_the_landing": False,
        "initial_mean": "fan_in",
        "schedule": Constant(),
        "clip_norm": None,
    }
    start = {} if "initial_rho" in settings else {"initial_scale": 0.1}
    return BayesByBackprop(**{**plain, **start, **settings})


def same_seeds(particles: int, seed: int = 11, step: int = 4) -> Rng:
    """Particles that all see the same noise."""
    return Rng(torch.full((particles,), seed), step)


def small_network(inputs: int = 3, outputs: int = 1, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """A network of one hidden layer with weights of its own, which leave torch's global generator alone."""
    network = nn.Sequential(nn.Linear(inputs, 4), nn.Tanh(), nn.Linear(4, outputs)).to(dtype)
    with torch.no_grad():
        for index, parameter in enumerate(network.parameters()):
            parameter.copy_(0.5 * normal(*parameter.shape, seed=20 + index))
    return network


def run_to_the_end(problem: Any, method: Any, steps: int, *, seed: int = 0, particles: int = 1) -> Any:
    """The posterior after so many steps on all rows, without what `fit` reports in between."""
    rng = Rng.create(seed, particles)
    state = method.init(problem.model, rng)
    for step in range(steps):
        batch = problem.batch(particles, epochs=steps, epoch=step, progress=step / steps)
        state, _ = method.update(problem.model, state, batch, rng.at(step))
    return method.posterior(problem.model, state)
