import math

import pytest
import torch
from scipy import stats
from torch.testing import assert_close

from bayesprop.prediction import roots

TARGETS = torch.tensor([-7.0, 0.0, 0.3, 1e5], dtype=torch.float64)


def cubic(x):
    return (x - TARGETS) ** 3 + 0.1 * (x - TARGETS)


def tensor(value):
    return torch.full((4,), value, dtype=torch.float64)


def test_bracket_walks_out_until_the_zero_is_enclosed():
    low, high, found = roots.bracket(cubic, tensor(1.0), tensor(2.0), tensor(0.5))
    assert bool(found.all())
    assert bool((low < TARGETS).all())
    assert bool((high >= TARGETS).all())


def test_bracket_gives_up_where_there_is_no_zero():
    never = torch.tensor([math.nan, 1.0, -1.0], dtype=torch.float64)
    one = torch.ones(3, dtype=torch.float64)
    _, _, found = roots.bracket(lambda x: 0 * x + never, -one, one, one)
    assert found.tolist() == [False, False, False]


def test_continuous_finds_every_zero_to_its_tolerance():
    low, high, _ = roots.bracket(cubic, tensor(1.0), tensor(2.0), tensor(0.5))
    assert_close(roots.continuous(cubic, low, high, tensor(1e-9)), TARGETS, atol=2e-9, rtol=0)


def test_a_zero_that_is_met_early_is_kept():
    # The first middle is exactly the zero of the second function; the others take longer.
    centre = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    zeros, ones = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    found = roots.continuous(lambda x: torch.sinh(9 * (x - centre)), zeros, ones, 1e-12 * ones)
    assert_close(found, centre, atol=1e-11, rtol=0)


def test_smooth_functions_need_few_evaluations():
    calls = 0

    def function(x):
        nonlocal calls
        calls += 1
        return torch.special.ndtr(x) - torch.tensor([0.05, 0.5, 0.95, 0.999], dtype=torch.float64)

    found = roots.continuous(function, tensor(-4.0), tensor(4.0), tensor(1e-9))
    assert_close(found, torch.from_numpy(stats.norm.ppf([0.05, 0.5, 0.95, 0.999])), atol=2e-9, rtol=0)
    assert calls <= 16  # bisection needs 33


@pytest.mark.parametrize("jump", [0, 1, 7, 1000])
def test_whole_finds_the_jump(jump):
    def function(x):
        return torch.where(x >= jump, 0.5, -0.5).double()

    low, high, _ = roots.bracket(function, tensor(-0.3), tensor(2.6), tensor(1.7))
    assert roots.whole(function, low, high).tolist() == [jump] * 4
