"""Priors over functions, and the divergence between Gaussians over outputs."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.inference import RBF, WidePrior
from bayesprop.inference.function_space.process_prior import FunctionPrior, gaussian_divergence
from bayesprop.posteriors.wide_network import WideNetwork

from ..conftest import normal


def test_rbf():
    rows = torch.tensor([[0.0, 0.0], [1.0, 2.0]])
    model = bp.Model(nn.Linear(2, 1), likelihood=likelihoods.Gaussian())
    found = RBF(2.0, 3.0).covariance(model, rows)
    assert float(found[0, 1]) == pytest.approx(4.0 * math.exp(-5.0 / 18.0))
    assert found.diagonal().tolist() == [4.0, 4.0]
    free = RBF(2.0).covariance(model, rows)  # a length of sqrt(2)
    assert float(free[0, 1]) == pytest.approx(4.0 * math.exp(-5.0 / 4.0))


def test_the_process_of_the_network_itself():
    prior = priors.Normal(scale=priors.HalfNormal(1.0))
    network = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    model, rows = bp.Model(network, likelihood=likelihoods.Gaussian(), prior=prior), normal(4, 2)
    start = [latent.initial_column() for latent in model.latents]
    expected = WideNetwork(model).own(torch.tensor([start], dtype=torch.float64), rows[None])[0]
    assert_close(WidePrior().covariance(model, rows), expected)
    other = bp.Model(nn.Sequential(nn.Linear(2, 1), nn.Dropout()), likelihood=likelihoods.Gaussian())
    with pytest.raises(ConfigurationError, match="the infinitely wide network is known for"):
        WidePrior().check(other)
    assert isinstance(WidePrior(), FunctionPrior)


def test_the_divergence_is_that_of_two_gaussians():
    """Three outputs at four rows, all correlated under q, independent under the prior."""
    mean, root, rows = normal(3, 4), normal(12, 12, seed=1), normal(4, 2, seed=2)
    covariance = root @ root.T + 0.1 * torch.eye(12).double()
    model = bp.Model(nn.Linear(2, 3), likelihood=likelihoods.Categorical())
    prior = RBF(1.3, 1.0).covariance(model, rows) + 0.01 * torch.eye(4).double()
    q = torch.distributions.MultivariateNormal(mean.flatten(), covariance)
    p = torch.distributions.MultivariateNormal(
        torch.zeros(12).double(), torch.block_diag(*[prior.contiguous() for _ in range(3)])
    )
    assert_close(gaussian_divergence(mean, covariance, prior), torch.distributions.kl_divergence(q, p))


def test_numbers_that_are_not_positive_are_refused():
    for settings in ({"amplitude": 0.0}, {"length": -1.0}):
        with pytest.raises(ConfigurationError, match="RBF needs a positive amplitude and length"):
            RBF(**settings)
