"""Sparse variational dropout: the exam, its optimum on linear regression, what it drops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.inference import SparseVariationalDropout
from bayesprop.inference.dropout.log_uniform import sigmoid
from bayesprop.posteriors import MultiplicativeGaussian
from bayesprop.random_weights import LocalReparameterization
from bayesprop.rng import Rng
from bayesprop.testing import MethodSuite

from ..conftest import normal, small_network

NOISE = 0.5


def optimum(problem):
    """The minimum of |y - X theta|^2 / 2 s^2 + sum_j sigma_j^2 |X_j|^2 / 2 s^2 + KL, by L-BFGS from the posterior's
    mean."""
    theta = problem.mean.clone().requires_grad_(True)
    log_variance = torch.full((3,), -5.0, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [theta, log_variance], max_iter=500, line_search_fn="strong_wolfe", tolerance_change=0.0
    )
    squares = problem.design[:, :3].square().sum(0)

    def closure():
        optimizer.zero_grad()
        fit = (problem.targets[:, 0] - problem.design @ theta).square().sum() + (log_variance.exp() * squares).sum()
        divergence = sigmoid(log_variance - theta[:3].square().log()).sum()
        loss = 0.5 * fit / NOISE**2 + divergence + 0.5 * theta[3] ** 2
        loss.backward()
        return float(loss.detach())

    optimizer.step(closure)
    return theta.detach(), log_variance.detach()


class TestSparseVariationalDropout(MethodSuite):
    def make(self):
        return SparseVariationalDropout(0.02)

    def check_linear_regression(self, problem):
        """Means and standard deviations at the optimum of the bound; 32 noises in a step leave 0.01."""
        method = SparseVariationalDropout(0.05, strength_learning_rate=0.2, estimator=LocalReparameterization(32))
        posterior = bp.fit(problem.model, problem.data, method, epochs=200, batch_size=None, progress=False)
        assert isinstance(posterior, MultiplicativeGaussian)
        theta, log_variance = optimum(problem)
        assert_close(posterior.mean()[0], theta, rtol=0.0, atol=0.02)
        assert_close(posterior.std()[0, :3], (0.5 * log_variance).exp(), rtol=0.03, atol=0.0)


def test_gradients_are_those_of_the_loss_with_the_same_noise():
    """Finite differences in float64, by weights and by log sigma^2."""
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian(0.7))
    inputs, targets = normal(6, 3), normal(6, 1, seed=1)
    model.probe(inputs, targets)
    batch = bp.model.Batch(inputs[None], targets[None], 60)
    method, rng = SparseVariationalDropout(initial_log_variance=-2.0), Rng.create(5).at(3)
    state = method.init(model, rng)
    found = method.gradients(model, state, batch, rng, 0.5)[1]

    def loss(mean, strength):
        value = method.log_likelihood(model, mean, strength, state.buffers, batch, rng)
        return float(0.5 * method.penalty(model, mean, strength) / 60 - value / 6)

    for name, tensor in (("mean", state.mean), ("strength", state.strength)):
        for column in range(0, tensor.shape[1], 3):
            values = []
            for sign in (1.0, -1.0):
                moved = {"mean": state.mean.clone(), "strength": state.strength.clone()}
                moved[name][0, column] += sign * 1e-6
                values.append(loss(**moved))
            assert float(found[name][0, column]) == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-5, abs=1e-8)


def test_inputs_that_say_nothing_are_dropped():
    """Ten inputs, of which two matter: alpha of the others is a hundred times as large, and what is above the threshold
    is zero with certainty, in draws too."""
    inputs = normal(400, 10).float()
    targets = (inputs[:, :2] @ torch.tensor([1.0, -0.5]))[:, None] + 0.1 * normal(400, 1, seed=3).float()
    model = bp.Model(nn.Linear(10, 1), likelihood=likelihoods.Gaussian(0.1))
    method = SparseVariationalDropout(0.02, strength_learning_rate=0.3, threshold=-2.0)
    posterior = bp.fit(model, (inputs, targets), method, epochs=60, batch_size=40, progress=False)
    assert posterior.kept[0, :10].tolist() == [True, True] + [False] * 8
    assert posterior.sparsity() == {"weight": pytest.approx(0.8), "all": pytest.approx(0.8)}
    assert torch.count_nonzero(posterior.sample(20)["weight"][:, 0, 2:]) == 0
    assert float(posterior.alpha("weight")[0, :2].max()) < 1e-3
    assert bool(torch.isinf(posterior.alpha("weight")[0, 2:]).all())


def test_the_threshold():
    """log alpha is log sigma^2 - log theta^2."""
    model = bp.Model(nn.Linear(3, 1).double(), likelihood=likelihoods.Gaussian(0.1))
    shares = {}
    for threshold in (2.0, 3.0, math.inf):
        method = SparseVariationalDropout(threshold=threshold)
        state = method.init(model, Rng.create(0))
        state.mean[0, :3] = torch.tensor([1.0, 1.0, 0.0]).double()
        state.strength[0] = torch.tensor([2.5, 3.5, -10.0]).double()
        shares[threshold] = method.posterior(model, state).sparsity()["all"]
    assert shares[2.0] == 1.0
    assert shares[3.0] == pytest.approx(2.0 / 3.0)
    assert shares[math.inf] == 0.0  # what has a mean of exactly 0 keeps its noise
