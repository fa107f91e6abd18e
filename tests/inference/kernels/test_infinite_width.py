"""The infinitely wide network: the exam, scales by evidence, refusals."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError, MemoryBudgetError
from bayesprop.inference import NNGP
from bayesprop.posteriors import GaussianProcess
from bayesprop.testing import LinearRegression, MethodSuite

from ..conftest import normal


class TestNNGP(MethodSuite):
    rows = None

    def make(self):
        return NNGP(learning_steps=3)

    def check_linear_regression(self, problem):
        """The posterior over functions, and the evidence, exactly."""
        posterior = self.fitted(problem.model, problem.data, batch_size=None)
        rows = problem.inputs[:7]
        mean, covariance = posterior.process(rows)
        design = problem.design[:7]
        assert_close(mean[0, 0], design @ problem.mean)
        assert_close(covariance[0, 0], design @ problem.covariance @ design.T)
        assert float(posterior.log_evidence) == pytest.approx(problem.log_evidence, rel=1e-12)

    def problem(self, dtype=torch.float32, **options):
        """As the suite's, without what has no limit of infinite width."""
        network = options.get("network")
        if network is not None and any(isinstance(m, nn.BatchNorm1d | nn.Dropout) for m in network):
            del options["network"]
        return super().problem(dtype, **options)

    def test_what_is_saved_is_loaded(self, tmp_path):
        """With the scales of its prior."""
        prior = priors.Normal(scale=priors.HalfNormal(1.0))
        network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        model, data = self.problem(network=network, prior=prior)
        posterior = self.fitted(model, data)
        posterior.save(tmp_path / "one.bayes")
        again = bp.load(tmp_path / "one.bayes", network=network)
        assert again.context.method == self.make()
        assert_close(dict(again.tensors()), dict(posterior.tensors()), rtol=0.0, atol=0.0)
        assert_close(again.predict(data[0], 6).mean, posterior.predict(data[0], 6).mean, rtol=0.0, atol=0.0)

    def test_every_likelihood(self):
        """Gaussian noise, known or learnt; the others are refused with a method that takes them."""
        for likelihood in (likelihoods.Gaussian(), likelihoods.Gaussian(0.5)):
            model, (inputs, targets) = self.problem(likelihood=likelihood)
            prediction = self.fitted(model, (inputs, targets)).predict(inputs, 4)
            assert bool(torch.isfinite(prediction.log_prob(targets)).all())
        model, (inputs, _) = self.problem(likelihood=likelihoods.Poisson())
        with pytest.raises(ConfigurationError, match="closed form for Gaussian noise alone") as caught:
            self.fitted(model, (inputs, torch.ones(8, 1)))
        assert "bp.inference.DeepKernel()" in str(caught.value)

    def test_every_kind_of_column(self):
        """Weights are random, all of them; scales of the prior and of the noise are learnt."""
        prior = {"0.*": priors.Normal(scale=0.5), "*": priors.Normal(scale=priors.HalfNormal(1.0))}
        model, data = self.problem(prior=prior)
        posterior = self.fitted(model, data)
        assert posterior.hyper.shape == (1, 2)
        for options in ({"random": "0.*"}, {"fixed": "0.*"}, {"prior": priors.StudentT(3.0)}):
            model, data = self.problem(**options)
            with pytest.raises(ConfigurationError, match="the infinitely wide network is known for"):
                self.fitted(model, data)

    def test_the_same_seed_gives_the_same_posterior(self):
        """So does any other seed: nothing is drawn."""
        model, data = self.problem()
        first, other = (self.fitted(model, data, seed=seed) for seed in (3, 4))
        assert_close(dict(first.tensors()), dict(other.tensors()), rtol=0.0, atol=0.0)
        one, another = (first.predict(data[0], 4, seed=s).draws for s in (0, 1))
        assert not torch.equal(one, another)

    def test_the_global_generator_is_left_alone(self):
        model, data = self.problem()
        before = torch.get_rng_state()
        found = self.fitted(model, data, epochs=2).predict(data[0], 3).mean
        assert bool(torch.isfinite(found).all())
        assert torch.equal(torch.get_rng_state(), before)

    def test_memory_is_told(self):
        """The matrices of a step, which no state holds."""
        problem = LinearRegression()
        assert NNGP().memory(problem.model, 2, 24) >= 2 * 3 * 24**2 * 8
        assert NNGP().memory(problem.model, 1, 10_000) > 6e9


