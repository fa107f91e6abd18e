"""A mixture of Gaussians: densities, moments, draws that know their component, divergence, files."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.errors import ConfigurationError
from bayesprop.posteriors import DiagonalGaussian, GaussianMixture
from bayesprop.posteriors.gaussian_mixture import mixture_log_density
from bayesprop.testing import LinearRegression

WEIGHTS = torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]]).double()


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def mixture(particles=2):
    mean, std = 2.0 * numbers(2, 3, 4, seed=1), 0.2 + numbers(2, 3, 4, seed=2).abs()
    parts = (tensor[:particles] for tensor in (WEIGHTS, mean, std))
    return GaussianMixture(LinearRegression().model, *parts, {})


def test_the_density_is_that_of_torch():
    q, theta = mixture(), numbers(2, 5, 4, seed=3)
    for particle in range(2):
        parts = {n: t[particle] for n, t in q.tensors().items()}
        components = torch.distributions.Independent(torch.distributions.Normal(parts["mean"], parts["std"]), 1)
        made = torch.distributions.MixtureSameFamily(torch.distributions.Categorical(parts["weights"]), components)
        assert_close(q.log_density(theta)[particle], made.log_prob(theta[particle]))
        assert_close(q.mean()[particle], made.mean)
        assert_close(q.std()[particle], made.variance.sqrt())
    assert_close(q.log_density(theta[:, 0]), q.log_density(theta)[:, 0])


@pytest.mark.statistical
def test_draws_have_the_weights_and_the_moments():
    """20,000 draws: five standard errors of means, of variances and of the shares of components."""
    q = mixture()
    theta = q.draw(q.rng(0), 20_000)
    mean, std = theta.mean(1), theta.std(1)
    assert bool(((mean - q.mean()).abs() < 5.0 * std / 20_000**0.5).all())
    fourth = (theta - mean[:, None]).pow(4).mean(1) - std.pow(4)
    assert bool(((std.square() - q.std().square()).abs() < 5.0 * (fourth / 20_000).sqrt()).all())
    chosen, _ = q._noise(q.rng(0), 20_000, 0)
    shares = torch.stack([(chosen == k).double().mean(1) for k in range(3)], dim=1)
    assert bool(((shares - WEIGHTS).abs() < 5.0 * (WEIGHTS * (1 - WEIGHTS) / 20_000).sqrt()).all())


def test_a_draw_is_the_same_whatever_is_drawn_with_it():
    q = mixture()
    together = q.draw(q.rng(3), 12)
    assert torch.equal(q.draw(q.rng(3), 5, first=7), together[:, 7:])
    alone = q.member(0)
    assert torch.equal(alone.draw(alone.rng(3), 12)[0], together[0])


def test_one_component_is_a_gaussian_and_a_weight_of_zero_is_none():
    model, mean, std = LinearRegression().model, numbers(1, 4), 0.3 + numbers(1, 4, seed=5).abs()
    single = DiagonalGaussian(model, mean, std, {})
    far = torch.stack((mean, mean + 100.0), dim=1)
    q = GaussianMixture(model, torch.tensor([[1.0, 0.0]]).double(), far, torch.stack((std, std), dim=1), {})
    theta = numbers(1, 6, 4, seed=7)
    assert_close(q.log_density(theta), single.log_density(theta))
    assert bool((q.draw(q.rng(0), 200)[0] < 50.0).all())


@pytest.mark.statistical
def test_the_divergence_against_the_closed_form():
    """Two components that are the same are one Gaussian, whose divergence is known: five standard errors of 4,000
    draws."""
    model, mean, std = LinearRegression().model, numbers(1, 4), 0.3 + numbers(1, 4, seed=5).abs()
    q = GaussianMixture(
        model, torch.full((1, 2), 0.5).double(), mean[:, None].repeat(1, 2, 1), std[:, None].repeat(1, 2, 1), {}
    )
    exact = DiagonalGaussian(model, mean, std, {}).kl()
    theta = q.draw(q.rng(0), 4_000)
    each = q.log_density(theta) - model.log_prior(theta)
    assert abs(float(q.kl(4_000)) - float(exact)) < 5.0 * float(each.std()) / 4_000**0.5
    assert float(q.kl(4_000)) == pytest.approx(float(each.mean()))


def test_buffers_travel_with_the_component(tmp_path):
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1)).double()
    model = bp.Model(network, likelihood=likelihoods.Gaussian(0.5))
    model.probe(numbers(4, 3), None)
    size = model.layout.size
    mean = torch.stack((torch.zeros(1, size), torch.full((1, size), 5.0)), dim=1).double()
    std = torch.full((1, 2, size), 0.01).double()
    own = {"1.running_mean": torch.tensor([[[0.0, 0.0], [7.0, 7.0]]]).double()}
    weights = torch.tensor([[0.5, 0.5]]).double()
    q = GaussianMixture(model, weights, mean, std, model.initial_buffers(1), component_buffers=own)
    theta, buffers = q.draw(q.rng(0), 20), q.draw_buffers(q.rng(0), 20)
    second = theta[..., 0] > 2.5
    assert 0 < int(second.sum()) < 20
    assert_close(buffers["1.running_mean"][..., 0], torch.where(second, 7.0, 0.0).double())
    q.save(tmp_path / "q.bayes")
    again = bp.load(tmp_path / "q.bayes", network=network)
    assert isinstance(again, GaussianMixture)
    assert_close(again.component_buffers, q.component_buffers)
    assert_close(again.predict(numbers(4, 3), 9).mean, q.predict(numbers(4, 3), 9).mean)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ConfigurationError, match="a mixture has a weight, means and deviations for each component"):
        GaussianMixture(LinearRegression().model, torch.ones(1, 2), torch.ones(1, 3, 4), torch.ones(1, 3, 4), {})


def test_far_from_everything_the_density_is_small_and_not_nan():
    q = mixture()
    found = mixture_log_density(
        1e3 * torch.ones(2, 1, 4).double(), WEIGHTS.log(), q.tensors()["mean"], q.tensors()["std"]
    )
    assert bool(torch.isfinite(found).all())
    assert float(found.max()) < -0.5 * math.pow(10.0, 3)
