"""The divergence of a posterior with correlations from a prior: closed where it can be, and the same by sampling."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.posteriors import FullGaussian, divergence
from bayesprop.posteriors.divergence import correlated_kl, cross_entropy


def correlated(prior: priors.Prior) -> FullGaussian:
    """Four columns of two particles, with all their correlations."""
    model = bp.Model(nn.Linear(3, 1).double(), likelihood=likelihoods.Gaussian(0.5), prior=prior)
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(2, 4, generator=generator, dtype=torch.float64)
    lower = torch.tril(torch.randn(2, 4, 4, generator=generator, dtype=torch.float64), -1)
    return FullGaussian(model, mean, lower + torch.diag_embed(0.5 + mean.square()), {})


def test_the_closed_form_is_that_of_two_gaussians():
    """(tr S + m'm - k - log det S) / 2 for a standard normal prior."""
    posterior = correlated(priors.Normal())
    mean, covariance = posterior.mean(), posterior.covariance()
    expected = 0.5 * (covariance.diagonal(dim1=1, dim2=2).sum(1) + mean.square().sum(1) - 4.0 - covariance.logdet())
    found = correlated_kl(posterior, posterior.entropy(), 1, 0, spread=True)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("prior", [priors.Normal(0.2, 0.7), priors.Laplace(0.0, 0.5)], ids=["normal", "laplace"])
def test_sampling_finds_the_same(prior):
    """Within four standard errors of 20,000 draws, which come from the draws themselves."""
    posterior = correlated(prior)
    closed = correlated_kl(posterior, posterior.entropy(), 1, 0, spread=True)
    sampled = correlated_kl(posterior, posterior.entropy(), 20_000, 0, spread=False)
    each = posterior.model.log_prior(posterior.draw(posterior.rng(0), 20_000))
    assert bool(((sampled - closed).abs() < 4.0 * each.std(1) / 20_000**0.5).all())
    assert bool((sampled != closed).all())


def test_draws_come_a_few_at_a_time_and_are_the_same(monkeypatch):
    posterior = correlated(priors.StudentT(4.0))
    whole, asked, draw = cross_entropy(posterior, 7, 3), [], posterior.draw
    monkeypatch.setattr(divergence, "DRAWN", 3 * 2 * 4)
    monkeypatch.setattr(posterior, "draw", lambda rng, draws, first=0: asked.append(draws) or draw(rng, draws, first))
    torch.testing.assert_close(cross_entropy(posterior, 7, 3), whole, rtol=1e-12, atol=0.0)
    assert asked == [3, 3, 1]
