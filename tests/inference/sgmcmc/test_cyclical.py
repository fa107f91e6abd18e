"""Cycles of steps: the paper's formula, and which part of a run is sampling."""

from __future__ import annotations

import math

import pytest

from bayesprop.errors import ConfigurationError
from bayesprop.inference import Cyclical


def test_equation_1_of_the_paper():
    """alpha_k = alpha_0 / 2 [cos(pi mod(k - 1, K / M) / (K / M)) + 1] for iteration k of K, in M cycles."""
    schedule, length, cycles = Cyclical(cycles=4), 200, 4
    for k in range(1, length + 1):
        expected = 0.5 * (math.cos(math.pi * ((k - 1) % (length // cycles)) / (length // cycles)) + 1.0)
        assert schedule((k - 1) / length) == pytest.approx(expected, abs=1e-9)


def test_sampling_is_the_end_of_each_cycle():
    schedule = Cyclical(cycles=2, exploration=0.75)
    found = [schedule.sampling((k + 0.5) / 16) for k in range(16)]
    assert found == ([False] * 6 + [True] * 2) * 2
    assert schedule.portion == 0.25


def test_the_share_of_sampling_grows_while_it_samples():
    schedule, steps = Cyclical(cycles=3, exploration=0.8), 3000
    shares = [schedule.share(k / steps) for k in range(steps + 1)]
    assert shares[0] == 0.0
    assert shares[-1] == pytest.approx(1.0, abs=1e-12)
    for k in range(steps):
        grows = shares[k + 1] - shares[k]
        expected = 1.0 / (0.2 * steps) if schedule.sampling((k + 0.5) / steps) else 0.0
        assert grows == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("settings", [{"cycles": 0}, {"exploration": 1.0}])
def test_what_is_no_cycle_is_refused(settings):
    with pytest.raises(ConfigurationError, match="at least one cycle") as caught:
        Cyclical(**settings)
    assert "write: Cyclical(cycles=4, exploration=0.8)" in str(caught.value)
