"""Dropout as a distribution over weights: its draws, its moments, and that whole units are missing."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.posteriors import BernoulliDropout, Delta


def posterior(prior=None, particles=2, network=None):
    network = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)) if network is None else network
    model = bp.Model(network.double(), likelihood=likelihoods.Gaussian(), prior=prior)
    generator = torch.Generator().manual_seed(0)
    location = 0.5 * torch.randn(particles, model.layout.size, generator=generator, dtype=torch.float64)
    rate = torch.tensor([[0.2, 0.4]], dtype=torch.float64).repeat(particles, 1)
    return BernoulliDropout(model, location, rate, model.initial_buffers(particles))


def test_whole_inputs_are_missing_and_the_rest_is_scaled():
    found = posterior()
    assert found.layers == ("0.weight", "2.weight")
    drawn, layout = found.draw(found.rng(0), 50), found.model.layout
    for name, rate in (("0.weight", 0.2), ("2.weight", 0.4)):
        block = layout.by_name[name]
        factor = drawn[..., block.columns] / found.location[:, None, block.columns]
        factor = factor.reshape(2, 50, *block.shape)
        assert_close(factor, factor[:, :, :1].expand_as(factor))  # one mask for all rows of the matrix
        values = factor.unique()
        assert_close(values[[0, -1]], torch.tensor([0.0, 1.0 / (1.0 - rate)], dtype=torch.float64))
    for name in ("0.bias", "2.bias", found.model.likelihood.latents[0].name):
        columns = layout.by_name[name].columns
        assert_close(drawn[..., columns], found.location[:, None, columns].expand(-1, 50, -1), rtol=0.0, atol=0.0)


def test_a_draw_does_not_depend_on_how_many_there_are():
    found = posterior()
    many = found.draw(found.rng(7), 40)
    assert_close(found.draw(found.rng(7), 11, first=20), many[:, 20:31], rtol=0.0, atol=0.0)
    assert_close(found.member(0).draw(found.member(0).rng(7), 40), many[:1], rtol=0.0, atol=0.0)
    assert not torch.equal(found.draw(found.rng(8), 40), many)


@pytest.mark.statistical
@pytest.mark.parametrize("prior", [None, priors.Normal(0.3, priors.HalfNormal(1.0))])
def test_moments_are_those_of_the_draws(prior):
    """Also where columns are not the weights; 5 standard errors, of a standard deviation with kurtosis below 8."""
    found, count = posterior(prior, particles=1), 8000
    drawn = found.draw(found.rng(1), count)[0]
    mean, std = (moment[0] for moment in found.moments())
    assert bool(((drawn.mean(0) - mean).abs() <= 5.0 * std / math.sqrt(count) + 1e-12).all())
    moving = std > 0
    assert int(moving.sum()) == 25
    assert bool(((drawn.std(0) / std - 1.0).abs() < 5.0 * math.sqrt(7.0 / (4 * count)))[moving].all())


def test_predictions_average_networks_and_can_be_turned_off():
    found = posterior(particles=1)
    inputs = torch.linspace(-1, 1, 12).reshape(4, 3).double()
    drawn = found.predict(inputs, 200).draws
    assert drawn.shape == (200, 4, 2)
    assert bool((drawn.std(0) > 0).all())
    assert_close(found.predict(inputs[2:], 200).draws, drawn[:, 2:])  # the same functions for other rows
    point = found.at_mean()
    assert isinstance(point, Delta)
    network = found.mean_network()
    assert_close(point.predict(inputs).mean, network(inputs).detach())
