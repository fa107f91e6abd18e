"""What is learnt in a warm-up: windows, dual averaging, scales, and the slope of ChEES."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from bayesprop.inference.mcmc.adaptation import Spread, Tuning, chees_slope, jitter_of, window_ends
from bayesprop.rng import Rng, Stream


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return Rng.create(seed).normal(count, Stream.INITIAL, dtype=torch.float64)[0, 0].reshape(shape)


@pytest.mark.parametrize(
    ("warm_up", "ends"),
    [(0, ()), (10, ()), (40, (36,)), (200, (55, 180)), (1000, (175, 225, 325, 900))],
)
def test_windows_double_and_the_last_takes_the_rest(warm_up, ends):
    assert window_ends(warm_up) == ends


def test_shares_are_spread_evenly():
    shares = sorted(jitter_of(index, 1.0) for index in range(255))
    assert_close(torch.tensor(shares), torch.arange(1, 256) / 256.0)
    assert [jitter_of(index, 0.0) for index in range(3)] == [1.0, 1.0, 1.0]
    assert all(0.8 <= jitter_of(index, 0.2) <= 1.0 for index in range(64))


def test_dual_averaging_finds_the_step_with_the_wanted_acceptance():
    """Acceptance exp(-e) is 0.8 at e = -log 0.8."""
    tuning = Tuning()
    tuning.restart(1e-3)
    for _ in range(2000):
        tuning.adapt_step(math.exp(-math.exp(tuning.log_step)), 0.8)
    assert math.exp(tuning.log_step_mean) == pytest.approx(-math.log(0.8), rel=0.02)


def test_a_restart_keeps_the_number_of_steps():
    tuning = Tuning(log_step=math.log(0.1), log_length=math.log(0.7))
    tuning.restart(0.5)
    assert math.exp(tuning.log_length - tuning.log_step) == pytest.approx(7.0)
    assert Tuning.read(tuning.tensors()) == tuning


def test_lengths_stay_between_one_step_and_the_longest():
    tuning = Tuning()
    for _ in range(200):
        tuning.adapt_length(3.0, 100)
    assert math.exp(tuning.log_length) == pytest.approx(100.0)
    for _ in range(400):
        tuning.adapt_length(-1.0, 100)
    assert math.exp(tuning.log_length) == pytest.approx(1.0)


def test_scales_are_those_within_chains():
    chains = torch.tensor([1.0, 0.1, 0.0], dtype=torch.float64) * numbers(2, 500, 3)
    chains[1] += 100.0  # where a chain is does not count
    spread, scale = Spread.empty(chains[:, 0]), torch.tensor([[2.0, 2.0, 0.0]], dtype=torch.float64).expand(2, 3)
    for draw in range(500):
        spread.add(chains[:, draw])
    assert_close(spread.mean, chains.mean(1), rtol=1e-12, atol=1e-12)
    expected = (1000 * chains.var(dim=1).mean(0) + 5 * scale[0].square()) / 1005
    found = spread.renewed(scale)
    assert_close(found[0, :2], expected[:2].sqrt(), rtol=1e-9, atol=0.0)
    assert float(found[0, 2]) == 0.0
    assert float(spread.count) == 0.0
    spread.add(chains[:, 0])
    assert_close(spread.mean, chains[:, 0], rtol=1e-12, atol=1e-12)
    assert float(spread.squares.abs().max()) < 1e-12


def test_the_slope_of_chees_by_finite_differences():
    """A harmonic oscillator, whose flow is known: q cos t + r sin t, each chain at its own acceptance."""
    start, momentum = numbers(50, 3), numbers(50, 3, seed=1)
    acceptance, share, time = torch.linspace(0.1, 1.0, 50).double(), 0.7, 1.1

    def flow(length: float) -> torch.Tensor:
        return start * math.cos(share * length) + momentum * math.sin(share * length)

    def criterion(length: float) -> float:
        change = flow(length).square().sum(1) - start.square().sum(1)
        return float((acceptance * change.square()).sum() / acceptance.sum() / 4.0)

    velocity = momentum * math.cos(share * time) - start * math.sin(share * time)
    step = 1e-5
    expected = (criterion(time * math.exp(step)) - criterion(time * math.exp(-step))) / (2.0 * step)
    assert chees_slope(start, flow(time), velocity, acceptance, share * time) == pytest.approx(expected, rel=1e-7)


def test_proposals_that_are_not_finite_have_no_weight():
    start, end = torch.ones(2, 1), torch.tensor([[2.0], [math.nan]])
    acceptance = torch.tensor([0.5, 0.0], dtype=torch.float64)
    assert chees_slope(start, end, torch.ones(2, 1), acceptance, 1.0) == pytest.approx(6.0)
    assert chees_slope(start, end, torch.ones(2, 1), torch.zeros(2).double(), 1.0) == 0.0
