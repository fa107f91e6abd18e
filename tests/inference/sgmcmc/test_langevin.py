"""SGLD: its equation, its stationary law, and the posterior that decreasing steps find."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

import bayesprop as bp
from bayesprop.inference import SGLD, Polynomial
from bayesprop.inference.oracle import joint_gradient
from bayesprop.inference.schedules import Steps
from bayesprop.rng import Rng, Stream
from bayesprop.testing import LinearRegression, MethodSuite

from .conftest import check_law, ends


class TestSGLD(MethodSuite):
    def make(self):
        return SGLD(learning_rate=0.01, samples=3, burn_in=0.25)

    def check_linear_regression(self, problem):
        """Steps that fall to a twentieth: the exact posterior, all moments by z-tests. The last step is too wide by
        epsilon L / 4 = 4 % in the narrowest direction, half a standard error."""
        largest = float(torch.linalg.eigvalsh(problem.precision)[-1])
        method = SGLD(learning_rate=1.5 * 24 / largest, schedule=Polynomial(final=0.05), samples=1)
        check_law(ends(method, problem, 400, 800).theta, problem.mean, problem.covariance)


class TestChains(MethodSuite):
    """The exam for a population of two, with thinning."""

    def make(self):
        return SGLD(learning_rate=0.01, samples=3, chains=2, thinning=1)

    def check_linear_regression(self, problem):
        """The last three of 40 states of each chain, near the mode for a low temperature."""
        method = SGLD(learning_rate=0.1, samples=3, chains=2, thinning=1, temperature=1e-8)
        posterior = bp.fit(problem.model, problem.data, method, epochs=400, batch_size=None, progress=False)
        assert_close(posterior.mean(), problem.mean.expand(2, 4), rtol=0.0, atol=1e-3)


def test_equation_4_of_the_paper():
    """theta + epsilon / 2 (grad log p(theta) + N / n sum grad log p(x | theta)) + N(0, epsilon T), epsilon = 2 r f / N,
    with a schedule factor f = 0.5, T = 0.3 and a minibatch of 10 out of 24."""
    problem, rng = LinearRegression(), Rng.create(3, 2)
    method = SGLD(learning_rate=0.2, schedule=Steps(at=(0.5,), factor=0.5), temperature=0.3, samples=2)
    state = method.init(problem.model, rng)
    theta = state.theta.clone()
    batch = problem.batch(2, slice(0, 10), epochs=10, epoch=6, progress=0.6)
    gradient = joint_gradient(problem.model, theta, {}, batch)[1]
    epsilon = 2.0 * 0.2 * 0.5 / 24
    noise = rng.at(6).normal(4, Stream.WEIGHTS, dtype=torch.float64)[:, 0]
    state, _ = method.update(problem.model, state, batch, rng.at(6))
    expected = theta + 0.5 * epsilon * gradient + (epsilon * 0.3) ** 0.5 * noise
    assert_close(state.theta, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.statistical
@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_the_stationary_law_of_constant_steps(temperature):
    """With all rows, T (L - epsilon L^2 / 4)^-1 and not T L^-1: in the narrowest direction, where epsilon L = 2, the
    variance is twice the target's."""
    problem = LinearRegression()
    largest = torch.linalg.eigvalsh(problem.precision)[-1]
    method = SGLD(learning_rate=float(24 / largest), temperature=temperature, samples=1)
    epsilon = 2.0 * method.learning_rate / 24
    law = temperature * torch.linalg.inv(problem.precision - epsilon / 4 * problem.precision @ problem.precision)
    theta = ends(method, problem, 500, 200).theta
    check_law(theta, problem.mean, law)
    with pytest.raises(AssertionError):
        check_law(theta, problem.mean, temperature * problem.covariance)


def test_each_chain_has_its_own_rate_and_temperature():
    problem, rng = LinearRegression(), Rng(torch.tensor([1, 1]))
    method = SGLD(learning_rate=torch.tensor([0.1, 0.4]), temperature=torch.tensor([1.0, 0.0]), samples=1, chains=2)
    state = method.init(problem.model, rng)
    theta, batch = state.theta.clone(), problem.batch(2)
    gradient = joint_gradient(problem.model, theta, {}, batch)[1] / 24
    state, _ = method.update(problem.model, state, batch, rng)
    assert_close(state.theta[1], theta[1] + 0.4 * gradient[1], rtol=1e-6, atol=1e-8)
    assert float((state.theta[0] - theta[0] - 0.1 * gradient[0]).abs().min()) > 1e-4
