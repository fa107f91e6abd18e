"""SWAG: moments of the snapshots, the covariance of descent's noise, batch statistics, MultiSWAG."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.errors import BayespropWarning, ConfigurationError
from bayesprop.inference import MAP, SGD, SWAG, Constant
from bayesprop.model import Place
from bayesprop.posteriors import Delta, LowRankGaussian, Samples
from bayesprop.rng import Rng
from bayesprop.testing import LinearRegression, MethodSuite

from ..conftest import normal


class TestSWAG(MethodSuite):
    def make(self):
        return SWAG(learning_rate=0.02, start=0.25, snapshots=3, rank=2, draws=3)

    def check_linear_regression(self, problem):
        """With all rows descent has no noise: the mean is the mode, and nothing is left to spread. With minibatches the
        mean is right within its noise, and the spread is that of descent, not of the posterior."""
        method = SWAG(learning_rate=0.1, start=0.5, optimizer=SGD(0.8), snapshots=20)
        posterior = bp.fit(problem.model, problem.data, method, epochs=400, batch_size=None, progress=False)
        assert_close(posterior.mean()[0], problem.mean, rtol=0.0, atol=1e-6)
        assert float(posterior.std().max()) < 1e-6
        noisy = bp.fit(problem.model, problem.data, method, epochs=200, batch_size=4, progress=False)
        assert float((noisy.mean()[0] - problem.mean).abs().max()) < 3.0 * float(noisy.std().max())
        assert 1e-3 < float(noisy.std().max()) < 1.0


class TestMultiSWAG(TestSWAG):
    def make(self):
        return SWAG(learning_rate=0.02, start=0.25, snapshots=3, rank=2, draws=3, members=2)


def run(method: SWAG, problem: LinearRegression, particles: int, steps: int, rows: int = 6):
    """States of a run with minibatches, one after the other, and the last state."""
    rng = Rng.create(0, particles)
    state, seen = method.init(problem.model, rng), []
    for step in range(steps):
        first = 6 * step % 24
        batch = problem.batch(particles, slice(first, first + rows), epochs=steps, epoch=step, progress=step / steps)
        state, _ = method.update(problem.model, state, batch, rng.at(step))
        seen.append(state.theta.clone())
    return seen, state


@pytest.mark.parametrize("snapshots", [3, 7, 50])
def test_equation_1_of_the_paper(snapshots):
    """Means, variances and the last K deviations from the running mean, from the snapshots themselves; with more
    places for snapshots than there are steps, every step is one."""
    problem = LinearRegression()
    method = SWAG(learning_rate=0.05, start=0.5, snapshots=snapshots, rank=4)
    seen, state = run(method, problem, 2, 28)
    taken = [k for k in range(28) if method.numbers(Place(epoch=k, epochs=28, progress=k / 28), k)[1]]
    assert len(taken) == min(snapshots, 14)
    stack = torch.stack([seen[k] for k in taken])
    running = [stack[: i + 1].mean(0) for i in range(len(taken))]
    deviations = torch.stack([stack[i] - running[i] for i in range(len(taken))])[-4:]
    posterior = method.posterior(problem.model, state)
    assert isinstance(posterior, LowRankGaussian)
    assert_close(posterior.mean(), stack.mean(0), rtol=1e-12, atol=1e-13)
    known = len(deviations)
    expected = 0.5 * torch.diag_embed(stack.var(0, correction=0))
    expected = expected + torch.einsum("kpi,kpj->pij", deviations, deviations) / (2.0 * (known - 1))
    assert_close(posterior.covariance(), expected, rtol=1e-10, atol=1e-14)


def test_the_step_is_that_of_map():
    problem = LinearRegression()
    first = run(SWAG(learning_rate=0.05, averaging_rate=0.05, optimizer="adam", clip_norm=0.5), problem, 2, 5)[1].theta
    method = MAP(learning_rate=0.05, optimizer="adam", schedule=Constant(), clip_norm=0.5)
    state, rng = method.init(problem.model, Rng.create(0, 2)), Rng.create(0, 2)
    for step in range(5):
        batch = problem.batch(2, slice(6 * step % 24, 6 * step % 24 + 6))
        state, _ = method.update(problem.model, state, batch, rng.at(step))
    assert_close(first, state.mean, rtol=1e-12, atol=1e-13)


def test_a_captured_step_takes_the_same_snapshots():
    """On a device the question whether to take one is a number there: the same path with tensors."""
    problem = LinearRegression()
    method = SWAG(learning_rate=0.05, start=0.5, snapshots=5, rank=4)
    expected = run(method, problem, 2, 20)[1]
    rng = Rng.create(0, 2)
    state = method.init(problem.model, rng)
    for step in range(20):
        place = {"epochs": 20, "epoch": step, "progress": step / 20}
        batch = problem.batch(2, slice(6 * step % 24, 6 * step % 24 + 6), **place)
        numbers = torch.stack([torch.full((2,), float(n)) for n in method.numbers(batch, step)])
        batch = type(batch)(batch.inputs, batch.targets, 24, numbers)
        state, _ = method.update(problem.model, state, batch, rng.at(step))
    for name in ("mean", "squares", "count"):
        assert_close(getattr(state, name), getattr(expected, name), rtol=1e-6, atol=1e-8)
    assert_close(state.deviations[:, :4], expected.deviations[:, :4], rtol=1e-5, atol=1e-8)


def test_the_rate_falls_to_that_of_averaging():
    method = SWAG(learning_rate=1.0, averaging_rate=0.2, start=0.8)
    rates = [method.numbers(Place(epoch=k, epochs=100, progress=k / 100), k)[0] for k in range(100)]
    assert rates[:41] == [1.0] * 41
    assert rates[56] == pytest.approx(0.6)
    assert rates[72:] == pytest.approx([0.2] * 28)
    assert rates == sorted(rates, reverse=True)


@pytest.mark.statistical
def test_the_spread_is_that_of_descents_noise():
    """One weight, loss (N / 2 s^2)(theta - y_i)^2 by single rows, flat prior, rate r and no momentum: theta follows an
    autoregression with a = 1 - r / s^2, whose variance is r^2 v / (s^4 (1 - a^2)), v that of the targets. 30 members of
    200 snapshots; five standard errors of their mean."""
    targets = normal(20, 1)
    network = nn.Linear(1, 1, bias=False).double()
    model = bp.Model(network, likelihood=likelihoods.Gaussian(1.0), prior=bp.priors.Flat())
    method = SWAG(
        learning_rate=0.2, averaging_rate=0.2, optimizer="sgd", start=0.2, snapshots=10_000, rank=2, members=30
    )
    data = (torch.ones(20, 1).double(), targets)
    posterior = bp.fit(model, data, method, epochs=12, batch_size=1, report_every=100, progress=False)
    half = (posterior.tensors()["std"][:, 0] ** 2) * 2.0
    # Each epoch takes every row once: the noise is a permutation's and not independent, which lowers slow parts of it.
    independent = 0.2 * float(targets.var(correction=0)) / (2.0 - 0.2)
    error = float(half.std()) / math.sqrt(30)
    assert 0.6 * independent < float(half.mean()) < independent + 5.0 * error


def test_networks_with_batch_statistics_get_draws_that_have_their_own():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)).double()
    model = bp.Model(network, likelihood=likelihoods.Gaussian())
    inputs = normal(24, 3)
    data = (inputs, torch.sin(inputs[:, :1]))
    posterior = bp.fit(model, data, SWAG(draws=7, members=2, snapshots=20), epochs=20, batch_size=8, progress=False)
    assert isinstance(posterior, Samples)
    assert posterior.theta.shape[:2] == (2, 7)
    own = posterior.sample_buffers["1.running_mean"]
    named = model.layout.unflatten(posterior.theta)
    hidden = torch.einsum("nf,psof->psno", inputs, named["0.weight"]) + named["0.bias"][:, :, None]
    assert_close(own, hidden.mean(2), rtol=1e-10, atol=1e-10)


def test_a_run_without_snapshots_is_a_point_and_says_so():
    problem = LinearRegression()
    with pytest.warns(BayespropWarning, match="SWAG took less than two snapshots: this is a point estimate"):
        posterior = bp.fit(problem.model, problem.data, SWAG(start=0.9), epochs=2, batch_size=None, progress=False)
    assert isinstance(posterior, Delta)


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"averaging_rate": -1.0}, "averaging_rate must be positive"),
        ({"rank": 1}, "rank must be at least 2, got 1"),
        ({"members": 0}, "members must be at least 1, got 0"),
        ({"start": 1.0}, r"start is a share of the run in \[0, 1\)"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, fault):
    with pytest.raises(ConfigurationError, match=fault) as caught:
        SWAG(**settings)
    assert "write: SWAG(rank=20)" in str(caught.value)
