"""The objective of Bayes by Backprop written out, and its central differences against the library's gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from bayesprop.inference import BayesByBackprop
from bayesprop.inference.variational import gradients
from bayesprop.inference.variational.bayes_by_backprop import MeanFieldState
from bayesprop.random_weights import SharedWeights
from bayesprop.rng import Rng, Stream

from ..conftest import Problem, same_seeds

STEP = 1e-5  # of central differences: in float64 they are then good to some 1e-10 of the objective's size


def weight_noise(method: BayesByBackprop, rng: Rng, width: int) -> Tensor:
    """eps (particles, samples, columns) in float64, from the stream of the weights; antithetic ones come in pairs."""
    samples = method.estimator.samples
    if isinstance(method.estimator, SharedWeights) and method.estimator.antithetic:
        half = rng.normal(width, Stream.WEIGHTS, samples // 2, torch.float64)
        return torch.cat((half, -half), dim=1)
    return rng.normal(width, Stream.WEIGHTS, samples, torch.float64)


def divergence(problem: Problem, method: BayesByBackprop, state: MeanFieldState, rng: Rng) -> Tensor:
    """KL(q || prior) as a step estimates it: E log q in closed form up to a constant, log p at the samples, unless
    the weights have a closed form. One number a particle."""
    model = problem.model
    layout, mean, std = model.layout, state.mean[:, : model.layout.latent], softplus(state.rho)
    theta = mean[:, None] + std[:, None] * weight_noise(method, rng, layout.latent)
    if method.kl == "monte_carlo" or not model.bound_prior.has_kl:
        return -std.log().sum(1) - model.log_prior(theta).mean(1)
    closed = model.bound_prior.kl(mean[:, : layout.random], std[:, : layout.random])
    assert closed is not None
    total = closed - std[:, layout.random :].log().sum(1)
    for latent in model.likelihood.latents:
        total = total - latent.unconstrained_log_density(theta[..., layout.by_name[latent.name].columns]).mean(1)
    return total


def check_gradients(problem: Problem, method: BayesByBackprop, kl_weight: float = 0.8, rows: slice = slice(1, None)):
    """Gradients by mean and by rho along two random directions each, against central differences of the objective.

    All points are particles of one call, with equal seeds and so with the same noise: the place itself first, then the
    pairs around it. That place alone, without vmap, must give the same gradient.
    """
    model, state = problem.model, problem.state()
    directions = []
    for index, tensor in enumerate((state.mean, state.rho, state.mean, state.rho)):
        generator = torch.Generator().manual_seed(30 + index)
        directions.append(torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype))
    means, rhos = [state.mean], [state.rho]
    for index, direction in enumerate(directions):
        for step in (STEP * direction, -STEP * direction):
            means.append(state.mean + step if index % 2 == 0 else state.mean)
            rhos.append(state.rho + step if index % 2 == 1 else state.rho)
    count = len(means)
    around = MeanFieldState(torch.cat(means), torch.cat(rhos), {}, model.initial_buffers(count))
    batch, rng = problem.batch(count, rows), same_seeds(count)
    found = gradients.elbo_gradients(method, model, around, batch, rng, kl_weight)
    kl = divergence(problem, method, around, rng)
    objective = (kl_weight * kl - found.log_likelihood) / problem.num_data
    assert objective.dtype == torch.float64
    for index, direction in enumerate(directions):
        name = ("mean", "rho")[index % 2]
        expected = (objective[2 * index + 1] - objective[2 * index + 2]) / (2.0 * STEP)
        slope = (found.by_name[name][0] * direction[0]).sum()
        scale = (found.by_name[name][0] * direction[0]).abs().sum()
        # Relative to the size of the terms: a random direction may make them cancel.
        assert abs(slope - expected) <= 1e-6 * max(abs(expected), 0.1 * scale), (name, float(slope), float(expected))
        assert scale > 1e-4
    alone = gradients.elbo_gradients(method, model, problem.state(), problem.batch(1, rows), same_seeds(1), kl_weight)
    for name, gradient in alone.by_name.items():
        torch.testing.assert_close(gradient[0], found.by_name[name][0], rtol=1e-9, atol=1e-12)


@pytest.fixture
def assert_gradients() -> Callable[..., None]:
    return check_gradients
