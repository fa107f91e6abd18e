"""Graves 2011: gradients of single rows one by one, the equations of a step, the law of its variances, refusals."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import softplus
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.inference import SGD, Constant, Graves
from bayesprop.inference.variational import graves
from bayesprop.inference.variational.graves import row_gradients
from bayesprop.model import Batch
from bayesprop.rng import Rng, Stream
from bayesprop.testing import LinearRegression, MethodSuite

from ..conftest import Problem, normal, run_to_the_end, small_network


class TestGraves(MethodSuite):
    def make(self):
        return Graves(learning_rate=0.01)

    def check_linear_regression(self, problem):
        """At the mean of q gradients have no noise: the mean is exact, and variances solve the equation of their rest
        with the gradients of rows there. Those are near 1 / L_ii as residuals are near the noise: within 40 %."""
        method = Graves(learning_rate=0.1, at_mean=True, kl_weights="uniform")
        posterior = run_to_the_end(problem, method, 600)
        assert_close(posterior.mean()[0], problem.mean, rtol=0.0, atol=1e-6)
        residuals = (problem.targets[:, 0] - problem.design @ problem.mean) / 0.25
        squares = (problem.design * residuals[:, None]).square().sum(0)
        variance = posterior.std()[0].square()
        assert_close(variance, 1.0 / (1.0 + squares), rtol=1e-4, atol=0.0)
        assert_close(variance * problem.precision.diagonal(), torch.ones(4).double(), rtol=0.4, atol=0.0)


@pytest.mark.parametrize("particles", [1, 2])
@pytest.mark.parametrize("group", [1, 2, 7])
@pytest.mark.parametrize("held", [1 << 24, 30])
def test_the_squares_are_those_of_groups_one_after_the_other(particles, group, held, monkeypatch):
    """Sums, and sums of squares, in one piece and row by row; the noise scale is among the columns."""
    monkeypatch.setattr(graves, "HELD", held)
    problem = Problem(small_network(), normal(7, 3), likelihood=likelihoods.Gaussian())
    theta = problem.state(particles).mean
    batch = problem.batch(particles)
    value, gradient, squares = row_gradients(problem.model, theta, {}, batch, group)
    assert squares.shape == theta.shape
    total, expected = torch.zeros(particles).double(), torch.zeros_like(theta)
    summed = torch.zeros_like(theta)
    for start in range(0, 7, group):
        part = problem.batch(particles, slice(start, start + group))
        leaf = theta[:, None].clone().requires_grad_(True)
        each = problem.model.log_likelihood(leaf, {}, part)
        (found,) = torch.autograd.grad(each.sum(), leaf)
        total, summed = total + each[:, 0].detach(), summed + found[:, 0]
        expected += found[:, 0].square()
    assert_close((value, gradient, squares), (total, summed, expected), rtol=1e-9, atol=1e-11)


def test_equations_16_and_17_of_the_paper():
    """One step of plain descent on 3 of 20 rows, with the gradients written out."""
    prior = priors.Normal(0.1, 0.8)
    problem = Problem(small_network(), normal(6, 3), prior=prior, num_data=20)
    model, width = problem.model, problem.model.layout.size
    method = Graves(0.1, optimizer=SGD(), kl_weights="uniform", temperature=0.7, schedule=Constant(), initial_scale=0.2)
    rng, batch = Rng.create(2), problem.batch(1, slice(0, 3))
    state = method.init(model, rng)
    mean, rho = state.mean.clone(), state.rho.clone()
    noise, std = rng.normal(width, Stream.WEIGHTS, dtype=torch.float64)[:, 0], softplus(rho)
    _, gradient, squares = row_gradients(model, mean + std * noise, {}, batch, 1)
    by_mean = (-20.0 / 3.0 * gradient + 0.7 * (mean - 0.1) / 0.64) / 20.0
    by_variance = (20.0 / 3.0 * 0.5 * squares + 0.7 * 0.5 * (1.0 / 0.64 - std**-2)) / 20.0
    state, _ = method.update(model, state, batch, rng)
    assert_close(state.mean, mean - 0.1 * by_mean, rtol=1e-9, atol=1e-12)
    assert_close(state.rho, rho - 0.1 * by_variance * 2.0 * std * torch.sigmoid(rho), rtol=1e-9, atol=1e-12)


@pytest.mark.statistical
def test_where_the_model_is_right_the_squares_are_the_curvature():
    """Targets from the model, 60,000 rows: sum of squares over -d^2 of a linear model, five standard errors."""
    inputs, noise = normal(60_000, 2, seed=1), normal(60_000, 1, seed=2)
    model = bp.Model(nn.Linear(2, 1, bias=False).double(), likelihood=likelihoods.Gaussian(0.5))
    theta = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    targets = inputs @ theta.T + 0.5 * noise
    batch = Batch(inputs[None], targets[None], 60_000)
    _, _, squares = row_gradients(model, theta, {}, batch, 1)
    curvature = (inputs.square() / 0.25).sum(0)
    each = (inputs * noise / 0.5).square()
    assert bool(((squares[0] - curvature).abs() < 5.0 * each.std(0) * 60_000**0.5).all())


def test_batch_statistics_are_those_of_the_minibatch():
    """A network that cannot look at one row: all rows are one group, and its statistics move as in a plain pass."""
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()
    problem = Problem(network, normal(6, 3))
    state = Graves().init(problem.model, Rng.create(0, 2))
    theta = state.mean.clone()
    expected = {name: buffer.clone() for name, buffer in state.buffers.items()}
    problem.model.log_likelihood(theta[:, None], expected, problem.batch(2))
    state, _ = Graves(at_mean=True).update(problem.model, state, problem.batch(2), Rng.create(0, 2))
    assert_close(state.buffers, expected)


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"learning_rate": 0.0}, "learning_rate must be positive, got 0.0"),
        ({"group": 0}, "group must be positive, got 0"),
        ({"temperature": -1.0}, "temperature must not be negative"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, fault):
    with pytest.raises(ConfigurationError, match=fault) as caught:
        Graves(**settings)
    assert "write: Graves(learning_rate=1e-3)" in str(caught.value)
    with pytest.raises(ConfigurationError, match="temperature: a tensor holds one number for each particle"):
        Graves(temperature=torch.ones(2)).init(LinearRegression().model, Rng.create(0, 3))
