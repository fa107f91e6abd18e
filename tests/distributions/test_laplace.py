from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from bayesprop.distributions import laplace

SETTINGS = [(0.0, 1.0), (0.0, 0.05), (1.5, 1.0), (-0.7, 3.0)]


@pytest.mark.parametrize(("loc", "scale"), SETTINGS)
def test_density_equals_torch_and_scipy(grid, loc, scale):
    found = laplace.log_density(grid, loc, scale)
    reference = torch.distributions.Laplace(*torch.tensor([loc, scale], dtype=torch.float64))
    torch.testing.assert_close(found, reference.log_prob(grid), rtol=1e-10, atol=1e-13)
    near = (grid - loc).abs() < 700.0 * scale  # scipy takes the logarithm of a density that underflows further out
    assert near.sum() > 90
    expected = torch.from_numpy(stats.laplace.logpdf(grid[near].numpy(), loc, scale))
    torch.testing.assert_close(found[near], expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(("loc", "scale"), SETTINGS)
def test_score_is_the_derivative(check_score, loc, scale):
    check_score(laplace.DENSITY, loc, scale)


def test_score_at_the_kink_is_zero():
    assert laplace.score(torch.tensor([1.5]), 1.5, 2.0).item() == 0.0


@pytest.mark.parametrize(("loc", "scale"), SETTINGS)
def test_divergence_equals_quadrature(check_kl, loc, scale):
    check_kl(laplace.DENSITY, loc, scale)


def test_divergence_tends_to_the_cross_entropy_of_a_point_and_stays_finite():
    # m = 3, s = 1e-8: E|w| = 3 to all digits, erf has saturated, and nothing is NaN.
    mean, std = torch.tensor([3.0], dtype=torch.float64), torch.tensor([1e-8], dtype=torch.float64)
    expected = math.log(2.0) + 3.0 - math.log(1e-8) - 0.5 * math.log(2.0 * math.pi * math.e)
    assert laplace.kl(mean, std, 0.0, 1.0).item() == pytest.approx(expected, rel=1e-14)
    assert laplace.kl_gradients(mean, std, 0.0, 1.0)[0].item() == 1.0


def test_standard_deviation(check_broadcast):
    assert laplace.std(0.0, 0.1) == pytest.approx(stats.laplace.std(0.0, 0.1), rel=1e-14)
    check_broadcast(laplace.DENSITY, *SETTINGS)
