"""R-hat and effective samples of chains whose answers are known: autoregressions, shifted chains, heavy tails."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from bayesprop.diagnostics import effective_sample_size, r_hat
from bayesprop.errors import ConfigurationError


def autoregression(memory: float, chains: int = 4, samples: int = 4000, quantities: int = 8, seed: int = 0):
    """x_t = memory x_t-1 + sqrt(1 - memory^2) noise, from its stationary law N(0, 1)."""
    noise = torch.randn(chains, samples, quantities, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found = noise.clone()
    for t in range(1, samples):
        found[:, t] = memory * found[:, t - 1] + math.sqrt(1.0 - memory**2) * noise[:, t]
    return found


@pytest.mark.statistical
@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("ranks", [False, True])
def test_the_effective_sample_size_of_an_autoregression(memory, ranks):
    """tau = (1 + memory) / (1 - memory). The estimate of tau scatters by some 6 % for 16,000 samples at 0.9 (seen over
    seeds); the mean over 8 quantities must be within 10 %."""
    found = effective_sample_size(autoregression(memory), ranks=ranks)
    expected = 16_000 * (1.0 - memory) / (1.0 + memory)
    assert found.shape == (8,)
    assert float(found.mean()) == pytest.approx(expected, rel=0.1)


def test_negative_memory_is_worth_more_than_independence():
    found = effective_sample_size(autoregression(-0.5))
    assert float(found.min()) > 2.0 * 16_000


def test_chains_that_agree_have_an_r_hat_of_one():
    for ranks in (False, True):
        found = r_hat(autoregression(0.3), ranks=ranks)
        assert float(found.max()) < 1.005
        assert float(found.min()) > 0.999


def test_r_hat_is_its_formula():
    draws = autoregression(0.0, chains=2, samples=6, quantities=1)
    pieces = torch.stack([draws[0, :3, 0], draws[1, :3, 0], draws[0, 3:, 0], draws[1, 3:, 0]])
    within = pieces.var(1).mean()
    between = pieces.mean(1).var()
    assert_close(r_hat(draws, ranks=False)[0], ((2 / 3 * within + between) / within).sqrt(), rtol=1e-12, atol=0.0)


def test_chains_that_differ_in_place_spread_or_drift_are_found():
    draws = autoregression(0.0, samples=400, quantities=1)
    shifted, wide, drifting = draws.clone(), draws.clone(), draws.clone()
    shifted[0] += 1.0
    wide[0] *= 4.0
    drifting += torch.linspace(-1.0, 1.0, 400).double()[:, None]
    assert float(r_hat(shifted)) > 1.05
    assert float(r_hat(wide)) > 1.05
    assert float(r_hat(wide, ranks=False)) < 1.02
    assert float(r_hat(drifting)) > 1.05
    assert float(effective_sample_size(shifted)) < 100


def test_ranks_make_heavy_tails_bearable():
    """Cauchy numbers have no mean: by ranks they are as good as any."""
    normal = autoregression(0.0, samples=1000, quantities=1)
    cauchy = torch.tan(math.pi * (torch.special.ndtr(normal) - 0.5))
    assert_close(r_hat(cauchy), r_hat(normal), rtol=1e-2, atol=0.0)
    assert_close(
        effective_sample_size(cauchy, ranks=True), effective_sample_size(normal, ranks=True), rtol=1e-12, atol=0.0
    )


def test_shapes_follow_the_quantities():
    draws = autoregression(0.0, samples=20, quantities=6).reshape(4, 20, 3, 2)
    assert r_hat(draws).shape == (3, 2)
    assert effective_sample_size(draws[..., 0, 0]).shape == ()


@pytest.mark.parametrize("shape", [(4,), (4, 3)])
def test_too_few_samples_are_refused(shape):
    with pytest.raises(ConfigurationError, match="at least 4 samples") as caught:
        r_hat(torch.zeros(shape))
    assert f"received: a tensor of shape {list(shape)}" in str(caught.value)
