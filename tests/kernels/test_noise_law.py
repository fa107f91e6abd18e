"""The law of the noise: standard normal, and independent between everything that names a number."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from bayesprop.kernels import noise

N = 1 << 20


@pytest.mark.statistical
def test_moments_of_the_normals():
    """Within five standard errors of those of N(0, 1): fails once in 1.7 million for each of the four."""
    z = noise.normal(torch.tensor([2024, 0]), 0, 1, N).double()
    moments = {1: (0.0, 1.0), 2: (1.0, 2.0), 3: (0.0, 15.0), 4: (3.0, 96.0)}  # mean and variance of z^k
    for power, (mean, variance) in moments.items():
        assert abs(z.pow(power).mean().item() - mean) < 5.0 * math.sqrt(variance / N), power


@pytest.mark.statistical
def test_goodness_of_fit_of_the_normals():
    """Kolmogorov and Smirnov's distance at a level of one in a million, and the tails within five standard errors."""
    z = noise.normal(torch.tensor([2025, 0]), 0, 1, N).numpy()
    assert stats.kstest(z, "norm").pvalue > 1e-6
    for bound in (3.0, 4.0, 4.5):
        expected = N * 2.0 * stats.norm.sf(bound)
        assert abs(np.count_nonzero(np.abs(z) > bound) - expected) < 5.0 * math.sqrt(expected), bound


@pytest.mark.statistical
def test_bits_are_uniform():
    """Each of the 32 bits, and the 256 values of the highest and of the lowest byte: five standard errors, and a level
    of one in a million."""
    words = noise.bits(torch.tensor([2026, 0]), 0, 1, N)
    for bit in range(32):
        assert abs(((words >> bit) & 1).double().mean().item() - 0.5) < 5.0 * 0.5 / math.sqrt(N), bit
    for byte in (words >> 24, words & 0xFF):
        assert stats.chisquare(torch.bincount(byte, minlength=256).numpy()).pvalue > 1e-6


@pytest.mark.statistical
def test_neighbours_are_independent():
    """Correlations of z and of z^2 at lags 1 to 8, Box and Muller's own partner among them: five standard errors."""
    z = noise.normal(torch.tensor([2027, 0]), 0, 1, N).double()
    squares = (z.square() - 1.0) / math.sqrt(2.0)
    for lag, series in itertools.product(range(1, 9), (z, squares)):
        for phase in range(4):  # an element's place in its block of four
            left, right = series[phase : N - lag : 4], series[phase + lag :: 4]
            assert abs((left * right).mean().item()) < 5.0 / math.sqrt(left.numel()), (lag, phase)


@pytest.mark.statistical
def test_particles_draws_steps_and_streams_are_independent():
    """Rows that differ in little: correlations within five standard errors, and as good as no word in common (0.0001
    are expected in each pair)."""
    count = 1 << 19
    rows = {
        "here": noise.bits(torch.tensor([5, 0]), 3, 1, count),
        "particle": noise.bits(torch.tensor([6, 0]), 3, 1, count),
        "upper half of the seed": noise.bits(torch.tensor([5 + 2**32, 0]), 3, 1, count),
        "draw": noise.bits(torch.tensor([5, 1]), 3, 1, count),
        "step": noise.bits(torch.tensor([5, 0]), 4, 1, count),
        "stream": noise.bits(torch.tensor([5, 0]), 3, 2, count),
        "draw and step": noise.bits(torch.tensor([5, 3]), 0, 1, count),
    }
    for (one, left), (other, right) in itertools.combinations(rows.items(), 2):
        assert torch.count_nonzero(left == right).item() <= 2, (one, other)
        uniform = [(row.double() / 2**32 - 0.5) * math.sqrt(12.0) for row in (left, right)]
        assert abs((uniform[0] * uniform[1]).mean().item()) < 5.0 / math.sqrt(count), (one, other)
