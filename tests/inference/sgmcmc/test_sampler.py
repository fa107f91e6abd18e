"""Burn-in, samples and their memory, chains, point estimates, and what is refused; the same for all samplers."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.diagnostics import effective_sample_size, r_hat
from bayesprop.errors import ConfigurationError, MemoryBudgetError
from bayesprop.inference import PSGLD, SGHMC, SGLD, Cyclical
from bayesprop.model import Place
from bayesprop.posteriors import Samples
from bayesprop.rng import Rng
from bayesprop.testing import LinearRegression

from ..conftest import normal

SAMPLERS = [SGLD, PSGLD, SGHMC]


def fitted(method, *, epochs: int = 20, **options) -> Samples:
    problem = LinearRegression()
    settings = {"epochs": epochs, "batch_size": 12, "progress": False, **options}
    posterior = bp.fit(problem.model, problem.data, method, **settings)
    assert isinstance(posterior, Samples)
    return posterior


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_so_many_samples_of_so_many_chains(sampler):
    posterior = fitted(sampler(learning_rate=0.01, samples=7, chains=3))
    assert posterior.theta.shape == (3, 7, 4)
    assert len({tuple(row.tolist()) for row in posterior.theta.flatten(0, 1)}) == 21


def test_a_chain_is_the_same_alone():
    together = fitted(SGLD(samples=5, chains=3))
    assert_close(fitted(SGLD(samples=5)).theta[0], together.theta[0], rtol=1e-9, atol=1e-11)


def test_samples_are_the_states_of_the_chain():
    """What is kept at the end of a run is where the chain is."""
    problem, method, rng = LinearRegression(), SGLD(samples=4), Rng.create(0, 2)
    state, seen = method.init(problem.model, rng), []
    for step in range(16):
        batch = problem.batch(2, epoch=step, epochs=16, progress=step / 16)
        state, _ = method.update(problem.model, state, batch, rng.at(step))
        seen.append(state.theta.clone())
    found = method.posterior(problem.model, state).theta
    assert_close(found, torch.stack([seen[k] for k in (9, 11, 13, 15)], dim=1), rtol=0.0, atol=0.0)


def test_before_the_first_sample_it_is_where_the_chain_is():
    problem, method = LinearRegression(), SGLD(samples=4)
    state = method.init(problem.model, Rng.create(0))
    assert_close(method.posterior(problem.model, state).theta[:, 0], state.theta, rtol=0.0, atol=0.0)


def test_a_cyclical_schedule_explores_without_noise():
    method = SGLD(schedule=Cyclical(cycles=2, exploration=0.5), temperature=0.7)
    numbers = [method.numbers(Place(epoch=k, epochs=8, progress=k / 8), k) for k in range(8)]
    assert [heat for _, heat, _ in numbers] == [0.0, 0.0, 0.7, 0.7] * 2
    assert [slot >= 0 for _, _, slot in numbers] == [False, False, True, True] * 2
    assert numbers[4][0] == numbers[0][0] == method.learning_rate


@pytest.mark.parametrize("method", [SGLD(0.1), PSGLD(0.1, stabilizer=1.0), SGHMC(0.05)])
def test_without_temperature_it_is_descent(method):
    """Into the mode."""
    problem = LinearRegression()
    method = dataclasses.replace(method, temperature=0.0, samples=1, burn_in=0.9)
    posterior = fitted(method, epochs=400, batch_size=None)
    assert_close(posterior.theta[0, -1], problem.mean, rtol=0.0, atol=1e-3)


def test_point_estimates_get_no_noise():
    model = bp.Model(nn.Linear(3, 1).double(), likelihood=likelihoods.Gaussian(0.5), random="weight")
    data = (normal(12, 3), normal(12, 1, seed=1))
    method = SGLD(temperature=1e12, learning_rate=1e-9, samples=2, chains=2, initial_mean="network")
    posterior = bp.fit(model, data, method, epochs=2, batch_size=4, progress=False)
    start = {name: parameter.detach() for name, parameter in model.network.named_parameters()}
    assert float((posterior.mean("weight")[0] - start["weight"]).abs().min()) > 1.0
    assert_close(posterior.mean("bias")[1], start["bias"], rtol=0.0, atol=1e-3)


@pytest.mark.statistical
def test_chains_meet_and_their_moments_are_right_within_standard_errors_of_their_effective_samples():
    """Four chains of SGHMC with all rows: R-hat at most 1.01, and means and variances of all weights within 4 standard
    errors, std / sqrt(ESS), of the exact ones. The steps make the narrowest variance some 5 % too wide, one of its
    standard errors."""
    problem = LinearRegression()
    method = SGHMC(learning_rate=0.03, friction=0.2, chains=4, samples=1000, burn_in=0.1)
    theta = fitted(method, epochs=2500, batch_size=None).theta
    assert float(r_hat(theta).max()) <= 1.01
    variance = problem.covariance.diagonal()
    squares = (theta - problem.mean).square()
    for draws, exact in ((theta, problem.mean), (squares, variance)):
        error = draws.flatten(0, 1).std(0) / effective_sample_size(draws).sqrt()
        assert float(effective_sample_size(draws).min()) > 250
        assert bool(((draws.mean((0, 1)) - exact).abs() <= 4.0 * error).all())


def test_scales_of_hierarchical_priors_are_sampled():
    model = bp.Model(
        nn.Linear(3, 1).double(), likelihood=likelihoods.Gaussian(), prior=priors.Normal(0.0, priors.HalfCauchy(1.0))
    )
    data = (normal(12, 3), normal(12, 1, seed=1))
    posterior = bp.fit(model, data, SGHMC(samples=10), epochs=40, batch_size=4, progress=False)
    names = [latent.name for latent in model.latents]
    assert len(names) >= 2
    for name in names:
        assert float(posterior.values(name).min()) > 0.0
        assert float(posterior.std(name).min()) > 0.0


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"learning_rate": 0.0}, "learning_rate must be positive, got 0.0"),
        ({"samples": 0}, "samples must be at least 1, got 0"),
        ({"thinning": -1}, "thinning must be at least 1, got -1"),
        ({"chains": 0}, "chains must be at least 1, got 0"),
        ({"burn_in": 1.0}, r"burn_in is a share of the run in \[0, 1\), got 1.0"),
        ({"temperature": -1.0}, "temperature must not be negative, got -1.0"),
        ({"memory_budget": 0.0}, "memory_budget must be positive, got 0.0"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, fault):
    with pytest.raises(ConfigurationError, match=f"SGLD cannot work like this: {fault}") as caught:
        SGLD(**settings)
    assert "write: SGLD(chains=4)" in str(caught.value)


def test_rates_for_another_number_of_chains_are_refused():
    problem = LinearRegression()
    method = SGLD(learning_rate=torch.ones(3), chains=2)
    with pytest.raises(ConfigurationError, match="one number for each chain") as caught:
        method.init(problem.model, Rng.create(0, 2))
    assert "SGLD(chains=3, learning_rate=...)" in str(caught.value)


def test_samples_that_do_not_fit_are_refused_before_the_first_step():
    with pytest.raises(MemoryBudgetError, match="PSGLD: the samples to keep do not fit into their memory budget"):
        fitted(PSGLD(samples=100_000, memory_budget=1e-3))
