"""The exam is sat by Bayes by Backprop, and failed by methods with one fault each."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from bayesprop.inference import MAP, BayesByBackprop
from bayesprop.inference.schedules import Constant
from bayesprop.random_weights import SharedWeights
from bayesprop.rng import Rng
from bayesprop.testing import LinearRegression, MethodSuite


class TestBayesByBackprop(MethodSuite):
    def make(self):
        return BayesByBackprop(learning_rate=0.02)

    def check_linear_regression(self, problem):
        """1 / L_ii and not the marginals."""
        method = replace(
            self.make(),
            learning_rate=0.05,
            optimizer="momentum",
            kl_weights="uniform",
            estimator=SharedWeights(16, antithetic=True),
            schedule=Constant(),
            initial_scale=0.1,
        )
        rng = Rng.create(0, 16)
        state = method.init(problem.model, rng)
        for step in range(300):
            state, _ = method.update(problem.model, state, problem.batch(16), rng.at(step))
        posterior = method.posterior(problem.model, state)
        # The antithetic means see no noise. The deviations do: 5 % is ten standard errors of their average.
        torch.testing.assert_close(posterior.mean().mean(0), problem.mean, rtol=0.0, atol=1e-6)
        expected = problem.precision.diagonal().rsqrt()
        torch.testing.assert_close(posterior.std().mean(0), expected, rtol=0.05, atol=0.0)


class Exam(MethodSuite):
    """Not collected: its name does not begin with Test."""

    def __init__(self, method) -> None:
        self.method = method

    def make(self):
        return self.method

    def check_linear_regression(self, problem: LinearRegression) -> None:
        raise AssertionError("not what it should find")


@dataclass(frozen=True)
class DrawsGlobally(MAP):
    def update(self, model, state, batch, rng):
        state.mean.add_(1e-3 * torch.randn_like(state.mean))
        return super().update(model, state, batch, rng)


@dataclass(frozen=True)
class Leaks(MAP):
    """Its posterior is the state itself."""

    def posterior(self, model, state):
        made = super().posterior(model, state)
        made.location = state.mean
        return made


@dataclass(frozen=True)
class Mixes(MAP):
    """Particles feel one another."""

    def update(self, model, state, batch, rng):
        state, info = super().update(model, state, batch, rng)
        state.mean.copy_(0.9 * state.mean + 0.1 * state.mean.mean(0))
        return state, info


FAULTS = {
    "test_the_same_seed_gives_the_same_posterior": DrawsGlobally,
    "test_the_global_generator_is_left_alone": DrawsGlobally,
    "test_a_posterior_is_there_at_any_time_and_is_no_view_of_the_state": Leaks,
    "test_a_particle_is_the_same_alone_and_in_a_population": Mixes,
    "test_bayesian_linear_regression": MAP,
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name):
    with torch.random.fork_rng(), pytest.raises(AssertionError):
        getattr(Exam(FAULTS[name]()), name)()


def test_the_exam_is_as_long_as_it_says():
    tests = [name for name in dir(MethodSuite) if name.startswith("test_")]
    assert len(tests) == 15
    assert set(FAULTS) <= set(tests)