def curve(rows: int = 30) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.linspace(-2.0, 2.0, rows).double()[:, None]
    return inputs, torch.sin(2.0 * inputs) + 0.1 * normal(rows, 1)


def fitted(method: NNGP, likelihood=None, **options):
    layers = (nn.Linear(1, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 1))
    likelihood = likelihoods.Gaussian() if likelihood is None else likelihood
    model = bp.Model(nn.Sequential(*layers).double(), likelihood=likelihood, **options)
    return bp.fit(model, curve(), method, progress=False)


def test_noise_and_scales_are_those_of_the_greatest_evidence():
    """No scale beside the one that was found has a higher evidence and hyperprior together."""
    posterior = fitted(NNGP(learning_steps=300), prior=priors.Normal(scale=priors.HalfNormal(1.0)))
    model, hyper = posterior.model, posterior.hyper

    def value(columns: torch.Tensor) -> float:
        there = GaussianProcess(model, posterior.inputs, posterior.targets, columns, posterior.buffers)
        prior = sum(latent.unconstrained_log_density(columns[:, [i]]) for i, latent in enumerate(model.latents))
        return float(there.log_evidence + prior)

    best = value(hyper)
    for column in range(hyper.shape[1]):
        for apart in (-0.1, 0.1):
            beside = hyper.clone()
            beside[:, column] += apart
            assert value(beside) < best
    assert 0.05 < float(hyper[0, -1].exp()) < 0.2  # the noise is 0.1


def test_prediction_in_the_units_of_the_user_and_wider_where_there_are_no_data():
    inputs, targets = curve()
    data = bp.Data(3.0 + 5.0 * inputs, 100.0 + 20.0 * targets, standardize=True)
    layers = (nn.Linear(1, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 1))
    model = bp.Model(nn.Sequential(*layers).double(), likelihood=likelihoods.Gaussian())
    posterior = bp.fit(model, data, NNGP(), progress=False)
    prediction = posterior.predict(3.0 + 5.0 * torch.tensor([[0.0], [6.0]]).double())
    assert float(prediction.mean[0]) == pytest.approx(100.0, abs=3.0)
    assert float(prediction.epistemic[1]) > 30.0 * float(prediction.epistemic[0])


def test_a_run_that_was_resumed_at_its_end_still_has_its_rows(tmp_path):
    model = bp.Model(nn.Linear(1, 1).double(), likelihood=likelihoods.Gaussian())
    path, method = tmp_path / "run.ckpt", NNGP(learning_steps=3)
    once = bp.fit(model, curve(), method, progress=False, checkpoint=path)
    again = bp.fit(model, curve(), method, progress=False, checkpoint=path, resume=True)
    assert_close(dict(once.tensors()), dict(again.tensors()), rtol=0.0, atol=0.0)
    assert again.targets.shape == (1, 30, 1)


def test_minibatches_and_rows_that_do_not_fit_are_refused():
    model = bp.Model(nn.Linear(1, 1).double(), likelihood=likelihoods.Gaussian())
    with pytest.raises(ConfigurationError, match="NNGP looks at all rows in each step"):
        bp.fit(model, curve(), NNGP(), batch_size=8, progress=False)
    loader = DataLoader(TensorDataset(*curve()), batch_size=8)
    with pytest.raises(ConfigurationError, match="a stream brings a part of them"):
        bp.fit(model, loader, NNGP(), progress=False)
    with pytest.raises(MemoryBudgetError, match="the covariances of all rows do not fit") as caught:
        bp.fit(model, curve(), NNGP(memory_budget=1e-5), progress=False)
    assert "30 x 30 numbers" in str(caught.value)
    assert "DeepKernel()" in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"learning_steps": 0}, "learning_steps must be at least 1"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"memory_budget": -1.0}, "memory_budget must be positive"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, fault):
    with pytest.raises(ConfigurationError, match=fault):
        NNGP(**settings)
