"""The prior's second derivative and its best factor: against autograd's Hessian and a grid."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.inference.laplace.prior_curvature import (
    check_prior,
    log_prior_of,
    prior_precision,
    strongest_factor,
    unexplained,
)

from ..conftest import normal, small_network

PRIORS = {
    "normal": priors.Normal(0.2, 0.7),
    "mixed": {"0.*": priors.StudentT(3.0, scale=0.5), "*": priors.ScaleMixture(0.5, 1.0, 0.3)},
    "flat": priors.Flat(),
    "learnt": priors.Normal(scale=priors.HalfNormal(0.5)),
    "horseshoe": priors.Horseshoe(0.3),
}


@pytest.mark.parametrize("name", list(PRIORS))
def test_it_is_the_whole_hessian_which_is_diagonal(name):
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian(), prior=PRIORS[name])
    theta = 0.5 * normal(2, model.layout.size)
    found = prior_precision(model, theta)
    check_prior(model, torch.arange(model.layout.latent), scaled=False)
    for particle in range(2):
        expected = -torch.autograd.functional.hessian(model.log_prior, theta[particle])
        assert_close(torch.diag(found[particle]), expected, rtol=1e-9, atol=1e-10)


def test_the_density_of_some_columns():
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian(), prior=PRIORS["mixed"])
    theta, columns = 0.5 * normal(2, model.layout.size), torch.tensor([3, 14, 18])
    everything = torch.arange(model.layout.latent)
    assert_close(log_prior_of(model, theta, everything), model.log_prior(theta), rtol=1e-12, atol=0.0)
    moved = theta.clone()
    moved[:, columns] += 0.3
    found = log_prior_of(model, moved, columns) - log_prior_of(model, theta, columns)
    assert_close(found, model.log_prior(moved) - model.log_prior(theta), rtol=1e-10, atol=1e-12)


def test_what_the_prior_does_not_explain():
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian(), prior=PRIORS["normal"])
    theta, columns = normal(2, model.layout.size), torch.tensor([0, 5])
    found = unexplained(model, theta, prior_precision(model, theta), columns)
    expected = ((theta[:, columns] - 0.2) / 0.7).square().sum(1)
    assert_close(found, expected, rtol=1e-10, atol=0.0)


def test_the_factor_has_the_greatest_evidence_of_a_grid():
    """sum_i [log a - log(l_i + a)] - a q over 4,001 factors, 0.5 % apart; and a = M / q where there are no data."""
    values, quadratic = normal(3, 6).square() * torch.tensor([0.1, 1.0, 50.0])[:, None], normal(3, seed=2).square()
    grid = torch.logspace(-4, 4.7, 4001, dtype=torch.float64)[:, None, None]
    evidence = (grid.log() - (values + grid).log()).sum(-1) - grid[..., 0] * quadratic
    expected = grid[evidence.argmax(0), 0, 0]
    assert_close(strongest_factor(values, quadratic), expected, rtol=0.006, atol=0.0)
    certain = strongest_factor(torch.full((1, 6), 1e12).double(), torch.tensor([2.0]).double())
    assert float(certain) == pytest.approx(3.0, rel=1e-9)
    assert float(strongest_factor(torch.zeros(1, 6).double(), torch.ones(1).double())) == pytest.approx(1e-8)
    assert math.isclose(float(strongest_factor(torch.ones(1, 1).double(), torch.zeros(1).double())), 1e8, rel_tol=1e-9)


@pytest.mark.parametrize(
    ("prior", "scaled", "fault"),
    [
        (priors.Laplace(), False, "needs the curvature of the prior"),
        (priors.Normal(scale=priors.HalfNormal(1.0, centred=True)), False, "a centred hierarchical prior has none"),
        (priors.StudentT(), True, "scales the precision of a normal prior"),
        (priors.Normal(scale=priors.HalfNormal(1.0)), True, "whose scale is learnt already"),
    ],
)
def test_priors_that_cannot_work_are_refused(prior, scaled, fault):
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian(), prior=prior)
    with pytest.raises(ConfigurationError, match=fault) as caught:
        check_prior(model, torch.arange(model.layout.latent), scaled=scaled)
    assert "write: " in str(caught.value)


def test_a_prior_of_columns_that_are_points_does_not_matter():
    prior = {"0.*": priors.Laplace(), "*": priors.Normal()}
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian(), prior=prior)
    check_prior(model, torch.arange(16, 21), scaled=True)
    with pytest.raises(ConfigurationError, match="needs the curvature of the prior"):
        check_prior(model, torch.arange(15, 21), scaled=True)
