"""Functional variational inference: the exam, its divergence where it is exact, and its behaviour between data."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError, MemoryBudgetError
from bayesprop.inference import RBF, FunctionalVI, WidePrior
from bayesprop.inference.function_space.functional_vi import measured, process_moments
from bayesprop.rng import Rng
from bayesprop.testing import LinearRegression, MethodSuite

from ..conftest import Problem, normal, small_network


class TestFunctionalVI(MethodSuite):
    def make(self):
        return FunctionalVI(measured_rows=3, measured_places=2, learning_rate=0.01)

    def check_linear_regression(self, problem):
        """Under the process of the linear network, which is its prior over weights, this is mean field: the exact mean
        and variances 1 / L_ii. Within 5 % of a deviation, and deviations within 10 %, for the noise of the steps."""
        method = FunctionalVI(WidePrior(), learning_rate=0.03, nugget=1e-3, initial_scale=0.1)
        posterior = bp.fit(problem.model, problem.data, method, epochs=700, batch_size=None, progress=False)
        expected = problem.precision.diagonal().rsqrt()
        assert_close(posterior.mean()[0] / expected, problem.mean / expected, rtol=0.0, atol=0.05)
        assert_close(posterior.std()[0], expected, rtol=0.1, atol=0.0)


def test_the_divergence_of_a_linear_model_is_that_of_its_weights():
    """Where there are as many inputs as weights, functions and weights are the same; a nugget of 1e-4 is below 1e-4."""
    problem, mean, std = LinearRegression(), normal(1, 4), 0.2 + normal(1, 4, seed=1).abs()
    method = FunctionalVI(WidePrior(), measured_rows=12, measured_places=4, nugget=1e-4)
    found = method.divergence(problem.model, mean, std, {}, problem.inputs[None], Rng.create(0))
    expected = problem.model.bound_prior.kl(mean, std)
    assert_close(found, expected, rtol=1e-3, atol=0.0)


def test_fewer_inputs_bound_the_divergence_from_below():
    problem, mean, std = LinearRegression(), normal(1, 4), 0.2 + normal(1, 4, seed=1).abs()
    values = []
    for rows in (1, 2, 4, 12):
        method = FunctionalVI(WidePrior(), measured_rows=rows, measured_places=0, nugget=1e-4)
        values.append(float(method.divergence(problem.model, mean, std, {}, problem.inputs[None], Rng.create(0))))
    assert values == sorted(values)
    assert values[0] > 0.0


def test_moments_of_functions_are_those_of_the_expansion():
    """A batched Jacobian and one row by row; against draws of a narrow q within five standard errors."""
    problem = Problem(small_network(3, 2), normal(6, 3))
    model = problem.model
    mean, std = 0.5 * normal(model.layout.size), torch.full((model.layout.size,), 0.01).double()
    model.set_mode(False)
    center, covariance = process_moments(model, mean, std, {}, problem.inputs)
    model.vectorised = False
    one_by_one = process_moments(model, mean.clone().requires_grad_(True), std, {}, problem.inputs)
    assert_close((center, covariance), tuple(t.detach() for t in one_by_one))
    draws = mean + 0.01 * normal(4000, model.layout.size, seed=4)
    model.vectorised = True
    outputs = model.outputs(draws[None], {}, problem.inputs)[0].transpose(1, 2).flatten(1)
    size = covariance.diagonal()
    error = ((size[:, None] * size + covariance.square()) / 4000).sqrt()
    assert bool(((torch.cov(outputs.T) - covariance).abs() < 5.0 * error).all())
    assert_close(outputs.mean(0), center.flatten(), rtol=0.0, atol=1e-3)


def test_gradients_of_the_divergence():
    """Through the Jacobian, against finite differences."""
    problem = Problem(small_network(3, 1), normal(6, 3))
    method = FunctionalVI(measured_rows=2, measured_places=1)
    mean, std = 0.5 * normal(1, problem.model.layout.size), torch.full((1, problem.model.layout.latent), 0.1).double()
    arguments = (mean.requires_grad_(True), std.requires_grad_(True))

    def value(mean, std):
        return method.divergence(problem.model, mean, std, {}, problem.inputs[None], Rng.create(0))

    assert torch.autograd.gradcheck(value, arguments)


def test_measured_inputs_are_rows_and_places_around_them():
    rows = normal(2, 9, 3)
    found = measured(rows, 4, 50, 0.5, Rng.create(0, 2))
    assert found.shape == (2, 54, 3)
    for particle in range(2):
        known = rows[particle].tolist()
        assert all(row in known for row in found[particle, :4].tolist())
        low, high = rows[particle].amin(0), rows[particle].amax(0)
        assert bool((found[particle, 4:] >= low - 0.5 * (high - low)).all())
        assert bool((found[particle, 4:] <= high + 0.5 * (high - low)).all())
        assert bool((found[particle, 4:] < low).any())
    again = measured(rows[1:], 4, 50, 0.5, Rng(Rng.create(0, 2).seeds[1:]))
    assert torch.equal(again, found[1:])
    assert measured(rows, 20, 0, 0.5, Rng.create(0, 2)).shape == (2, 9, 3)


def test_functions_keep_the_spread_of_the_prior_where_there_are_no_data():
    """Data on both sides of a gap, a prior of length 0.5 and amplitude 1: in the middle of the gap the deviation of f
    is more than twice that on the data."""
    inputs = torch.cat((torch.linspace(-1.5, -0.7, 20), torch.linspace(0.7, 1.5, 20))).double()[:, None]
    targets = torch.sin(4.0 * inputs) + 0.1 * normal(40, 1)
    network = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1)).double()
    model = bp.Model(network, likelihood=likelihoods.Gaussian(0.1))
    method = FunctionalVI(RBF(1.0, 0.5), measured_rows=5, measured_places=10, margin=0.2, learning_rate=0.02)
    posterior = bp.fit(model, (inputs, targets), method, epochs=600, batch_size=None, progress=False)
    prediction = posterior.predict(torch.tensor([[-1.0], [0.0], [1.0]]).double(), 400)
    spread = prediction.epistemic.sqrt()
    assert float(spread[1]) > 2.0 * float(spread[[0, 2]].max())


def test_what_it_cannot_do_is_refused():
    model = bp.Model(
        nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(4, 1)), likelihood=likelihoods.Gaussian()
    )
    with pytest.raises(ConfigurationError, match="measures functions at inputs that it draws around the rows"):
        bp.fit(model, (torch.zeros(6, 2).long(), torch.zeros(6, 1)), FunctionalVI(), epochs=1, progress=False)
    wide = bp.Model(nn.Linear(100, 1), likelihood=likelihoods.Gaussian())
    with pytest.raises(MemoryBudgetError, match="the Jacobian of one output at the measured inputs does not fit"):
        FunctionalVI(memory_budget=1e-6).init(wide, Rng.create(0))
    laplace = bp.Model(nn.Linear(2, 1), likelihood=likelihoods.Gaussian(), prior=priors.Laplace())
    with pytest.raises(ConfigurationError, match="the infinitely wide network is known for"):
        FunctionalVI(WidePrior()).init(laplace, Rng.create(0))


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"measured_rows": 0}, "measured_rows must be at least 1"),
        ({"measured_places": -1}, "measured_places must not be negative"),
        ({"nugget": 0.0}, "nugget must be positive"),
        ({"prior": RBF}, "prior is a prior over functions"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, fault):
    with pytest.raises(ConfigurationError, match=fault):
        FunctionalVI(**settings)
