"""SGHMC: its equation, the discrete Lyapunov equation of its law, and SGLD as its limit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from bayesprop.errors import ConfigurationError
from bayesprop.inference import SGHMC, SGLD
from bayesprop.inference.oracle import joint_gradient
from bayesprop.rng import Rng, Stream
from bayesprop.testing import LinearRegression, MethodSuite

from .conftest import check_law, ends


def lyapunov(step: Tensor, noise: Tensor) -> Tensor:
    """S = A S A^T + Q, by vec(S) = (1 - A kron A)^-1 vec(Q)."""
    size = step.shape[0]
    whole = torch.eye(size * size, dtype=step.dtype) - torch.kron(step, step)
    return torch.linalg.solve(whole, noise.reshape(-1)).reshape(size, size)


class TestSGHMC(MethodSuite):
    def make(self):
        return SGHMC(learning_rate=0.01, samples=3, burn_in=0.25)

    def check_linear_regression(self, problem):
        """With eta = r / N: v' = (1 - a) v - eta L theta + xi, theta' = theta + v', xi ~ N(0, 2 (a - b) eta T)."""
        largest = float(torch.linalg.eigvalsh(problem.precision)[-1])
        method = SGHMC(learning_rate=24 / largest, friction=0.4, gradient_noise=0.1, temperature=0.7, samples=1)
        eta, one = method.learning_rate / 24, torch.eye(4).double()
        step = torch.cat(
            (
                torch.cat((one - eta * problem.precision, 0.6 * one), dim=1),
                torch.cat((-eta * problem.precision, 0.6 * one), dim=1),
            )
        )
        noise = 2.0 * 0.3 * eta * 0.7 * torch.ones(2, 2).double()
        law = lyapunov(step, torch.kron(noise, one))
        state = ends(method, problem, 500, 150)
        pair = torch.cat((state.theta, state.memory["velocity"]), dim=1)
        check_law(pair, torch.cat((problem.mean, torch.zeros(4).double())), law)
        assert float((law[:4, :4] @ problem.precision - 0.7 * 0.75 * one).abs().max()) > 0.05


def test_equation_15_of_the_paper():
    problem, rng = LinearRegression(), Rng.create(3, 2)
    method = SGHMC(learning_rate=0.2, friction=0.3, gradient_noise=0.1, temperature=0.6, samples=2)
    state = method.init(problem.model, rng)
    state.memory["velocity"].fill_(0.2)
    theta = state.theta.clone()
    batch = problem.batch(2, slice(0, 10))
    gradient = -joint_gradient(problem.model, theta, {}, batch)[1]
    noise = rng.at(5).normal(4, Stream.WEIGHTS, dtype=torch.float64)[:, 0]
    eta = 0.2 / 24
    velocity = 0.2 - eta * gradient - 0.3 * 0.2 + (2.0 * (0.3 - 0.1) * eta * 0.6) ** 0.5 * noise
    state, _ = method.update(problem.model, state, batch, rng.at(5))
    assert_close(state.memory["velocity"], velocity, rtol=1e-12, atol=1e-13)
    assert_close(state.theta, theta + velocity, rtol=1e-12, atol=1e-13)


def test_with_friction_1_it_is_sgld():
    problem = LinearRegression()
    first = ends(SGHMC(learning_rate=0.05, friction=1.0, samples=1), problem, 3, 6)
    second = ends(SGLD(learning_rate=0.05, samples=1), problem, 3, 6)
    assert_close(first.theta, second.theta, rtol=1e-12, atol=1e-13)


@pytest.mark.statistical
def test_small_steps_find_the_posterior():
    """eta L = 0.1 at most: the bias of its law, some 3 %, is half a standard error of a variance."""
    problem = LinearRegression()
    largest = float(torch.linalg.eigvalsh(problem.precision)[-1])
    method = SGHMC(learning_rate=0.1 * 24 / largest, friction=0.3, samples=1)
    check_law(ends(method, problem, 400, 400).theta, problem.mean, problem.covariance)


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"friction": 0.0}, r"friction must lie in \(0, 1\]"),
        ({"friction": 0.1, "gradient_noise": 0.2}, "gradient_noise must lie between 0 and the friction"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, fault):
    with pytest.raises(ConfigurationError, match=fault):
        SGHMC(**settings)
