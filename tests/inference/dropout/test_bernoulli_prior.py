"""The expected log prior under a mask, against the sum over all masks."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.inference.dropout.bernoulli_prior import expected_log_prior, penalty_gradients
from bayesprop.inference.dropout.layers import of_columns

from ..conftest import normal, small_network

PRIORS = {
    "normal": priors.Normal(0.2, 0.7),
    "laplace": priors.Laplace(scale=0.5),
    "mixture": priors.ScaleMixture(0.5, 1.0, 0.1),
    "learnt scale": priors.Normal(0.1, priors.HalfNormal(1.0)),
}


@pytest.mark.parametrize("name", PRIORS)
def test_the_expectation_is_the_sum_over_all_masks(name):
    """Three weights that are kept with other probabilities, and a bias that always is."""
    model = bp.Model(nn.Linear(3, 1).double(), likelihood=likelihoods.Gaussian(), prior=PRIORS[name])
    layout, bound = model.layout, model.bound_prior
    theta = 0.5 * normal(1, layout.size)
    keep = torch.tensor([[0.9, 0.5, 0.7, 1.0]], dtype=torch.float64)
    total = torch.zeros(1, dtype=torch.float64)
    weights = bound.weights(theta[:, : layout.latent])
    for masks in itertools.product((0.0, 1.0), repeat=3):
        mask = torch.tensor([[*masks, 1.0]], dtype=torch.float64)
        probability = torch.where(mask > 0, keep, 1.0 - keep).prod()
        row = theta.clone()
        row[:, : layout.random] = bound.columns(weights * mask / keep, theta[:, : layout.latent])
        total = total + probability * model.log_prior(row)
    assert_close(expected_log_prior(model, theta, keep), total)


def test_weight_decay_of_a_normal_prior():
    """theta^2 / (2 k s^2), but for a constant; nothing is divided for a bias."""
    model = bp.Model(nn.Linear(3, 1).double(), likelihood=likelihoods.Gaussian(1.0), prior=priors.Normal(0.0, 0.5))
    keep = torch.tensor([[0.8, 0.8, 0.8, 1.0]], dtype=torch.float64)
    theta = normal(1, 4)
    found = expected_log_prior(model, theta, keep) - expected_log_prior(model, torch.zeros_like(theta), keep)
    assert_close(found, -(theta.square() / (2.0 * keep * 0.25)).sum(1))


@pytest.mark.parametrize("name", PRIORS)
def test_derivatives_in_closed_form_are_those_of_autograd(name):
    """By the means of two particles and by the probability of each of two layers."""
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian(), prior=PRIORS[name])
    mean = (0.5 * normal(2, model.layout.size)).requires_grad_(True)
    keep = torch.tensor([[0.9, 0.5], [0.7, 0.8]], dtype=torch.float64, requires_grad=True)
    value = -expected_log_prior(model, mean, of_columns(keep, model, 1.0)).sum()
    by_mean, by_keep = torch.autograd.grad(value, (mean, keep))
    found = penalty_gradients(model, mean.detach(), keep.detach(), learns=True)
    if name == "learnt scale":
        assert found is None
    else:
        assert found is not None
        assert_close(found["mean"], by_mean)
        assert_close(found["keep"], by_keep)
        assert penalty_gradients(model, mean.detach(), keep.detach(), learns=False).keys() == {"mean"}
