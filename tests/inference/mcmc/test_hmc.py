"""HMC: the exam, the exact posterior, what it refuses, and what it says of its chains."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

from bayesprop import likelihoods, priors
from bayesprop.errors import BayespropWarning, ConfigurationError, MemoryBudgetError
from bayesprop.inference.mcmc import HMC
from bayesprop.inference.method import state_tensors
from bayesprop.model import Model
from bayesprop.posteriors import Samples
from bayesprop.rng import Rng
from bayesprop.testing import LinearRegression, MethodSuite
from bayesprop.training import fit
from bayesprop.training.observers import Stop

from .conftest import check_moments, run


class TestHMC(MethodSuite):
    rows = None
    tied_to_particle = False  # chains learn step size, scales and length together

    def make(self):
        return HMC(samples=2, warm_up=1, chains=2)

    def check_linear_regression(self, problem):
        """All means, variances and covariances within four standard errors."""
        method = HMC(samples=500, warm_up=200, trajectory=4.0)
        state = run(method, problem.model, problem.batch(4))
        samples = method.posterior(problem.model, state).theta
        check_moments(samples, problem.mean, problem.covariance.diagonal())
        # Along the eigenvectors the columns are independent, so that their variances are all of the covariance.
        values, vectors = torch.linalg.eigh(problem.covariance)
        check_moments(samples @ vectors, problem.mean @ vectors, values)
        assert 0.7 < float(state.accepted.mean()) / 500 < 0.97
        assert int(state.divergences.sum()) == 0
        assert not bool((state.scale != state.scale[0]).any())


def small() -> tuple[Model, tuple[torch.Tensor, torch.Tensor]]:
    rows = Rng.create(3).normal(36, 2, dtype=torch.float32)[0, 0].reshape(12, 3)  # type: ignore[arg-type]
    network = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    prior = priors.Normal(scale=priors.HalfNormal(1.0))
    return Model(network, likelihood=likelihoods.Gaussian(), prior=prior), (rows[:, :2], rows[:, 2:])


@pytest.mark.parametrize("stop", [17, 44])
def test_a_run_with_learnt_scales_goes_on_bit_for_bit(tmp_path: Path, stop: int):
    """Stopped between two windows of the warm-up, and among the samples."""
    model, data = small()
    method, path = HMC(samples=10, warm_up=40, chains=2, longest=8), tmp_path / "run.ckpt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BayespropWarning)
        whole = fit(model, data, method, progress=False)
        halt = [lambda event: Stop if event.kind == "step" and event.step >= stop else None]
        part = fit(model, data, method, progress=False, checkpoint=path, observers=halt)
        again = fit(model, data, method, progress=False, checkpoint=path, resume=True)
    assert isinstance(part, Samples)
    assert part.count == max(1, stop - 40)
    assert whole.tensors()["theta"].shape[:2] == (2, 10)
    assert torch.equal(whole.tensors()["theta"], again.tensors()["theta"])


def test_a_longer_run_keeps_the_newest_samples():
    exact = LinearRegression()
    method = HMC(samples=3, warm_up=2, thinning=2, chains=2)
    batch, ends, rng = exact.batch(2), [], Rng.create(0, 2)
    state = method.init(exact.model, rng)
    assert method.steps == 8
    for step in range(10):
        state, info = method.update(exact.model, state, batch, rng.at(step))
        ends.append(state.point.theta.clone())
    samples = method.posterior(exact.model, state).theta
    assert_close(samples, torch.stack((ends[9], ends[5], ends[7]), dim=1), rtol=0.0, atol=0.0)
    plain = exact.model.log_likelihood(ends[9][:, None], {}, batch)[:, 0]
    assert_close(info.log_likelihood, plain, rtol=1e-12, atol=1e-12)


def test_what_was_learnt_is_held_while_samples_are_taken():
    exact = LinearRegression()
    method = HMC(samples=5, warm_up=30, chains=2)
    before = state_tensors(run(method, exact.model, exact.batch(2), steps=30))
    held = {name: t.clone() for name, t in before.items() if name.split("/")[0] in ("tuning", "scale", "spread")}
    after = state_tensors(run(method, exact.model, exact.batch(2)))
    assert len(held) == 13
    assert_close({name: after[name] for name in held}, held, rtol=0.0, atol=0.0)
    assert not torch.equal(after["scale"], torch.ones_like(after["scale"]))


def test_point_estimates_climb_in_the_warm_up_only():
    """Weights have a distribution, the bias has none: it ends near the least-squares one given small weights."""
    exact = LinearRegression()
    options = {"likelihood": exact.model.likelihood, "prior": priors.Normal(0.0, 1e-3), "random": "weight"}
    model = Model(nn.Linear(3, 1).double(), **options)
    model.probe(exact.inputs[:8], exact.targets)
    method = HMC(samples=20, warm_up=400, chains=2, point_rate=0.05, longest=8, initial_mean=1e-3)
    state = run(method, model, exact.batch(2))
    bias = method.posterior(model, state).theta[..., 3]
    assert_close(bias, bias[:, :1].expand_as(bias), rtol=0.0, atol=0.0)
    assert_close(bias[:, 0], exact.targets.mean().expand(2), rtol=0.0, atol=0.01)  # weights of 1e-3 move it by 1e-3


def test_fixed_steps_and_lengths_are_taken_as_they_are():
    exact = LinearRegression()
    method = HMC(samples=4, warm_up=6, chains=2, step_size=0.01, trajectory=0.05, jitter=0.0, adapt_scales=False)
    state = run(method, exact.model, exact.batch(2))
    assert_close(state.scale, torch.ones_like(state.scale), rtol=0.0, atol=0.0)
    assert float(state.accepted.min()) > 3.9  # the error of energy falls with the square of the step


def test_minibatches_are_refused():
    exact, method = LinearRegression(), HMC(samples=2, chains=2)
    state = method.init(exact.model, Rng.create(0, 2))
    with pytest.raises(ConfigurationError, match="HMC looks at all rows in each step") as caught:
        method.update(exact.model, state, exact.batch(2, slice(0, 6)), Rng.create(0, 2))
    assert "received: a minibatch of 6 out of 24 rows" in str(caught.value)
    assert "write: bp.fit(model, (inputs, targets), HMC(), batch_size=None)" in str(caught.value)
    with pytest.raises(ConfigurationError, match="HMC looks at all rows") as caught:
        fit(exact.model, exact.data, method, batch_size=8, progress=False)
    assert "write: batch_size=None" in str(caught.value)
    loader = DataLoader(TensorDataset(*exact.data), batch_size=8)
    with pytest.raises(ConfigurationError, match="a stream brings a part of them") as caught:
        fit(exact.model, loader, method, progress=False)
    assert "write: bp.fit(model, (inputs, targets), ...)" in str(caught.value)


def test_samples_that_do_not_fit_are_refused():
    exact = LinearRegression()
    with pytest.raises(MemoryBudgetError, match="HMC: the samples to keep do not fit"):
        HMC(samples=10_000, memory_budget=1e-3).init(exact.model, Rng.create(0, 4))


def test_divergences_are_counted_and_told():
    """Steps beyond 2 / sqrt(largest curvature), where leapfrog is not stable."""
    exact = LinearRegression()
    method = HMC(samples=6, warm_up=2, chains=3, step_size=0.5, trajectory=5.0, jitter=0.0, adapt_scales=False)
    assert 0.5 * float(torch.linalg.eigvalsh(exact.precision)[-1]) ** 0.5 > 2.0
    state = run(method, exact.model, exact.batch(3))
    assert state.divergences.tolist() == [6, 6, 6]
    with pytest.warns(BayespropWarning, match=r"HMC: 18 trajectories \(100.0%\) diverged after the warm-up"):
        method.finish(exact.model, state, lambda: iter(()), Rng.create(0, 3))


def test_a_run_without_a_sample_is_told():
    exact, method = LinearRegression(), HMC(samples=2, warm_up=9, chains=2)
    state = run(method, exact.model, exact.batch(2), steps=3)
    with pytest.warns(BayespropWarning, match="took 3 trajectories, and its warm-up has 9: there is no sample yet"):
        method.finish(exact.model, state, lambda: iter(()), Rng.create(0, 2))


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"samples": 0}, "samples must be at least 1, got 0"),
        ({"warm_up": -1}, "warm_up must not be negative"),
        ({"trajectory": "nuts"}, 'trajectory must be "chees" or a length'),
        ({"trajectory": 0.0}, "trajectory must be positive"),
        ({"jitter": 1.5}, r"jitter must lie in \[0, 1\]"),
        ({"acceptance": 1.0}, r"acceptance must lie in \(0, 1\)"),
        ({"step_size": 0.0}, "step_size must be positive"),
        ({"memory_budget": 0.0}, "memory_budget must be positive"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, fault):
    with pytest.raises(ConfigurationError, match=fault):
        HMC(**settings)
    assert {field.name for field in dataclasses.fields(HMC)} >= set(settings)
