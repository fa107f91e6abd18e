"""Published approximations of the divergence from the log-uniform prior, against quadrature."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.inference.dropout.log_uniform import check_prior, cubic, of_the_rest, sigmoid

from ..conftest import normal, small_network


def exact(log_alpha):
    """-1/2 log alpha + E log |1 + sqrt(alpha) z| + C, integrated on both sides of the pole."""
    root = math.exp(0.5 * log_alpha)
    pole = max(-1.0 / root, -12.0)

    def integrand(z):
        return np.log(abs(1.0 + root * z)) * math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)

    parts = [
        integrate.quad(integrand, *ends, limit=200)[0] for ends in ((-12.0, pole), (pole, 12.0)) if ends[0] < ends[1]
    ]
    return -0.5 * log_alpha + sum(parts) + 0.5 * (np.euler_gamma + math.log(2.0))


@pytest.mark.parametrize(("approximation", "highest", "error"), [(cubic, 0.0, 0.042), (sigmoid, 8.0, 0.01)])
def test_approximations_are_as_good_as_their_papers_say(approximation, highest, error):
    grid = np.arange(-10.0, highest + 0.5, 0.5)
    found = approximation(torch.tensor(grid))
    expected = torch.tensor([exact(value) for value in grid])
    assert float((found - expected).abs().max()) < error
    slopes = (found[1:] - found[:-1]) / 0.5
    assert bool((slopes < 0).all()) or approximation is cubic
    assert_close(slopes, (expected[1:] - expected[:-1]) / 0.5, rtol=0.0, atol=0.05)


def test_the_infimum_is_zero():
    assert float(sigmoid(torch.tensor(40.0, dtype=torch.float64))) == pytest.approx(0.0, abs=1e-12)
    assert float(sigmoid(torch.tensor(-200.0))) == pytest.approx(100.0 + 0.63576, rel=1e-6)


def test_columns_without_noise_keep_the_models_prior():
    prior = {"0.*": priors.Laplace(scale=0.5), "*": priors.Normal(0.2, 0.7)}
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian(), prior=prior)
    layout, theta = model.layout, normal(2, model.layout.size)
    noisy = torch.zeros(layout.random, dtype=torch.bool)
    noisy[layout.by_name["0.weight"].columns] = True
    moved = theta.clone()
    moved[:, layout.by_name["0.weight"].columns] = 0.0
    assert_close(of_the_rest(model, moved, noisy), of_the_rest(model, theta, noisy))
    weights = -theta[:, layout.by_name["0.weight"].columns].abs() / 0.5 - math.log(2.0 * 0.5)
    assert_close(of_the_rest(model, theta, noisy) + weights.sum(1), model.log_prior(theta))


def test_a_prior_with_learnt_scales_is_refused():
    model = bp.Model(
        nn.Linear(2, 1), likelihood=likelihoods.Gaussian(), prior=priors.Normal(scale=priors.HalfNormal(1.0))
    )
    with pytest.raises(ConfigurationError, match="GaussianDropout has the log-uniform prior for weights") as caught:
        check_prior(model, "GaussianDropout")
    assert "write: bp.Model(..., prior=bp.priors.Normal(scale=1.0))" in str(caught.value)
