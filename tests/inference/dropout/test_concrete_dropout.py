"""Concrete dropout: the exam, masks, entropy, gradients, rates that follow the data."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, special
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.inference import ConcreteDropout, MCDropout
from bayesprop.inference.dropout.concrete_dropout import concrete, entropy
from bayesprop.posteriors import BernoulliDropout
from bayesprop.rng import Rng
from bayesprop.testing import LinearRegression, MethodSuite

from ..conftest import normal, small_network

NOISE = 0.5


class TestConcreteDropout(MethodSuite):
    def make(self):
        return ConcreteDropout(0.02)

    def check_linear_regression(self, problem):
        """The minimum over weights and rate of the loss of hard masks, found by L-BFGS. Concrete masks of temperature
        0.1 have a variance that is a twentieth below theirs, which moves the weights by some hundredths."""
        method = ConcreteDropout(0.1, strength_learning_rate=0.1, samples=32)
        posterior = bp.fit(problem.model, problem.data, method, epochs=200, batch_size=None, progress=False)
        assert isinstance(posterior, BernoulliDropout)
        weights, rate = optimum(problem)
        assert float(posterior.rate) == pytest.approx(rate, abs=0.015)
        assert_close(posterior.mean()[0], weights, rtol=0.0, atol=0.06)


def optimum(problem):
    """|y - X w|^2 + p / (1 - p) sum_j w_j^2 |X_j|^2 over 2 s^2, the prior's part and -3 H(p)."""
    weights = problem.mean.clone().requires_grad_(True)
    logit = torch.tensor(-2.0, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights, logit], max_iter=500, line_search_fn="strong_wolfe", tolerance_change=0.0)
    squares = problem.design[:, :3].square().sum(0)

    def closure():
        optimizer.zero_grad()
        inner, odds = weights[:3].square(), logit.exp()
        fit = (problem.targets[:, 0] - problem.design @ weights).square().sum() + odds * (inner * squares).sum()
        prior = 0.5 * (inner.sum() * (1.0 + odds) + weights[3] ** 2)  # 1 / (1 - p) = 1 + odds
        loss = 0.5 * fit / NOISE**2 + prior - 3.0 * entropy(logit)
        loss.backward()
        return float(loss.detach())

    optimizer.step(closure)
    return weights.detach(), float(torch.sigmoid(logit.detach()))


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.5])
def test_masks_by_quadrature(rate):
    """Mean and variance against an integral over u with the paper's formula, from the normal noise that is drawn."""
    logit, temperature = math.log(rate / (1.0 - rate)), 0.1

    def papers(u):
        return (1.0 - special.expit((logit + math.log(u) - math.log1p(-u)) / temperature)) / (1.0 - rate)

    points = torch.linspace(-6.0, 6.0, 40_001, dtype=torch.float64)
    weights = torch.exp(-0.5 * points**2) / math.sqrt(2.0 * math.pi) * (points[1] - points[0])
    drawn = concrete(points, torch.tensor(logit, dtype=torch.float64), temperature)
    for power in (1, 2):
        expected = integrate.quad(lambda u, k=power: papers(u) ** k, 0.0, 1.0, points=[rate, 1.0 - rate])[0]
        assert float((weights * drawn**power).sum()) == pytest.approx(expected, abs=1e-6)
    assert float((weights * drawn).sum()) == pytest.approx(1.0, abs=0.02)  # the relaxation's bias


def test_masks_become_hard_as_the_temperature_falls():
    drawn = concrete(normal(1000), torch.tensor(0.2, dtype=torch.float64).logit(), 1e-6)
    assert_close(drawn.unique()[[0, -1]], torch.tensor([0.0, 1.25], dtype=torch.float64))
    assert abs(float((drawn > 0).double().mean()) - 0.8) < 5.0 * math.sqrt(0.16 / 1000)


def test_entropy():
    p = torch.tensor([1e-6, 0.1, 0.5, 0.9], dtype=torch.float64)
    assert_close(entropy(p.logit()), torch.from_numpy(special.entr(p.numpy()) + special.entr(1.0 - p.numpy())))
    assert np.isfinite(float(entropy(torch.tensor(-200.0))))


def test_gradients_are_those_of_the_loss_with_the_same_noise():
    """Finite differences in float64, by weights and by the logits of the rates."""
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian(0.7), prior=priors.StudentT(scale=0.8))
    inputs, targets = normal(6, 3), normal(6, 1, seed=1)
    model.probe(inputs, targets)
    batch = bp.model.Batch(inputs[None], targets[None], 60)
    method, rng = ConcreteDropout(samples=2, relaxation=0.5), Rng.create(5).at(3)
    state = method.init(model, rng)
    found = method.gradients(model, state, batch, rng, 0.5)[1]

    def loss(mean, strength):
        value = method.log_likelihood(model, mean, strength, state.buffers, batch, rng)
        return float(0.5 * method.penalty(model, mean, strength) / 60 - value / 6)

    for name, tensor in (("mean", state.mean), ("strength", state.strength)):
        for column in range(0, tensor.shape[1], 3 if name == "mean" else 1):
            values = []
            for sign in (1.0, -1.0):
                moved = {"mean": state.mean.clone(), "strength": state.strength.clone()}
                moved[name][0, column] += sign * 1e-6
                values.append(loss(**moved))
            assert float(found[name][0, column]) == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-5, abs=1e-8)


def test_the_penalty_is_that_of_mc_dropout_and_the_entropy_of_its_inputs():
    problem = LinearRegression()
    concrete_one, plain = ConcreteDropout(initial_rate=0.3), MCDropout(rate=0.3)
    theta, rng = normal(1, 4), Rng.create(0)
    strength = concrete_one.starting_strength(problem.model, rng)
    expected = plain.penalty(problem.model, theta, plain.starting_strength(problem.model, rng)) - 3.0 * entropy(
        strength[0]
    )
    assert_close(concrete_one.penalty(problem.model, theta, strength), expected)


def test_more_data_drop_less():
    rates = {}
    for rows in (10, 400):
        inputs = normal(rows, 3).float()
        targets = inputs.sum(1, keepdim=True) + 0.3 * normal(rows, 1, seed=3).float()
        model = bp.Model(nn.Linear(3, 1), likelihood=likelihoods.Gaussian(0.3))
        method = ConcreteDropout(0.05, strength_learning_rate=0.1, samples=8)
        rates[rows] = float(bp.fit(model, (inputs, targets), method, epochs=150, batch_size=None, progress=False).rate)
    assert rates[400] < 0.3 * rates[10]


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"initial_rate": 0.0}, r"a rate lies in \(0, 1\), got 0.0"),
        ({"relaxation": 0.0}, "relaxation must be positive, got 0.0"),
        ({"samples": True}, "samples is a whole number of at least 1, got True"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, fault):
    with pytest.raises(ConfigurationError, match=fault) as caught:
        ConcreteDropout(**settings)
    assert "write: ConcreteDropout(learning_rate=1e-3)" in str(caught.value)
