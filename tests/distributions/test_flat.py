from __future__ import annotations

import math

import torch

from bayesprop.distributions import flat


def test_density_and_score_are_zero(grid, check_score):
    assert torch.count_nonzero(flat.log_density(grid)).item() == 0
    assert torch.count_nonzero(flat.score(grid)).item() == 0
    assert flat.log_density(grid).dtype == torch.float64
    value = grid.clone().requires_grad_()
    assert not flat.log_density(value).requires_grad  # no graph is built for a constant


def test_divergence_is_minus_the_entropy(check_kl):
    check_kl(flat.DENSITY)
    std = torch.logspace(-3, 2, 6, dtype=torch.float64)
    entropy = torch.distributions.Normal(torch.zeros_like(std), std).entropy()
    torch.testing.assert_close(flat.kl(torch.ones_like(std), std), -entropy, rtol=1e-12, atol=0.0)


def test_there_is_no_standard_deviation():
    assert math.isinf(flat.std())
