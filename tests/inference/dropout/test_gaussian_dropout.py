"""Gaussian dropout: the exam, its law on linear regression, gradients, what has an alpha of its own."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import CapabilityError, ConfigurationError
from bayesprop.inference import GaussianDropout
from bayesprop.inference.dropout.log_uniform import cubic
from bayesprop.posteriors import MultiplicativeGaussian
from bayesprop.random_weights import Flipout, LocalReparameterization, SharedWeights
from bayesprop.rng import Rng
from bayesprop.testing import LinearRegression, MethodSuite

from ..conftest import normal, small_network

NOISE = 0.5


class TestGaussianDropout(MethodSuite):
    def make(self):
        return GaussianDropout(0.02)

    def check_linear_regression(self, problem):
        """E |y - X w|^2 = |y - X theta|^2 + alpha sum_j theta_j^2 |X_j|^2; weights have no other penalty, the bias has
        its prior. Tolerance: 32 noises in a step, averaged while the rate falls to zero, leave less than
        0.01, and without the noise the weights would be those of least squares, up to 1 away."""
        method = GaussianDropout(0.1, alpha=0.25, learn=None, estimator=LocalReparameterization(32))
        posterior = bp.fit(problem.model, problem.data, method, epochs=150, batch_size=None, progress=False)
        assert isinstance(posterior, MultiplicativeGaussian)
        design = problem.design.T @ problem.design / NOISE**2
        extra = 0.25 * design.diagonal() - 1.0
        extra[3] = 0.0
        right = problem.design.T @ problem.targets[:, 0] / NOISE**2
        expected = torch.linalg.solve(problem.precision + torch.diag(extra), right)
        assert_close(posterior.mean()[0], expected, rtol=0.0, atol=0.02)
        assert_close(posterior.std()[0, :3], 0.5 * posterior.mean()[0, :3].abs())
        assert float(posterior.std()[0, 3]) == 0.0


class TestLearntForEachWeight(TestGaussianDropout):
    def make(self):
        return GaussianDropout(0.02, learn="weight", estimator=SharedWeights(2))


@pytest.mark.parametrize("estimator", [LocalReparameterization(2), Flipout(2), SharedWeights(2)])
@pytest.mark.parametrize("learn", ["layer", "unit", "weight"])
def test_gradients_are_those_of_the_loss_with_the_same_noise(learn, estimator):
    """Finite differences in float64, by weights and by log alpha."""
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian(0.7), prior=priors.Normal(0.0, 0.8))
    inputs, targets = normal(6, 3), normal(6, 1, seed=1)
    model.probe(inputs, targets)
    batch = bp.model.Batch(inputs[None], targets[None], 60)
    method, rng = GaussianDropout(learn=learn, estimator=estimator), Rng.create(5).at(3)
    state = method.init(model, rng)
    state.strength = state.strength + 0.3 * normal(*state.strength.shape, seed=4)
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


@pytest.mark.parametrize(("learn", "count"), [("layer", 2), ("unit", 7), ("weight", 16), (None, 2)])
def test_what_has_an_alpha_of_its_own(learn, count):
    """However many there are, each weight pays its own divergence, and starts with the alpha that was asked for."""
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian())
    method = GaussianDropout(alpha={"0.*": 0.5, "*": 0.25}, learn=learn)
    state = method.init(model, Rng.create(0, 2))
    assert state.strength.shape == (2, count)
    expected = 12 * cubic(torch.tensor(0.5).double().log()) + 4 * cubic(torch.tensor(0.25).double().log())
    assert_close(method.divergence(model, state.mean, state.strength), expected.expand(2))
    posterior = method.posterior(model, state)
    assert_close(posterior.alpha("0.weight"), torch.full((2, 4, 3), 0.5).double())
    assert_close(posterior.alpha("2.weight"), torch.full((2, 1, 4), 0.25).double())
    assert posterior.sparsity() == {"0.weight": 0.0, "2.weight": 0.0, "all": 0.0}


def test_alpha_is_small_where_the_data_speak_and_at_most_one():
    """One input of four matters: the others get more than fifty times its alpha, on their slow way to 1."""
    inputs = normal(200, 4).float()
    targets = inputs[:, :1] + 0.1 * normal(200, 1, seed=3).float()
    model = bp.Model(nn.Linear(4, 1), likelihood=likelihoods.Gaussian(0.1))
    method = GaussianDropout(0.02, strength_learning_rate=0.1, learn="unit")
    posterior = bp.fit(model, (inputs, targets), method, epochs=60, batch_size=20, progress=False)
    alpha = posterior.alpha("weight")[0]
    assert float(alpha[1:].min() / alpha[0]) > 50.0
    state = method.init(model, Rng.create(0))
    state.strength.fill_(0.0)
    problem = bp.model.Batch(inputs[None], targets[None], 200)
    held = method.update(model, state, problem, Rng.create(0))[0].strength
    assert float(held.max()) <= 0.0


def test_convolutions_and_recurrent_layers():
    network = nn.Sequential(nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.Flatten(), nn.Unflatten(1, (3, 4)))
    network = nn.Sequential(network, nn.LSTM(4, 3, batch_first=True))
    model = bp.Model(
        network, likelihood=likelihoods.Categorical(), output=lambda r: r[0][:, -1] if isinstance(r, tuple) else r
    )
    inputs = normal(12, 2, 6).float()
    method = bp.inference.DeepEnsemble(GaussianDropout(0.01), members=2)
    posterior = bp.fit(model, (inputs, torch.arange(12) % 3), method, epochs=2, batch_size=6, progress=False)
    assert posterior.layers == ("0.0.weight", "1.weight_ih_l0", "1.weight_hh_l0")
    assert float(posterior.predict(inputs, 20).epistemic.min()) > 0.0


def test_it_has_no_density():
    problem = LinearRegression()
    posterior = bp.fit(problem.model, problem.data, GaussianDropout(), epochs=1, progress=False)
    with pytest.raises(CapabilityError, match="here some columns are points"):
        posterior.kl()


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"alpha": 0.0}, r"alpha lies in \(0, 1\], got 0.0"),
        ({"alpha": {"*": 1.5}}, r"alpha lies in \(0, 1\], got 1.5"),
        ({"learn": "network"}, 'learn is one of "layer", "unit", "weight" and None, got \'network\''),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, fault):
    with pytest.raises(ConfigurationError, match=fault) as caught:
        GaussianDropout(**settings)
    assert "write: GaussianDropout(learning_rate=1e-3)" in str(caught.value)
