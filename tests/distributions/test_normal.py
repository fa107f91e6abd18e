from __future__ import annotations

import pytest
import torch
from scipy import stats

from bayesprop.distributions import normal

SETTINGS = [(0.0, 1.0), (0.0, 0.05), (1.5, 1.0), (-0.7, 3.0)]


@pytest.mark.parametrize(("loc", "scale"), SETTINGS)
def test_density_equals_torch_and_scipy(grid, loc, scale):
    found = normal.log_density(grid, loc, scale)
    reference = torch.distributions.Normal(*torch.tensor([loc, scale], dtype=torch.float64))
    torch.testing.assert_close(found, reference.log_prob(grid), rtol=1e-10, atol=0.0)
    expected = torch.from_numpy(stats.norm.logpdf(grid.numpy(), loc, scale))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=0.0)


@pytest.mark.parametrize(("loc", "scale"), SETTINGS)
def test_score_is_the_derivative(check_score, loc, scale):
    check_score(normal.DENSITY, loc, scale)


@pytest.mark.parametrize(("loc", "scale"), SETTINGS)
def test_divergence_equals_quadrature_and_torch(check_kl, loc, scale):
    check_kl(normal.DENSITY, loc, scale)
    mean, std = torch.linspace(-3, 3, 7, dtype=torch.float64), torch.logspace(-3, 1, 7, dtype=torch.float64)
    reference = torch.distributions.Normal(*torch.tensor([loc, scale], dtype=torch.float64))
    expected = torch.distributions.kl_divergence(torch.distributions.Normal(mean, std), reference)
    torch.testing.assert_close(normal.kl(mean, std, loc, scale), expected, rtol=1e-10, atol=1e-14)


def test_divergence_of_a_normal_from_itself_is_zero():
    mean, std = torch.tensor([0.3], dtype=torch.float64), torch.tensor([0.7], dtype=torch.float64)
    assert normal.kl(mean, std, 0.3, 0.7).item() == 0.0
    assert [g.item() for g in normal.kl_gradients(mean, std, 0.3, 0.7)] == pytest.approx([0.0, 0.0], abs=1e-15)


def test_scale_is_a_standard_deviation_not_a_variance():
    assert normal.std(0.0, 0.1) == 0.1
    found = normal.log_density(torch.tensor([0.1], dtype=torch.float64), 0.0, 0.1)
    assert found.item() == pytest.approx(stats.norm.logpdf(0.1, 0.0, 0.1))


def test_tensor_parameters(check_broadcast):
    check_broadcast(normal.DENSITY, *SETTINGS)
