"""The flow as a method: its gradient against differences of the ELBO, its law, memory and settings."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.inference import Flow
from bayesprop.inference.variational.flow import FlowState
from bayesprop.inference.variational.gradients import scales
from bayesprop.posteriors.normalizing_flow import bend, warp
from bayesprop.rng import Rng, Stream
from bayesprop.testing import LinearRegression, MethodSuite

from ..conftest import Problem, normal, run_to_the_end, same_seeds, small_network

STEP = 1e-5


class TestFlow(MethodSuite):
    def make(self):
        return Flow(layers=2, hidden=4, learning_rate=0.01)

    def check_linear_regression(self, problem):
        """Couplings of all halves can write every Gaussian, as mean field cannot: the divergence from the posterior is
        a twentieth of the mean field's, by 20,000 draws."""
        method = Flow(layers=4, hidden=8, learning_rate=0.02, samples=8, kl_weights="uniform", initial_scale=0.1)
        posterior = run_to_the_end(problem, method, 500)
        theta = posterior.draw(posterior.rng(1), 20_000)
        exact = torch.distributions.MultivariateNormal(problem.mean, problem.covariance).log_prob(theta[0])
        each = posterior.log_density(theta)[0] - exact
        independent = 0.5 * float(problem.precision.diagonal().log().sum() - torch.logdet(problem.precision))
        error = 5.0 * float(each.std()) / math.sqrt(20_000)
        assert -error < float(each.mean()) < independent / 20.0 + error


@pytest.mark.parametrize("kl_weight", [0.0, 0.7])
def test_the_gradient_is_that_of_the_elbo(kl_weight):
    """Central differences along random directions of mean, rho and the parameters of T, with scales of a prior and of
    the noise among the columns."""
    options = {"prior": priors.Normal(scale=priors.HalfNormal(0.5)), "likelihood": likelihoods.Gaussian()}
    problem = Problem(small_network(), normal(7, 3), num_data=20, **options)
    model, width = problem.model, problem.model.layout.latent
    method, rng, batch = Flow(layers=3, hidden=4, samples=3), same_seeds(1), problem.batch(1, slice(2, None))
    state = method.init(model, Rng.create(0))
    for index, tensor in enumerate((state.mean, state.rho, state.parameters)):
        tensor.add_(0.2 * normal(*tensor.shape, seed=40 + index))
    found, value = method.gradients(model, state, batch, rng, kl_weight)
    white = rng.normal(width, Stream.WEIGHTS, 3, torch.float64)

    def objective(here: FlowState):
        bent, determinant = bend(warp(width, 3, 4), here.parameters, white)
        std = scales(here.rho)[0]
        theta = here.mean[:, None] + std[:, None] * bent
        log_q = -determinant - std.log().sum(1)
        data = model.log_likelihood(theta, {}, batch) * (20.0 / batch.rows)
        return float((kl_weight * (log_q - model.log_prior(theta)) - data).mean() / 20.0), data

    assert_close(value, objective(state)[1].mean(1).detach())
    places = {"mean": state.mean, "rho": state.rho, "parameters": state.parameters}
    assert found.keys() == places.keys()
    for index, name in enumerate(places):
        direction = normal(*places[name].shape, seed=60 + index)
        ends = []
        for sign in (STEP, -STEP):
            moved = {n: t + (sign * direction if n == name else 0.0) for n, t in places.items()}
            ends.append(objective(FlowState(moved["mean"], moved["rho"], moved["parameters"], {}, {}))[0])
        slope = (ends[0] - ends[1]) / (2.0 * STEP)
        assert float((found[name] * direction).sum()) == pytest.approx(slope, rel=2e-5, abs=1e-8)


def test_particles_start_at_flows_of_their_own():
    problem = LinearRegression()
    state = Flow().init(problem.model, Rng.create(0, 3))
    alone = Flow().init(problem.model, Rng(Rng.create(0, 3).seeds[2:]))
    assert torch.equal(alone.parameters[0], state.parameters[2])
    assert not torch.equal(state.parameters[0], state.parameters[1])


def test_a_flow_that_does_not_fit_is_refused_before_it_is_made():
    with pytest.raises(ConfigurationError, match=r"a flow over 4 columns needs .* GiB") as caught:
        Flow(memory_budget=1e-9).init(LinearRegression().model, Rng.create(0))
    assert 'ADVI("low rank", rank=8)' in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"layers": 0}, "layers must be positive, got 0"),
        ({"hidden": 0}, "hidden must be positive"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"temperature": -1.0}, "temperature must not be negative"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, fault):
    with pytest.raises(ConfigurationError, match=fault) as caught:
        Flow(**settings)
    assert "write: Flow(layers=4)" in str(caught.value)
    with pytest.raises(ConfigurationError, match="a tensor holds one number for each particle"):
        Flow(temperature=torch.ones(2)).init(LinearRegression().model, Rng.create(0, 3))
