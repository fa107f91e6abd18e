import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from sklearn.metrics import root_mean_squared_error as sklearn_rmse

from bayesprop.errors import ConfigurationError, DataError
from bayesprop.metrics import (
    crps_from_samples,
    crps_gaussian,
    interval_coverage,
    interval_score,
    interval_width,
    root_mean_squared_error,
)

RANDOM = np.random.default_rng(0)
MEAN, TARGETS = RANDOM.normal(size=60), RANDOM.normal(size=60)
STD = RANDOM.uniform(0.5, 2.0, size=60)


def test_root_mean_squared_error_against_scikit_learn():
    assert root_mean_squared_error(MEAN, TARGETS) == pytest.approx(sklearn_rmse(TARGETS, MEAN))
    assert root_mean_squared_error(MEAN[:, None], torch.from_numpy(TARGETS)) == pytest.approx(
        sklearn_rmse(TARGETS, MEAN)
    )


def test_intervals():
    low, high, targets = [0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 3.0], [0.0, 1.0, 1.5, -1.0]
    assert interval_coverage(low, high, targets) == 0.5
    assert interval_width(low, high) == 1.5
    # 2 / (1 - 0.8) = 10 times the distances 0.5 and 1 outside.
    assert interval_score(low, high, targets, level=0.8) == pytest.approx(1.5 + 10 * (0.5 + 1.0) / 4)


def test_the_interval_score_is_least_for_the_true_quantiles():
    draws = torch.from_numpy(stats.norm.ppf((np.arange(4000) + 0.5) / 4000))  # a normal sample without noise
    end = stats.norm.ppf(0.95)

    def score(stretch):
        return interval_score(-stretch * end * torch.ones(4000), stretch * end * torch.ones(4000), draws, level=0.9)

    assert score(1.0) < score(0.9)
    assert score(1.0) < score(1.1)


def test_crps_of_a_gaussian_against_the_integral():
    frozen = stats.norm(0.3, 1.7)
    value, _ = integrate.quad(lambda x: (frozen.cdf(x) - (x >= 2.0)) ** 2, -20, 25, points=[2.0])
    assert crps_gaussian([0.3], [1.7], [2.0]) == pytest.approx(value, abs=1e-8)
    assert crps_gaussian([0.3, 0.0], [0.0, 0.0], [2.0, 0.0]) == pytest.approx(1.7 / 2)


@pytest.mark.parametrize("unbiased", [True, False])
def test_crps_from_samples_against_all_pairs(unbiased):
    samples = RANDOM.normal(size=(9, 5, 2))
    targets = RANDOM.normal(size=(5, 2))
    pairs = np.abs(samples[:, None] - samples[None]).sum((0, 1)) / (9 * 8 if unbiased else 81)
    expected = (np.abs(samples - targets).mean(0) - 0.5 * pairs).mean()
    assert crps_from_samples(samples, targets, unbiased=unbiased) == pytest.approx(expected, abs=1e-12)


@pytest.mark.statistical
def test_crps_from_samples_of_a_gaussian():
    samples = torch.from_numpy(np.random.default_rng(1).normal(MEAN, STD, size=(2000, 60)))
    # Over 100 seeds the estimate has standard deviation 0.0023; 5 of them fail once in 1.7 million seeds.
    assert crps_from_samples(samples, TARGETS) == pytest.approx(crps_gaussian(MEAN, STD, TARGETS), abs=5 * 0.0023)


def test_refusals():
    with pytest.raises(DataError, match=r"\(S, n\) or \(S, n, T\) with S >= 2, draws first"):
        crps_from_samples(torch.zeros(1, 4), torch.zeros(4))
    with pytest.raises(DataError, match=r"samples\[0\] and targets"):
        crps_from_samples(torch.zeros(4, 10), torch.zeros(4))
    with pytest.raises(DataError, match="standard deviation is negative"):
        crps_gaussian([0.0], [-1.0], [0.0])
    with pytest.raises(ConfigurationError, match="level"):
        interval_score([0.0], [1.0], [0.5], level=90)
    with pytest.raises(DataError, match=r"predictions and targets(.|\n)*\(3, 3\) and \(3,\)"):
        root_mean_squared_error(torch.zeros(3, 3), torch.zeros(3))
    assert math.isfinite(crps_from_samples(torch.zeros(1, 4), torch.zeros(4), unbiased=False))
