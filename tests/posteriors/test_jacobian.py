"""Derivatives of outputs by columns, for each row."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.posteriors.jacobian import jacobian


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def made(network, inputs, **options):
    model = bp.Model(network.double(), likelihood=likelihoods.Gaussian(), **options)
    model.probe(inputs, None)
    model.set_mode(False)
    return model


def test_that_of_a_linear_network_are_its_inputs():
    inputs = numbers(4, 3)
    model = made(nn.Linear(3, 1), inputs)
    outputs, found = jacobian(model, numbers(5), {}, inputs, torch.arange(5))
    assert outputs.shape == (4, 1)
    assert_close(found[:, 0, :4], torch.cat((inputs, torch.ones(4, 1).double()), dim=1), rtol=1e-12, atol=0.0)
    assert torch.count_nonzero(found[:, :, 4]) == 0  # the noise scale moves no output


@pytest.mark.parametrize("prior", [None, priors.Normal(0.1, priors.HalfNormal(1.0))])
def test_against_finite_differences(prior):
    """Some columns of a small network, in any order; also where a scale is multiplied into the weights."""
    inputs = numbers(3, 2)
    model = made(nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)), inputs, prior=prior)
    theta, columns = 0.5 * numbers(model.layout.size, seed=1), torch.tensor([16, 2, 5, 8])
    outputs, found = jacobian(model, theta, {}, inputs, columns)
    assert found.shape == (3, 2, 4)
    for place, column in enumerate(columns.tolist()):
        sides = []
        for sign in (1.0, -1.0):
            moved = theta.clone()
            moved[column] += sign * 1e-6
            sides.append(model.outputs(moved[None, None], {}, inputs)[0, 0])
        assert_close(found[:, :, place], (sides[0] - sides[1]) / 2e-6, rtol=1e-6, atol=1e-8)
    assert_close(outputs, model.outputs(theta[None, None], {}, inputs)[0, 0])
