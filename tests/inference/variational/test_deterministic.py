"""DVI: its gradient against differences of its own objective, its law, its divergence, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import softplus
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.inference import DVI, SGD, Constant
from bayesprop.inference.variational import deterministic
from bayesprop.inference.variational.deterministic import data_term
from bayesprop.posteriors import DiagonalGaussian
from bayesprop.rng import Rng
from bayesprop.testing import LinearRegression, MethodSuite

from ..conftest import Problem, normal, run_to_the_end, small_network

STEP = 1e-5


class TestDVI(MethodSuite):
    def make(self):
        return DVI(learning_rate=0.01)

    def between(self, layer):
        return ()

    def check_linear_regression(self, problem):
        """Nothing is sampled: the optimum of the ELBO, means and 1 / L_ii, as far as descent goes."""
        posterior = run_to_the_end(problem, DVI(learning_rate=0.1, kl_weights="uniform"), 600)
        assert_close(posterior.mean()[0], problem.mean, rtol=0.0, atol=1e-5)
        assert_close(posterior.std()[0].square(), 1.0 / problem.precision.diagonal(), rtol=1e-4, atol=0.0)


class TestDiagonalDVI(TestDVI):
    def make(self):
        return DVI(covariance="diagonal", learning_rate=0.01)


PRIORS = [priors.Normal(0.1, 0.7), priors.StudentT(5.0, scale=0.8), {"0.*": priors.Laplace(), "*": priors.Normal()}]


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("likelihood", [likelihoods.Gaussian(), likelihoods.HeteroscedasticGaussian()])
def test_the_gradient_is_that_of_the_objective(prior, likelihood):
    """One step of plain descent against central differences of data term and divergence, in the direction it takes."""
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    targets = normal(7, 2 if isinstance(likelihood, likelihoods.Gaussian) else 1, seed=5)
    problem = Problem(network, normal(7, 3), targets, likelihood=likelihood, prior=prior, num_data=20)
    model, batch = problem.model, problem.batch(1, slice(1, 6), progress=0.7)
    method = DVI(learning_rate=1.0, optimizer=SGD(), kl_weights="uniform", schedule=Constant(), temperature=0.8)
    start = problem.state()
    mean, rho = start.mean.clone(), start.rho.clone()
    state, _ = method.update(model, start, batch, Rng.create(0))
    steps = {"mean": mean - state.mean, "rho": rho - state.rho}  # the gradients

    def objective(mean, rho):
        q = DiagonalGaussian(model, mean, softplus(rho), {})
        places = torch.linspace(-9.0, 9.0, 1801, dtype=torch.float64)
        density = torch.exp(-0.5 * places.square()) * 0.01 / (2.0 * torch.pi) ** 0.5
        # A product over columns: one place for all of them at a time.
        log_prior = (density * model.log_prior(mean + softplus(rho) * places[:, None, None])[:, 0]).sum()
        data = data_term(model, mean, softplus(rho), batch)
        return float((0.8 * (-q.entropy() - log_prior) - 4.0 * data) / 20.0)

    for name, gradient in steps.items():
        ends = []
        for sign in (STEP, -STEP):
            ends.append(objective(mean + sign * gradient * (name == "mean"), rho + sign * gradient * (name == "rho")))
        assert (ends[0] - ends[1]) / (2.0 * STEP) == pytest.approx(float(gradient.square().sum()), rel=2e-4)


@pytest.mark.statistical
def test_the_data_term_is_what_samples_estimate():
    """One hidden layer and Gaussian noise of a scale that is learnt: exact, so within five standard errors of 40,000
    draws of everything."""
    problem = Problem(small_network(), normal(7, 3), likelihood=likelihoods.Gaussian())
    state, batch = problem.state(), problem.batch()
    std = softplus(state.rho)
    theta = state.mean + std * normal(40_000, std.shape[1], seed=8)
    each = problem.model.log_likelihood(theta[None], {}, batch)[0]
    found = data_term(problem.model, state.mean, std, batch)
    assert abs(float(found) - float(each.mean())) < 5.0 * float(each.std()) / 200.0


def test_the_closed_form_of_the_divergence_is_used_where_there_is_one(monkeypatch):
    problem = LinearRegression()
    mean, std = normal(2, 4), 0.3 + normal(2, 4, seed=1).abs()
    exact = problem.model.bound_prior.kl_gradients(mean, std)
    assert exact is not None
    assert_close(deterministic._divergence_gradients(problem.model, mean, std), exact)
    monkeypatch.setattr(type(problem.model.bound_prior), "kl_gradients", lambda *_: None)
    assert_close(deterministic._divergence_gradients(problem.model, mean, std), exact, rtol=1e-9, atol=1e-9)


class Twice(nn.Sequential):
    """Not a plain stack."""


@pytest.mark.parametrize(
    ("network", "options", "reason"),
    [
        (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)), {}, "1 is a BatchNorm1d"),
        (Twice(nn.Linear(3, 1)), {}, "is a Twice"),
        (nn.Linear(3, 1), {"prior": priors.Normal(scale=priors.HalfNormal(1.0))}, "the learnt scale of their prior"),
        (nn.Linear(3, 1), {"output": lambda y: y}, "picked out of what the network returns"),
    ],
)
def test_networks_without_moments_are_refused(network, options, reason):
    model = bp.Model(network, likelihood=likelihoods.Gaussian(), **options)
    with pytest.raises(ConfigurationError, match="DVI propagates moments through stacks of dense layers") as caught:
        bp.fit(model, (torch.zeros(8, 3), torch.zeros(8, 1)), DVI(), epochs=1, progress=False)
    assert reason in str(caught.value)
    assert "BayesByBackprop(estimator=LocalReparameterization())" in str(caught.value)


def test_a_layer_that_is_used_twice_is_refused():
    shared = nn.Linear(3, 3)
    model = bp.Model(nn.Sequential(shared, nn.Tanh(), shared), likelihood=likelihoods.Gaussian())
    with pytest.raises(ConfigurationError, match="DVI propagates moments") as caught:
        DVI().init(model, Rng.create(0))
    assert "a layer is used twice" in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"learning_rate": 0.0}, "learning_rate must be positive, got 0.0"),
        ({"covariance": "low rank"}, 'covariance is "full" or "diagonal", got \'low rank\''),
        ({"temperature": -1.0}, "temperature must not be negative"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, fault):
    with pytest.raises(ConfigurationError, match=fault) as caught:
        DVI(**settings)
    assert "write: DVI(learning_rate=1e-2)" in str(caught.value)
