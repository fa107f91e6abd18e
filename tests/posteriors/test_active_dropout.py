"""The network's own dropout at work in predictions."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.errors import CapabilityError
from bayesprop.posteriors import ActiveDropout, Delta


def posterior(particles=1, network=None, rows=8):
    network = nn.Sequential(nn.Linear(3, 40), nn.Dropout(0.5), nn.Linear(40, 2)) if network is None else network
    model = bp.Model(network, likelihood=likelihoods.Gaussian(0.1))
    inputs = torch.linspace(-1, 1, 3 * rows).reshape(rows, 3)
    model.probe(inputs, None)
    theta = torch.cat([parameter.detach().flatten() for parameter in network.parameters()])
    location = theta.repeat(particles, 1)
    return ActiveDropout(model, location, model.initial_buffers(particles)), inputs


def test_a_draw_is_a_function():
    """The same draw says the same of a row, whatever stands beside it; draws and particles differ."""
    found, inputs = posterior(particles=2)
    whole = found.predict(inputs, 20).draws
    assert whole.shape == (20, 8, 2)
    assert_close(found.predict(inputs[5:], 20).draws, whole[:, 5:])
    assert_close(found.predict(inputs[:1].repeat(4, 1), 20).draws, whole[:, :1].expand(20, 4, 2))
    assert len({round(float(value), 5) for value in whole[:, 0, 0]}) == 20
    assert not torch.equal(found.predict(inputs, 20, seed=1).draws, whole)
    assert torch.equal(found.predict(inputs, 20).draws, whole)


def test_it_is_dropout_in_evaluation_mode_otherwise():
    """BatchNorm uses its running averages, and the average over draws is near the network without dropout."""
    network = nn.Sequential(nn.Linear(3, 40), nn.BatchNorm1d(40), nn.Dropout(0.5), nn.Linear(40, 2))
    found, inputs = posterior(network=network)
    point = found.at_mean()
    assert isinstance(point, Delta)
    expected = point.predict(inputs).mean
    drawn = found.predict(inputs, 2000).draws
    # The output is linear in the masks: 5 standard errors.
    assert bool(((drawn.mean(0) - expected).abs() < 5.0 * drawn.std(0) / 2000**0.5).all())


def test_layers_that_came_in_evaluation_mode_stay_silent():
    network = nn.Sequential(nn.Linear(3, 40), nn.Dropout(0.5), nn.Linear(40, 2))
    network[1].eval()
    found, inputs = posterior(network=network)
    assert float(found.predict(inputs, 10).draws.std(0).max()) == 0.0


def test_it_has_no_moments():
    found, _ = posterior()
    with pytest.raises(CapabilityError, match="mean and std needs moments"):
        found.std()
