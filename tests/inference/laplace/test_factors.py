"""From precisions to a Gaussian: factors against inverses, evidence against the whole formula with latents."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.inference.laplace.factors import covariance_factor, diagonal_law, full_law
from bayesprop.inference.laplace.prior_curvature import prior_precision

from ..conftest import normal


def matrices(width: int, count: int = 2):
    """Gauss-Newton matrices with all correlations, latents included."""
    roots = normal(count, width + 2, width, seed=6)
    return roots.transpose(1, 2) @ roots


def model_with(prior=None, likelihood=None):
    likelihood = likelihoods.Gaussian() if likelihood is None else likelihood
    return bp.Model(nn.Linear(3, 1).double(), likelihood=likelihood, prior=prior or priors.Normal(0.1, 0.7))


def test_the_factor_is_that_of_the_inverse():
    precision = matrices(7, 1)[0]
    factor, log_det = covariance_factor(precision)
    assert_close(factor, torch.linalg.cholesky(torch.linalg.inv(precision)), rtol=1e-9, atol=1e-12)
    assert_close(log_det, torch.logdet(precision), rtol=1e-12, atol=0.0)
    assert float(factor.triu(1).abs().max()) == 0.0


@pytest.mark.parametrize("factor", [1.0, 2.5])
def test_the_law_and_its_evidence(factor):
    """Equation (1) with a latent of the likelihood, whose prior no factor touches."""
    model, theta, value = model_with(), 0.5 * normal(2, 5), normal(2, seed=3)
    gauss_newton, columns = matrices(5), torch.arange(5)
    factors = torch.tensor([factor] * 4 + [1.0], dtype=torch.float64)
    prior = factors * prior_precision(model, theta)
    loc = torch.tensor(0.1, dtype=torch.float64)
    weights = torch.distributions.Normal(loc, 0.7 / math.sqrt(factor)).log_prob(theta[:, :4]).sum(1)
    latent = model.likelihood.latents[0].unconstrained_log_density(theta[:, 4:])
    constant = value + weights + latent + 2.5 * math.log(2.0 * math.pi)

    lower, evidence = full_law(model, theta, gauss_newton.clone(), value, columns, factor)
    precision = gauss_newton + torch.diag_embed(prior)
    assert_close(lower @ lower.transpose(1, 2), torch.linalg.inv(precision), rtol=1e-9, atol=1e-11)
    assert_close(evidence[:, 0], constant - 0.5 * torch.logdet(precision), rtol=1e-9, atol=0.0)
    assert evidence[:, 1].tolist() == [factor, factor]

    diagonal = gauss_newton.diagonal(dim1=1, dim2=2)
    std, evidence = diagonal_law(model, theta, diagonal.clone(), value, columns, factor)
    assert_close(std**-2, diagonal + prior, rtol=1e-10, atol=0.0)
    assert_close(evidence[:, 0], constant - 0.5 * (diagonal + prior).log().sum(1), rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("law", [full_law, diagonal_law])
def test_the_factor_by_evidence_beats_those_beside_it(law):
    """Each particle has its own; latents have correlations with the weights here."""
    model, theta, value = model_with(), normal(2, 5), torch.zeros(2).double()
    whole = matrices(5)
    matrix = whole if law is full_law else whole.diagonal(dim1=1, dim2=2)
    found = law(model, theta, matrix.clone(), value, torch.arange(5), "evidence")[1]
    assert float((found[0, 1] - found[1, 1]).abs()) > 1e-3
    for particle in range(2):
        best = float(found[particle, 1])
        assert 1e-6 < best < 1e6
        for beside in (0.5, 0.98, 1.02, 2.0):
            other = law(model, theta, matrix.clone(), value, torch.arange(5), best * beside)[1]
            assert float(other[particle, 0]) < float(found[particle, 0])


def test_a_point_that_is_no_mode_is_refused():
    """Between the components of a mixture the prior bends upwards; without data nothing holds against it."""
    model = model_with(priors.ScaleMixture(0.5, 1.0, 0.01), likelihoods.Gaussian(1.0))
    theta, value, columns = torch.full((1, 4), 0.035).double(), torch.zeros(1).double(), torch.arange(4)
    assert float(prior_precision(model, theta).max()) < 0.0
    with pytest.raises(ConfigurationError, match="the log joint has no maximum") as caught:
        full_law(model, theta, torch.zeros(1, 4, 4).double(), value, columns, 1.0)
    assert "a matrix of 4 columns that is not positive definite" in str(caught.value)
    with pytest.raises(ConfigurationError, match=r"a precision of -\d.* in weight"):
        diagonal_law(model, theta, torch.zeros(1, 4).double(), value, columns, 1.0)
