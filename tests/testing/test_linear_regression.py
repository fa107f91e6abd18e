"""The problem's own answers, each by another way."""

from __future__ import annotations

import torch
from torch.testing import assert_close

from bayesprop.testing import LinearRegression
from bayesprop.testing.linear_regression import NOISE


def log_joint(problem: LinearRegression, theta: torch.Tensor) -> torch.Tensor:
    return problem.model.log_joint(theta[None, None], {}, problem.batch())[0, 0]


def test_mean_and_precision_are_those_of_the_models_own_density():
    problem = LinearRegression()
    theta = problem.mean.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(log_joint(problem, theta), theta)
    assert_close(gradient, torch.zeros(4).double(), rtol=0.0, atol=1e-9)
    hessian = torch.autograd.functional.hessian(lambda t: log_joint(problem, t), problem.mean)
    assert_close(-hessian, problem.precision, rtol=1e-9, atol=1e-9)
    assert_close(problem.covariance @ problem.precision, torch.eye(4).double(), rtol=0.0, atol=1e-10)


def test_the_evidence_is_what_bayes_rule_leaves_at_any_place():
    """log p(y) = log p(y, theta) - log p(theta | y), for every theta."""
    problem = LinearRegression()
    exact = torch.distributions.MultivariateNormal(problem.mean, precision_matrix=problem.precision)
    for shift in (0.0, 0.3):
        theta = problem.mean + shift
        assert abs(float(log_joint(problem, theta) - exact.log_prob(theta)) - problem.log_evidence) < 1e-8


def test_least_squares_has_residuals_that_no_input_explains():
    problem = LinearRegression()
    residual = problem.targets[:, 0] - problem.design @ problem.least_squares
    assert_close(problem.design.T @ residual, torch.zeros(4).double(), rtol=0.0, atol=1e-10)
    assert 0.5 * NOISE < float(residual.std()) < 1.5 * NOISE


def test_mean_field_would_be_far_off():
    problem = LinearRegression()
    ratio = problem.covariance.diagonal() * problem.precision.diagonal()
    assert float(ratio.max()) > 2.0
    assert problem.batch(3, slice(2, 7)).inputs.shape == (3, 5, 3)
