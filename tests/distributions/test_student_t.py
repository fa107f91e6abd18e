from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from bayesprop.distributions import normal, student_t

SETTINGS = [(1.0, 0.0, 1.0), (4.0, 0.0, 0.05), (0.5, 1.5, 1.0), (30.0, -0.7, 3.0)]


@pytest.mark.parametrize(("df", "loc", "scale"), SETTINGS)
def test_density_equals_torch_and_scipy(grid, df, loc, scale):
    found = student_t.log_density(grid, df, loc, scale)
    reference = torch.distributions.StudentT(*torch.tensor([df, loc, scale], dtype=torch.float64))
    torch.testing.assert_close(found, reference.log_prob(grid), rtol=1e-10, atol=1e-13)
    expected = torch.from_numpy(stats.t.logpdf(grid.numpy(), df, loc, scale))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-13)


def test_one_degree_of_freedom_is_cauchy(grid):
    expected = torch.distributions.Cauchy(*torch.tensor([0.5, 2.0], dtype=torch.float64)).log_prob(grid)
    torch.testing.assert_close(student_t.log_density(grid, 1.0, 0.5, 2.0), expected, rtol=1e-10, atol=0.0)


def test_many_degrees_of_freedom_are_normal():
    value = torch.linspace(-3, 3, 13, dtype=torch.float64)
    # The first correction of the expansion in 1 / df is (w^4 - 2 w^2 - 1) / (4 df): below 16 / df here.
    torch.testing.assert_close(
        student_t.log_density(value, 1e7, 0.0, 1.0), normal.log_density(value, 0.0, 1.0), rtol=0.0, atol=1.6e-6
    )


@pytest.mark.parametrize(("df", "loc", "scale"), SETTINGS)
def test_score_is_the_derivative(check_score, df, loc, scale):
    check_score(student_t.DENSITY, df, loc, scale)


def test_score_vanishes_like_one_over_the_distance():
    value = torch.tensor([1e6], dtype=torch.float64)
    assert student_t.score(value, 3.0, 0.0, 1.0).item() == pytest.approx(-4.0 / 1e6, rel=1e-11)


def test_standard_deviation_is_infinite_up_to_two_degrees(check_broadcast):
    assert student_t.std(4.0, 0.0, 0.3) == pytest.approx(stats.t.std(4.0, 0.0, 0.3), rel=1e-12)
    assert math.isinf(float(student_t.std(2.0, 0.0, 1.0)))
    assert math.isinf(float(student_t.std(1.0, 0.0, 1.0)))
    check_broadcast(student_t.DENSITY, *SETTINGS)


def test_there_is_no_closed_form_divergence():
    assert student_t.DENSITY.kl is None
    assert student_t.DENSITY.kl_gradients is None
