from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, Normal

from bayesprop.distributions import normal, scale_mixture

BLUNDELL = (0.5, 1.0, math.exp(-6.0))
SETTINGS = [BLUNDELL, (0.25, math.exp(-2.0), math.exp(-8.0)), (0.75, 0.3, 2.0), (0.001, 5.0, 0.4)]


@pytest.mark.parametrize(("pi", "scale1", "scale2"), SETTINGS)
def test_density_equals_torch(grid, pi, scale1, scale2):
    weights = Categorical(torch.tensor([pi, 1.0 - pi], dtype=torch.float64))
    reference = MixtureSameFamily(weights, Normal(torch.zeros(2), torch.tensor([scale1, scale2], dtype=torch.float64)))
    found = scale_mixture.log_density(grid, pi, scale1, scale2)
    torch.testing.assert_close(found, reference.log_prob(grid), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(("pi", "scale1", "scale2"), SETTINGS)
def test_score_is_the_derivative(check_score, pi, scale1, scale2):
    check_score(scale_mixture.DENSITY, pi, scale1, scale2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weight", [50.0, -50.0, 1e4])
def test_far_in_the_tail_the_wide_component_speaks(dtype, weight):
    # exp(-50^2 / 2) underflows: a density that is exponentiated and kept from log(0) by an epsilon has gradient 0 here.
    pi, scale1, scale2 = BLUNDELL
    value = torch.tensor([weight], dtype=dtype, requires_grad=True)
    log_density = scale_mixture.log_density(value, pi, scale1, scale2)
    (gradient,) = torch.autograd.grad(log_density.sum(), value)
    assert log_density.item() == pytest.approx(math.log(pi) - 0.5 * math.log(2 * math.pi) - 0.5 * weight**2, rel=1e-6)
    assert gradient.item() == pytest.approx(-weight, rel=1e-6)
    assert scale_mixture.score(value.detach(), pi, scale1, scale2).item() == pytest.approx(-weight, rel=1e-6)


def test_near_zero_the_narrow_component_speaks():
    value = torch.tensor([1e-4], dtype=torch.float64)
    pi, scale1, scale2 = BLUNDELL
    odds = (1.0 - pi) / scale2 * math.exp(-0.5 * (1e-4 / scale2) ** 2) / (pi / scale1 * math.exp(-0.5e-8))
    share = odds / (1.0 + odds)
    expected = -1e-4 * (share / scale2**2 + (1.0 - share) / scale1**2)
    assert scale_mixture.score(value, pi, scale1, scale2).item() == pytest.approx(expected, rel=1e-12)


def test_equal_scales_are_one_normal(grid):
    torch.testing.assert_close(
        scale_mixture.log_density(grid, 0.3, 0.7, 0.7), normal.log_density(grid, 0.0, 0.7), rtol=1e-12, atol=1e-14
    )


def test_standard_deviation_and_tensor_parameters(check_broadcast):
    assert scale_mixture.std(0.25, 2.0, 0.5) == pytest.approx(math.sqrt(0.25 * 4.0 + 0.75 * 0.25), rel=1e-14)
    check_broadcast(scale_mixture.DENSITY, *SETTINGS)
    assert scale_mixture.DENSITY.kl is None
