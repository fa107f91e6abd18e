"""Diagonal plus low rank: every formula against the whole covariance matrix."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

import bayesprop as bp
from bayesprop.errors import ConfigurationError
from bayesprop.posteriors import DiagonalGaussian, LowRankGaussian


def made(model: bp.Model, particles: int = 2, rank: int = 3, seed: int = 2) -> LowRankGaussian:
    generator, width = torch.Generator().manual_seed(seed), model.layout.latent

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=model.dtype)

    std = 0.1 + 0.2 * torch.rand(particles, width, generator=generator, dtype=model.dtype)
    mean, factors = normal(particles, model.layout.size), 0.3 * normal(particles, rank, width)
    return LowRankGaussian(model, mean, std, factors, model.initial_buffers(particles))


def exact(posterior: LowRankGaussian, particle: int) -> torch.distributions.MultivariateNormal:
    width = posterior.model.layout.latent
    mean = posterior.mean()[particle, :width]
    return torch.distributions.MultivariateNormal(mean, posterior.covariance()[particle])


@pytest.mark.parametrize("name", ["plain", "noise", "points"])
def test_density_and_entropy_are_those_of_the_whole_matrix(model, name):
    posterior = made(model(name))
    theta = posterior.draw(posterior.rng(3), 4)
    found, width = posterior.log_density(theta), posterior.model.layout.latent
    for particle in range(2):
        law = exact(posterior, particle)
        assert_close(found[particle], law.log_prob(theta[particle, :, :width]), rtol=1e-10, atol=1e-9)
        assert_close(posterior.entropy()[particle], law.entropy(), rtol=1e-10, atol=1e-9)


def test_moments_are_the_diagonal_of_the_covariance(model):
    posterior = made(model("points"))
    width = posterior.model.layout.latent
    assert_close(posterior.std()[:, :width] ** 2, posterior.covariance().diagonal(dim1=1, dim2=2), rtol=1e-12, atol=0.0)
    assert torch.count_nonzero(posterior.std()[:, width:]).item() == 0
    assert posterior.rank == 3


@pytest.mark.statistical
def test_draws_have_this_mean_and_covariance(model):
    """z-tests at 5 standard errors of 8 means and 36 second moments of white draws: one seed in 40,000 fails."""
    posterior, count = made(model("plain"), particles=1), 4000
    theta = posterior.draw(posterior.rng(1), count)[0]
    factor = torch.linalg.cholesky(posterior.covariance()[0])
    white = torch.linalg.solve_triangular(factor, (theta - posterior.mean()[0]).T, upper=False).T
    assert float(white.mean(0).abs().max()) < 5.0 / math.sqrt(count)
    second = white.T @ white / count - torch.eye(8).double()
    assert float(second.abs().max()) < 5.0 * math.sqrt(2.0 / count)


def test_a_draw_is_the_same_number_whatever_their_number_is(model):
    posterior = made(model("points"))
    rng = posterior.rng(0)
    many = posterior.draw(rng, 7)
    assert_close(posterior.draw(rng, 3, 2), many[:, 2:5], rtol=1e-14, atol=1e-15)
    width = posterior.model.layout.latent
    assert_close(many[:, :, width:], posterior.mean()[:, None, width:].expand(-1, 7, -1), rtol=0.0, atol=0.0)


def test_without_factors_it_is_the_diagonal_gaussian(model):
    posterior = made(model("plain"))
    flat = LowRankGaussian(
        posterior.model, posterior.mean(), posterior.tensors()["std"], torch.zeros(2, 1, 8).double(), {}
    )
    diagonal = DiagonalGaussian(posterior.model, posterior.mean(), posterior.tensors()["std"], {})
    theta = diagonal.draw(diagonal.rng(0), 3)
    assert_close(flat.log_density(theta), diagonal.log_density(theta), rtol=1e-10, atol=1e-10)
    assert_close(flat.kl(), diagonal.kl(), rtol=1e-10, atol=1e-10)


def test_the_divergence_from_a_normal_prior_is_that_of_two_gaussians(model):
    """Closed form, of the whole covariance: torch's own formula for N(0.1, 0.7^2) a column, good to some 1e-9."""
    posterior = made(model("plain"))
    prior = torch.distributions.MultivariateNormal(torch.full((8,), 0.1).double(), 0.49 * torch.eye(8).double())
    for particle in range(2):
        expected = torch.distributions.kl_divergence(exact(posterior, particle), prior)
        assert_close(posterior.kl()[particle], expected, rtol=1e-8, atol=0.0)


@pytest.mark.statistical
def test_the_divergence_with_latents_is_sampled(model):
    """Against E[log q - log p] of other draws, within five of its standard errors (one seed in a million fails)."""
    posterior = made(model("noise"), particles=1)
    theta = posterior.draw(posterior.rng(9), 4000)
    values = (posterior.log_density(theta) - posterior.model.log_prior(theta))[0]
    error = float(values.std()) / math.sqrt(2000)
    assert float(posterior.kl(4000)) == pytest.approx(float(values.mean()), abs=5.0 * error)
    assert error < 0.2


def test_it_is_saved_and_loaded(model, network, rows, tmp_path):
    posterior = made(model("points"))
    posterior.save(tmp_path / "low.bayes")
    again = bp.load(tmp_path / "low.bayes", network=network("points"))
    assert isinstance(again, LowRankGaussian)
    assert_close(dict(again.tensors()), dict(posterior.tensors()), rtol=0.0, atol=0.0)
    assert_close(again.predict(rows("points"), 6).mean, posterior.predict(rows("points"), 6).mean, rtol=0.0, atol=0.0)
    assert again.member(1).rank == 3


def test_factors_over_other_columns_are_refused(model):
    with pytest.raises(ConfigurationError, match="deviations and factors over the same columns") as caught:
        LowRankGaussian(model("plain"), torch.zeros(1, 8), torch.zeros(1, 8), torch.zeros(1, 3, 7), {})
    assert "factors [1, 3, 7]" in str(caught.value)
