"""Random prior functions: what is added, who draws it, and the exact answer for a linear network."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.inference import MAP, SGD, Constant, DeepEnsemble, PriorFunction
from bayesprop.rng import Rng
from bayesprop.testing import LinearRegression

from ..conftest import normal, small_network

EXACT = MAP(learning_rate=0.1, optimizer=SGD(0.8), schedule=Constant())


def test_the_sum_of_two_networks_of_which_one_is_fixed():
    network = small_network()
    wrapped, inputs = PriorFunction(network, scale=0.5), normal(5, 3)
    assert_close(wrapped(inputs), 1.5 * network(inputs), rtol=1e-12, atol=0.0)
    assert len(list(wrapped.parameters())) == len(list(network.parameters())) == 4
    assert [name for name, _ in wrapped.named_buffers()] == [
        f"prior.{layer}.{kind}" for layer in (0, 2) for kind in ("weight", "bias")
    ]
    assert wrapped.spreads["0.weight"] == math.sqrt(2.0 / 3.0)
    assert wrapped.spreads["2.bias"] == math.sqrt(1.0 / 4.0)


@pytest.mark.statistical
def test_each_member_draws_its_own_at_the_scale_of_the_fan_in():
    """Five standard errors of 300 x 12 and 300 x 4 numbers."""
    model = bp.Model(PriorFunction(small_network()), likelihood=likelihoods.Gaussian(0.5))
    method = DeepEnsemble(MAP(), members=300)
    buffers = method.init(model, Rng.create(0, 300)).buffers
    for name, spread, count in (("prior.0.weight", 2.0 / 3.0, 12), ("prior.0.bias", 1.0 / 3.0, 4)):
        values = buffers[name].flatten(1)
        assert values.shape == (300, count)
        error = 5.0 * math.sqrt(2.0 / (300 * count))
        assert float(values.square().mean()) == pytest.approx(spread, rel=error)
        assert float(values.mean().abs()) < 5.0 * math.sqrt(spread / (300 * count))
    few = DeepEnsemble(MAP(), members=2).init(model, Rng.create(0, 2)).buffers
    assert_close(few["prior.2.weight"], buffers["prior.2.weight"][:2], rtol=0.0, atol=0.0)


def test_members_of_a_linear_network_are_known():
    """u = S (X^T y / s^2 + c p / t^2) for c p the scaled prior function, S the posterior covariance, t = 1."""
    problem = LinearRegression()
    model = bp.Model(
        PriorFunction(nn.Linear(3, 1).double(), scale=0.7),
        likelihood=likelihoods.Gaussian(0.5),
        prior=priors.Normal(0.0, 1.0),
    )
    method = DeepEnsemble(EXACT, members=4)
    posterior = bp.fit(model, problem.data, method, epochs=400, batch_size=None, progress=False)
    added = torch.cat((posterior.buffers["prior.weight"][:, 0], posterior.buffers["prior.bias"]), dim=1)
    design, targets = problem.design, problem.targets[:, 0]
    expected = (problem.covariance @ (design.T @ targets / 0.25 + 0.7 * added)[..., None])[..., 0]
    assert_close(posterior.mean() + 0.7 * added, expected, rtol=0.0, atol=1e-8)


def test_members_disagree_far_from_the_data():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1)).double()
    inputs = normal(20, 1)
    found = []
    for wrapped in (network, PriorFunction(network, scale=3.0)):
        model = bp.Model(wrapped, likelihood=likelihoods.Gaussian(0.1))
        method = DeepEnsemble(MAP(learning_rate=0.02), members=4)
        posterior = bp.fit(model, (inputs, torch.sin(inputs)), method, epochs=300, batch_size=None, progress=False)
        found.append(posterior.predict(torch.full((1, 1), 4.0).double(), 4).epistemic.item())
    assert found[1] > 2.0 * found[0]


def test_prior_functions_are_saved_with_the_posterior(tmp_path):
    network = PriorFunction(small_network())
    model = bp.Model(network, likelihood=likelihoods.Gaussian(0.5))
    data = (normal(12, 3), normal(12, 1, seed=1))
    posterior = bp.fit(model, data, DeepEnsemble(MAP(), members=2), epochs=2, batch_size=4, progress=False)
    posterior.save(tmp_path / "ensemble.bayes")
    again = bp.load(tmp_path / "ensemble.bayes", network=PriorFunction(small_network()))
    assert_close(again.buffers, posterior.buffers, rtol=0.0, atol=0.0)
    assert_close(again.predict(data[0], 2).mean, posterior.predict(data[0], 2).mean, rtol=0.0, atol=0.0)


def test_normalising_layers_keep_their_parameters():
    wrapped = PriorFunction(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Dropout(0.5), nn.Linear(4, 1)))
    assert set(wrapped.spreads) == {"0.weight", "0.bias", "3.weight", "3.bias"}
    assert not wrapped.prior.training


def test_recurrent_networks_and_scales_of_nothing_are_refused():
    with pytest.raises(ConfigurationError, match="a random prior function of a recurrent network") as caught:
        PriorFunction(nn.Sequential(nn.LSTM(3, 4)))
    assert "received: 0" in str(caught.value)
    with pytest.raises(ConfigurationError, match="scale must be positive"):
        PriorFunction(nn.Linear(1, 1), scale=0.0)
