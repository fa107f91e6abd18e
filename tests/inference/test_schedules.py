from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from bayesprop.errors import ConfigurationError
from bayesprop.inference import Constant, Cosine, Polynomial, Steps, Warmup
from bayesprop.rng import Rng

from .conftest import Problem, method_with, normal

GRID = [i / 50 for i in range(51)]


def test_constant_is_one_everywhere():
    assert [Constant()(progress) for progress in GRID] == [1.0] * 51


@pytest.mark.parametrize("final", [0.0, 0.1, 1.0])
def test_cosine_goes_down_from_one_to_its_end(final):
    values = [Cosine(final=final)(progress) for progress in GRID]
    assert values[0] == 1.0
    assert values[25] == pytest.approx((1.0 + final) / 2.0, rel=1e-14)
    assert values[-1] == pytest.approx(final, abs=1e-16)
    assert values == sorted(values, reverse=True)
    expected = [final + (1.0 - final) * math.cos(math.pi * p / 2.0) ** 2 for p in GRID]
    assert values == pytest.approx(expected, abs=1e-14)


def test_cosine_stays_at_its_ends_beyond_them():
    assert Cosine(final=0.2)(-0.1) == 1.0
    assert Cosine(final=0.2)(1.3) == pytest.approx(0.2, rel=1e-14)


def test_steps_multiply_at_each_share():
    schedule = Steps(at=(0.25, 0.5, 0.75), factor=0.2)
    assert [schedule(p) for p in (0.0, 0.2499, 0.25, 0.49, 0.5, 0.74, 0.75, 1.0)] == pytest.approx(
        [1.0, 1.0, 0.2, 0.2, 0.04, 0.04, 0.008, 0.008], rel=1e-12
    )
    assert Steps(at=(), factor=0.2)(0.9) == 1.0


@pytest.mark.parametrize("numbers", [{"at": (0.0, 0.5)}, {"at": (0.5, 1.0)}, {"factor": 0.0}, {"factor": -0.1}])
def test_steps_outside_of_the_training_are_refused(numbers):
    with pytest.raises(ConfigurationError, match=r"Steps: shares of the training lie in \(0, 1\)") as caught:
        Steps(**numbers)
    assert f"received: {Steps.__name__}(" in str(caught.value)
    assert "write: Steps(at=(0.5, 0.75), factor=0.1)" in str(caught.value)


def test_warmup_is_linear_and_then_what_comes_after():
    schedule = Warmup(share=0.2, after=Cosine(final=0.1))
    for progress in GRID:
        ramp = min(1.0, (progress + 1e-3) / 0.2)
        assert schedule(progress) == pytest.approx(ramp * Cosine(final=0.1)(progress), rel=1e-14)
    assert 0.0 < schedule(0.0) < 0.01  # the first step moves, if only a little
    assert schedule(0.5) == Cosine(final=0.1)(0.5)
    assert Warmup(share=0.0, after=Constant())(0.0) == 1.0


@pytest.mark.parametrize("schedule", [Constant(), Cosine(final=0.2), Steps(at=(0.3,)), Warmup(share=0.4), lambda p: 2])
def test_a_step_is_as_long_as_the_schedule_says(schedule):
    """The movement of means and of rho under plain gradient descent, relative to that of a constant rate."""
    problem = Problem(nn.Linear(3, 1).double(), normal(4, 3))
    moved = {}
    for name, one in (("constant", Constant()), ("scheduled", schedule)):
        method = method_with(learning_rate=0.1, scale_learning_rate=0.03, optimizer="sgd", schedule=one)
        for progress in (0.0, 0.35, 0.9):
            state = problem.state()
            before = state.mean.clone(), state.rho.clone()
            batch = problem.batch(progress=progress)
            state, _ = method.update(problem.model, state, batch, Rng.create(1))
            moved[name, progress] = state.mean - before[0], state.rho - before[1]
    for progress in (0.0, 0.35, 0.9):
        expected = [schedule(progress) * change for change in moved["constant", progress]]
        # Differences of numbers near one: 1e-16 of them.
        torch.testing.assert_close(list(moved["scheduled", progress]), expected, rtol=1e-9, atol=1e-14)


def test_polynomial_is_a_power_of_the_step_number():
    """a (b + t)^-power: the logarithm of the factor is linear in log(b + t), with b in the units of the run."""
    schedule = Polynomial(final=0.02, power=0.6)
    assert schedule(0.0) == 1.0
    assert schedule(1.0) == pytest.approx(0.02, rel=1e-12)
    b = 1.0 / (0.02 ** (-1.0 / 0.6) - 1.0)
    for p in GRID:
        assert schedule(p) == pytest.approx((b / (b + p)) ** 0.6, rel=1e-12)


@pytest.mark.parametrize("settings", [{"final": 0.0}, {"final": 1.1}, {"power": 0.0}])
def test_polynomials_that_do_not_fall_are_refused(settings):
    with pytest.raises(ConfigurationError, match="Polynomial: final lies in") as caught:
        Polynomial(**settings)
    assert "write: Polynomial(final=0.01, power=0.55)" in str(caught.value)
