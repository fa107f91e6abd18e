"""A Gaussian with a Kronecker product for each parameter, against its whole covariance matrix."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.posteriors import KroneckerGaussian
from bayesprop.posteriors.kronecker_gaussian import as_matrix


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def posterior(particles=2):
    network = nn.Sequential(nn.Conv1d(2, 2, 2), nn.LayerNorm(2), nn.Linear(2, 1)).double()
    model = bp.Model(network, likelihood=likelihoods.Gaussian())
    bases = {}
    for index, block in enumerate(model.layout.of_kind("random")):
        height, width = as_matrix(block)
        bases[f"left.{block.name}"] = torch.linalg.qr(numbers(particles, height, height, seed=index))[0]
        if width > 1:
            bases[f"right.{block.name}"] = torch.linalg.qr(numbers(particles, width, width, seed=50 + index))[0]
    size = model.layout.latent
    spread = 0.1 + numbers(particles, size, seed=99).abs()
    return KroneckerGaussian(model, numbers(particles, size, seed=98), spread, bases, {})


def covariance(found, particle):
    """Block by block: (Q_L x Q_R) diag(S^2) (Q_L x Q_R)^T."""
    whole = torch.zeros(found._spread.shape[1], found._spread.shape[1], dtype=torch.float64)
    for block in found.model.layout.of_kind("random", "latent"):
        left = found._bases.get(f"left.{block.name}", torch.ones(2, 1, 1).double())[particle]
        right = found._bases.get(f"right.{block.name}", torch.ones(2, 1, 1).double())[particle]
        rotation = torch.kron(left, right)
        variance = found._spread[particle, block.columns].square()
        whole[block.columns, block.columns] = rotation @ torch.diag(variance) @ rotation.T
    return whole


def test_densities_entropies_and_moments():
    found = posterior()
    theta = found._mean[:, None] + 0.3 * numbers(2, 5, found._mean.shape[1], seed=3)
    for particle in range(2):
        dense = MultivariateNormal(found._mean[particle], covariance(found, particle))
        assert_close(found.log_density(theta)[particle], dense.log_prob(theta[particle]))
        assert_close(found.entropy()[particle], dense.entropy())
        assert_close(found.std()[particle], dense.variance.sqrt())


def test_a_root_of_the_covariance():
    found = posterior()
    for particle in range(2):
        root = found.times_root(particle, torch.eye(found._mean.shape[1], dtype=torch.float64))
        assert_close(root @ root.T, covariance(found, particle))


@pytest.mark.statistical
def test_draws_have_this_covariance():
    """5 standard errors of each entry, sqrt((c_ii c_jj + c_ij^2) / n)."""
    found, count = posterior(1), 20_000
    drawn, exact = found.draw(found.rng(0), count)[0], covariance(found, 0)
    error = torch.sqrt((exact.diagonal()[:, None] * exact.diagonal() + exact**2) / count)
    assert bool(((torch.cov(drawn.T) - exact).abs() < 5.0 * error).all())
    assert_close(found.draw(found.rng(0), 11, first=20)[0], drawn[20:31], rtol=0.0, atol=0.0)


def test_files_and_members(tmp_path):
    found = posterior()
    found.evidence = torch.tensor([[-3.0, 1.0], [-4.0, 2.0]], dtype=torch.float64)
    found.linearised().save(tmp_path / "one.bayes")
    again = bp.load(tmp_path / "one.bayes", network=found.model.network)
    assert isinstance(again, KroneckerGaussian)
    assert again.linear
    assert again.log_evidence.tolist() == [-3.0, -4.0]
    assert_close(again.draw(again.rng(0), 3), found.draw(found.rng(0), 3), rtol=0.0, atol=0.0)
    assert_close(found.member(1).entropy(), found.entropy()[1:])


def test_its_divergence_is_that_of_the_whole_covariance():
    """From a standard normal prior: (tr C + |m|^2 - D) / 2 - log det C / 2, over weights alone."""
    network = nn.Linear(2, 2).double()
    model = bp.Model(network, likelihood=likelihoods.Gaussian(0.5))
    bases = {
        "left.weight": torch.linalg.qr(numbers(1, 2, 2))[0],
        "right.weight": torch.linalg.qr(numbers(1, 2, 2, seed=1))[0],
    }
    mean, spread = numbers(1, 6, seed=2), 0.2 + numbers(1, 6, seed=3).abs()
    found = KroneckerGaussian(model, mean, spread, bases, {})
    expected = 0.5 * (spread.square().sum() + mean.square().sum() - 6.0) - spread.log().sum()
    assert float(found.kl()) == pytest.approx(float(expected), rel=1e-10)
    assert math.isfinite(float(found.kl(4)))
