"""The Gaussian with all correlations: every formula against torch's own."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

import bayesprop as bp
from bayesprop.errors import ConfigurationError
from bayesprop.posteriors import DiagonalGaussian, FullGaussian


def made(model: bp.Model, particles: int = 2, columns=None, seed: int = 2) -> FullGaussian:
    generator = torch.Generator().manual_seed(seed)
    width = model.layout.latent if columns is None else len(columns)
    mean = torch.randn(particles, model.layout.size, generator=generator, dtype=model.dtype)
    lower = 0.05 * torch.randn(particles, width, width, generator=generator, dtype=model.dtype).tril(-1)
    factor = lower + torch.diag_embed(0.1 + 0.2 * torch.rand(particles, width, generator=generator).to(model.dtype))
    chosen = None if columns is None else torch.tensor(columns)
    evidence = torch.tensor([[-3.0, 1.0]], dtype=model.dtype).expand(particles, 2)
    return FullGaussian(model, mean, factor, model.initial_buffers(particles), columns=chosen, evidence=evidence)


def exact(posterior: FullGaussian, particle: int) -> torch.distributions.MultivariateNormal:
    mean = posterior.mean()[particle, posterior.columns]
    return torch.distributions.MultivariateNormal(mean, posterior.covariance()[particle])


@pytest.mark.parametrize(
    ("name", "columns"), [("plain", None), ("noise", None), ("points", None), ("plain", [6, 1, 3])]
)
def test_density_and_entropy_are_those_of_the_whole_matrix(model, name, columns):
    posterior = made(model(name), columns=columns)
    theta = posterior.draw(posterior.rng(3), 4)
    found = posterior.log_density(theta)
    for particle in range(2):
        law = exact(posterior, particle)
        assert_close(found[particle], law.log_prob(theta[particle][:, posterior.columns]), rtol=1e-10, atol=1e-8)
        assert_close(posterior.entropy()[particle], law.entropy(), rtol=1e-10, atol=1e-10)


def test_moments_are_the_diagonal_and_zero_for_points(model):
    posterior = made(model("plain"), columns=[6, 1, 3])
    std = posterior.std()
    assert_close(std[:, [6, 1, 3]] ** 2, posterior.covariance().diagonal(dim1=1, dim2=2), rtol=1e-12, atol=0.0)
    assert torch.count_nonzero(std).item() == 6


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
    posterior = made(model("plain"), columns=[6, 1, 3])
    rng = posterior.rng(0)
    many = posterior.draw(rng, 7)
    assert_close(posterior.draw(rng, 3, 2), many[:, 2:5], rtol=1e-13, atol=1e-14)
    rest = [0, 2, 4, 5, 7]
    assert_close(many[..., rest], posterior.mean()[:, None, rest].expand(-1, 7, -1), rtol=0.0, atol=0.0)


def test_without_correlations_it_is_the_diagonal_gaussian(model):
    posterior = made(model("plain"))
    std = 0.3 * torch.ones(2, 8).double()
    flat = FullGaussian(posterior.model, posterior.mean(), torch.diag_embed(std), {})
    diagonal = DiagonalGaussian(posterior.model, posterior.mean(), std, {})
    theta = diagonal.draw(diagonal.rng(0), 3)
    assert_close(flat.draw(flat.rng(0), 3), theta, rtol=1e-13, atol=1e-14)
    assert_close(flat.log_density(theta), diagonal.log_density(theta), rtol=1e-10, atol=1e-10)
    assert_close(flat.kl(), diagonal.kl(), rtol=1e-10, atol=1e-10)


def test_the_divergence_from_a_normal_prior_is_that_of_two_gaussians(model):
    """Closed form, of the whole covariance: torch's own formula for N(0.1, 0.7^2) a column, good to some 1e-9."""
    posterior = made(model("plain"))
    prior = torch.distributions.MultivariateNormal(torch.full((8,), 0.1).double(), 0.49 * torch.eye(8).double())
    for particle in range(2):
        expected = torch.distributions.kl_divergence(exact(posterior, particle), prior)
        assert_close(posterior.kl()[particle], expected, rtol=1e-7, atol=0.0)


@pytest.mark.statistical
@pytest.mark.parametrize(("name", "columns"), [("noise", None), ("plain", [6, 1, 3])])
def test_the_divergence_with_latents_or_points_is_sampled(model, name, columns):
    """Against E[log q - log p] of other draws, within five of its standard errors (one seed in a million fails)."""
    posterior = made(model(name), particles=1, columns=columns)
    theta = posterior.draw(posterior.rng(9), 4000)
    values = (posterior.log_density(theta) - posterior.model.log_prior(theta))[0]
    error = float(values.std()) / math.sqrt(2000)
    assert float(posterior.kl(4000)) == pytest.approx(float(values.mean()), abs=5.0 * error)
    assert error < 0.2


def test_it_is_saved_and_loaded(model, network, rows, tmp_path):
    posterior = made(model("plain"), columns=[6, 1, 3])
    posterior.save(tmp_path / "full.bayes")
    again = bp.load(tmp_path / "full.bayes", network=network("plain"))
    assert isinstance(again, FullGaussian)
    assert_close(dict(again.tensors()), dict(posterior.tensors()), rtol=0.0, atol=0.0)
    assert_close(again.predict(rows("plain"), 6).mean, posterior.predict(rows("plain"), 6).mean, rtol=0.0, atol=0.0)
    assert again.member(1).columns.tolist() == [6, 1, 3]
    assert again.member(1).log_evidence.tolist() == [-3.0]


def test_a_factor_over_other_columns_is_refused(model):
    with pytest.raises(ConfigurationError, match="one square factor over its columns") as caught:
        FullGaussian(model("plain"), torch.zeros(1, 8), torch.zeros(1, 7, 7), {})
    assert "expected: factor [1, 8, 8]" in str(caught.value)
