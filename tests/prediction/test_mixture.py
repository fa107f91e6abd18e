import math

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from torch.testing import assert_close

from bayesprop import rng
from bayesprop.likelihoods import Categorical, Gaussian, Poisson, StudentT
from bayesprop.prediction import mixture

LEVELS = (0.001, 0.05, 0.5, 0.9, 0.999)


def root(cdf, level):
    return optimize.brentq(lambda y: cdf(y) - level, -1e7, 1e7, xtol=1e-12)


def test_log_prob_averages_probabilities_and_not_their_logarithms(normal):
    outputs, targets = normal(7, 4, 1), normal(4, seed=1)
    density = stats.norm(outputs[:, :, 0].numpy(), 0.5)
    expected = np.log(density.pdf(targets.numpy()).mean(0))
    found = mixture.log_prob(Gaussian(scale=0.5), outputs, targets, {})
    assert_close(found, torch.from_numpy(expected))
    averaged_logarithms = torch.from_numpy(density.logpdf(targets.numpy()).mean(0))
    assert bool((found > averaged_logarithms + 0.1).all())


def test_log_prob_of_classes_is_that_of_the_mean_probability(normal):
    logits, labels = normal(7, 5, 3), torch.tensor([0, 1, 2, 0, 1])
    probabilities = logits.softmax(-1).mean(0)
    expected = probabilities[torch.arange(5), labels].log()
    assert_close(mixture.log_prob(Categorical(), logits, labels, {}), expected)


def test_log_prob_far_away_is_finite():
    outputs = torch.zeros(3, 1, 1)
    far = mixture.log_prob(Gaussian(scale=1.0), outputs, torch.tensor([1000.0]), {})
    assert far.item() == pytest.approx(stats.norm.logpdf(1000.0), rel=1e-5)


def test_several_targets_share_a_draw(normal):
    outputs, targets = normal(6, 2, 3), normal(2, 3, seed=1)
    joint = stats.norm(outputs.numpy(), 0.5).logpdf(targets.numpy()).sum(-1)
    expected = torch.from_numpy(np.log(np.exp(joint).mean(0)))
    assert_close(mixture.log_prob(Gaussian(scale=0.5), outputs, targets, {}), expected)


def test_cdf_is_the_mean_over_draws(normal):
    outputs, values = normal(6, 4, 1), normal(4, seed=1)
    expected = stats.norm(outputs[:, :, 0].numpy(), 0.5).cdf(values.numpy()).mean(0)
    assert_close(mixture.cdf(Gaussian(scale=0.5), outputs, values, {}), torch.from_numpy(expected))


def test_quantiles_of_a_gaussian_mixture_against_root_finding(normal):
    outputs = 3 * normal(8, 5, 1)
    scales = normal(8, seed=2).abs() + 0.1
    found = mixture.quantiles(Gaussian(), outputs, {"likelihood.scale": scales}, LEVELS)
    assert found.shape == (5, 5)
    for i, level in enumerate(LEVELS):
        for row in range(5):
            frozen = stats.norm(outputs[:, row, 0].numpy(), scales.numpy())
            assert found[i, row].item() == pytest.approx(root(lambda y, f=frozen: f.cdf(y).mean(), level), abs=1e-7)


def test_two_far_modes():
    outputs = torch.tensor([[[-1e4]], [[1e4]]], dtype=torch.float64)
    found = mixture.quantiles(Gaussian(scale=0.1), outputs, {}, (0.25, 0.75))
    # Half of all below: the 0.25 quantile is the median of the lower mode. Tolerance 1e-9 of the row's deviation, 0.1.
    assert_close(found[:, 0], torch.tensor([-1e4, 1e4], dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize("df", [1, 2, 4])
def test_quantiles_of_heavy_tails(df, normal):
    outputs = normal(4, 3, 1)
    found = mixture.quantiles(StudentT(df=df, scale=0.7), outputs, {}, LEVELS)
    for i, level in enumerate(LEVELS):
        for row in range(3):
            frozen = stats.t(df, outputs[:, row, 0].numpy(), 0.7)
            expected = root(lambda y, f=frozen: f.cdf(y).mean(), level)
            assert found[i, row].item() == pytest.approx(expected, rel=1e-6)


def test_quantiles_of_counts_are_whole_and_the_smallest_that_reach_the_level(normal):
    outputs = 2 * normal(5, 6, 1) + 1
    found = mixture.quantiles(Poisson(), outputs, {}, LEVELS)
    for i, level in enumerate(LEVELS):
        for row in range(6):
            frozen = stats.poisson(outputs[:, row, 0].exp().numpy())
            expected = next(k for k in range(100_000) if frozen.cdf(k).mean() >= level)
            assert found[i, row].item() == expected


def test_quantiles_of_one_draw_with_hardly_any_noise():
    found = mixture.quantiles(Gaussian(scale=1e-9), torch.full((1, 1, 1), 5.0), {}, (0.5,))
    assert found.item() == pytest.approx(5.0)


def test_outputs_that_are_not_finite_give_nan():
    outputs = torch.tensor([[[0.0], [math.nan], [math.inf]]])
    found = mixture.quantiles(Gaussian(scale=1.0), outputs, {}, (0.5,))[0]
    assert torch.isnan(found).tolist() == [False, True, True]
    assert found[0].item() == pytest.approx(0.0, abs=1e-8)


def test_quantiles_over_draws_are_numpys(normal):
    values = normal(7, 3, 2)
    expected = np.quantile(values.numpy(), LEVELS, axis=0)
    assert_close(mixture.quantiles_over_draws(values, LEVELS), torch.from_numpy(expected))
    assert_close(mixture.quantiles_over_draws(values[:1], (0.3,))[0], values[0])


@pytest.mark.parametrize(
    ("count", "expected"), [(4, [0, 1, 2, 3]), (8, [0, 0, 1, 1, 2, 2, 3, 3]), (2, [0, 2]), (6, [0, 0, 1, 2, 2, 3])]
)
def test_samples_take_draws_evenly(count, expected):
    outputs = 100.0 * torch.arange(4.0).reshape(4, 1, 1).expand(4, 3, 1)
    with rng.quarantine(0):
        drawn = mixture.sample(Gaussian(scale=1e-3), outputs, {}, count)
    assert drawn.shape == (count, 3)
    assert (drawn / 100).round()[:, 1].tolist() == expected


def test_samples_use_the_latents_of_their_draw():
    with rng.quarantine(0):
        scales = {"likelihood.scale": torch.tensor([1e-6, 1e6])}
        drawn = mixture.sample(Gaussian(), torch.zeros(2, 100, 1), scales, 2)
    assert drawn[0].abs().max() < 1e-4
    assert drawn[1].abs().max() > 1e4


@pytest.mark.statistical
def test_entropy_of_a_gaussian():
    with rng.quarantine(0):
        found = mixture.entropy(Gaussian(scale=2.0), torch.zeros(1, 400, 1, dtype=torch.float64), {}, 256)
    expected = 0.5 * math.log(2 * math.pi * math.e * 4)
    # -log p has variance 1/2; 400 x 256 samples. 5 standard errors: fails once in 1.7 million seeds.
    assert found.mean().item() == pytest.approx(expected, abs=5 * math.sqrt(0.5 / (400 * 256)))
    assert found.std().item() == pytest.approx(math.sqrt(0.5 / 256), rel=0.25)  # 7 standard errors of a deviation
