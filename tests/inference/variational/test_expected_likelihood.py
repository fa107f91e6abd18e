"""Expected log-likelihoods against draws and integrals of each likelihood's own log_prob."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.inference.variational.expected_likelihood import check_likelihood, expected_log_likelihood

from ..conftest import normal

LEARNT = priors.HalfNormal(1.0)
SCALES = {"likelihood.scale": (torch.tensor([[-0.5], [0.2]]).double(), torch.tensor([[0.1], [0.3]]).double())}


def outputs(count, particles=2, rows=3, size=0.4):
    """Mean and covariance of outputs."""
    mean = normal(particles, rows, count, seed=1)
    root = size * normal(particles, rows, count, count, seed=2)
    return mean, root @ root.mT + 0.02 * torch.eye(count).double()


def sampled(likelihood, mean, covariance, targets, scales, draws=40_000):
    """Mean and standard error of log p(y | f), one a particle, over draws of f and of the scale."""
    root = torch.linalg.cholesky(covariance)
    f = mean + (root @ normal(draws, *mean.shape, seed=3)[..., None])[..., 0]
    found = []
    for particle in range(mean.shape[0]):
        latents = {}
        for name, (centre, spread) in scales.items():
            latents[name] = (centre[particle] + spread[particle] * normal(draws, 1, seed=4)).exp()[:, 0]
        each = torch.func.vmap(likelihood.log_prob, in_dims=(0, None, 0))(f[:, particle], targets[particle], latents)
        found.append(each.sum(1))
    stack = torch.stack(found)
    return stack.mean(1), stack.std(1) / math.sqrt(draws)


CASES = {
    "Gaussian": (likelihoods.Gaussian(LEARNT), 2, normal(2, 3, 2, seed=6), SCALES),
    "Gaussian, fixed": (likelihoods.Gaussian(0.7), 1, normal(2, 3, 1, seed=6), {}),
    "HeteroscedasticGaussian": (likelihoods.HeteroscedasticGaussian(), 4, normal(2, 3, 2, seed=6), {}),
    "Bernoulli": (likelihoods.Bernoulli(), 1, (normal(2, 3, seed=6) > 0).long(), {}),
    "Poisson": (likelihoods.Poisson(), 2, normal(2, 3, 2, seed=6).abs().round(), {}),
    "StudentT": (likelihoods.StudentT(4.0, LEARNT), 1, normal(2, 3, 1, seed=6), SCALES),
}


@pytest.mark.statistical
@pytest.mark.parametrize("name", CASES)
def test_against_draws(name):
    """Five standard errors, of Gaussian outputs with correlations and a log-normal scale."""
    likelihood, count, targets, scales = CASES[name]
    mean, covariance = outputs(count)
    found = expected_log_likelihood(likelihood, mean, covariance, targets, scales)
    expected, error = sampled(likelihood, mean, covariance, targets, scales)
    assert bool(((found - expected).abs() < 5.0 * error).all()), (found, expected, error)


def exactly(mean, covariance, targets):
    """E log p(y | f) of three classes, one a particle: a lattice of 41^3 places over seven deviations."""
    places = torch.linspace(-7.0, 7.0, 41, dtype=torch.float64)
    weights = torch.exp(-0.5 * places.square()) * (places[1] - places[0]) / math.sqrt(2.0 * math.pi)
    grid = torch.cartesian_prod(places, places, places)
    mass = torch.cartesian_prod(weights, weights, weights).prod(1)
    f = mean[..., None, :] + grid @ torch.linalg.cholesky(covariance).mT
    chosen = torch.log_softmax(f, -1).gather(-1, targets[..., None, None].expand(2, 3, len(grid), 1))[..., 0]
    return (chosen @ mass).sum(1)


LABELS = torch.tensor([[0, 2, 1], [1, 1, 0]])


def test_the_categorical_is_right_to_second_order():
    """The error falls with the square of the covariance: 16 times for half the deviation, to within a third."""
    errors = []
    for size in (0.2, 0.1):
        mean, covariance = outputs(3, size=size)
        covariance = covariance - 0.019999 * torch.eye(3).double()
        found = expected_log_likelihood(likelihoods.Categorical(), mean, covariance, LABELS, {})
        errors.append(exactly(mean, covariance, LABELS) - found)
    assert float(errors[0].abs().max()) < 1e-2
    ratio = errors[0].abs().sum() / errors[1].abs().sum()
    assert float(ratio) == pytest.approx(16.0, rel=0.34)


@pytest.mark.parametrize("size", [0.1, 0.5, 1.5, 4.0])
def test_the_categorical_is_a_lower_bound(size):
    """However large the covariance is: below the integral, and not by more than outputs vary."""
    mean, covariance = outputs(3, size=size)
    found = expected_log_likelihood(likelihoods.Categorical(), mean, covariance, LABELS, {})
    exact = exactly(mean, covariance, LABELS)
    assert bool((found <= exact + 1e-6).all())
    assert bool((exact - found < covariance.diagonal(dim1=-2, dim2=-1).sum((1, 2))).all())


def test_certain_outputs_give_the_log_likelihood_itself():
    for likelihood, count, targets, scales in (
        *CASES.values(),
        (likelihoods.Categorical(), 3, torch.ones(2, 3).long(), {}),
    ):
        mean = normal(2, 3, count, seed=1)
        still = {name: (centre, torch.zeros_like(spread)) for name, (centre, spread) in scales.items()}
        found = expected_log_likelihood(likelihood, mean, torch.zeros(2, 3, count, count).double(), targets, still)
        for particle in range(2):
            latents = {name: centre[particle, 0].exp() for name, (centre, _) in scales.items()}
            expected = likelihood.log_prob(mean[particle], targets[particle], latents).sum()
            assert_close(found[particle], expected, rtol=1e-7, atol=1e-7)


def test_a_likelihood_that_couples_outputs_in_its_own_way_is_refused():
    made = likelihoods.FromDistribution(lambda f: torch.distributions.Normal(f[:, 0], f[:, 1].exp()))
    with pytest.raises(
        ConfigurationError, match="DVI knows the expected log-likelihood of the library's own"
    ) as caught:
        check_likelihood(made, 2)
    assert "write: BayesByBackprop()" in str(caught.value)
    assert check_likelihood(likelihoods.Categorical(), 10) is None
