"""What Bayes by Backprop must find where the answer is known: divergences, gradients, posteriors of linear models."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.inference import SGD, BayesByBackprop, Cosine
from bayesprop.inference.variational.bayes_by_backprop import MeanFieldState
from bayesprop.inference.variational.gradients import elbo_gradients
from bayesprop.random_weights import Estimator, Flipout, LocalReparameterization, SharedWeights
from bayesprop.rng import Rng

from ..conftest import Problem, method_with, normal, small_network

ESTIMATORS: dict[str, Estimator] = {
    "shared": SharedWeights(2),
    "antithetic": SharedWeights(2, antithetic=True),
    "local": LocalReparameterization(2),
    "flipout": Flipout(2),
}


def repeated(state: MeanFieldState, particles: int) -> MeanFieldState:
    """One place for q, for many particles."""
    buffers = {name: buffer.repeat(particles, *[1] * (buffer.dim() - 1)) for name, buffer in state.buffers.items()}
    return MeanFieldState(state.mean.repeat(particles, 1), state.rho.repeat(particles, 1), {}, buffers)


def noisy_gradients(problem: Problem, method: BayesByBackprop, state: MeanFieldState, count: int) -> Tensor:
    """Gradients by mean and rho, side by side, at one place for many seeds: (seeds, columns)."""
    many = repeated(state, count)
    found = elbo_gradients(method, problem.model, many, problem.batch(count), Rng.create(7, count), 1.0)
    return torch.cat((found.by_name["mean"], found.by_name["rho"]), dim=1)


# -- the divergence of the classic network ----------------------------------------------------------------------------


@pytest.mark.statistical
def test_divergence_of_the_classic_network():
    """784-400-400-10, prior N(0, 1), means 0, rho = -3: 478 410 times s^2 / 2 - 1/2 - log s with s = log(1 + e^-3)."""
    network = nn.Sequential(nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10))
    model = bp.Model(network, likelihood=likelihoods.Categorical(), prior=priors.Normal(0.0, 1.0))
    method = method_with(initial_mean=0.0, initial_rho=-3.0)
    posterior = method.posterior(model, method.init(model, Rng.create(0)))
    assert torch.count_nonzero(posterior.mean()).item() == 0
    s = math.log1p(math.exp(-3.0))
    exact = 478_410 * (0.5 * s**2 - 0.5 - math.log(s))
    assert exact == pytest.approx(1_208_259.09, abs=0.01)
    assert float(posterior.kl()) == pytest.approx(exact, rel=1e-6)
    # log q - log p of a draw is -e^2 / 2 + s^2 e^2 / 2 a weight, with e ~ N(0, 1): variance (1 - s^2)^2 / 2.
    draws = 8
    theta = posterior.draw(posterior.rng(0), draws)
    values = (posterior.log_density(theta).double() - model.log_prior(theta).double())[0]
    error = math.sqrt(478_410 * (1.0 - s**2) ** 2 / 2.0)
    assert error < 500.0
    # Five standard errors, and five for the spread of 8 values: fails once in a million seeds.
    assert float(values.mean()) == pytest.approx(exact, abs=5.0 * error / math.sqrt(draws))
    assert 0.1 * error < float(values.std()) < 3.0 * error


def test_divergence_grows_with_the_means():
    """The same with means N(0, 0.1^2): half a square more for each weight, some 1.2107e6 in all."""
    network = nn.Sequential(nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10))
    model = bp.Model(network, likelihood=likelihoods.Categorical(), prior=priors.Normal(0.0, 1.0))
    method = method_with(initial_mean=0.1, initial_rho=-3.0)
    posterior = method.posterior(model, method.init(model, Rng.create(0)))
    s = math.log1p(math.exp(-3.0))
    squares = float(posterior.mean().double().square().sum())
    exact = 0.5 * squares + 478_410 * (0.5 * s**2 - 0.5 - math.log(s))
    assert float(posterior.kl()) == pytest.approx(exact, rel=1e-6)
    assert exact == pytest.approx(1.2107e6, rel=1e-4)


# -- estimators -------------------------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("kl", ["auto", "monte_carlo"])
def test_every_estimator_is_unbiased_on_a_linear_model(name, kl):
    """E of the gradient is known: with noise s, precision 1 of the prior and N / n = 2,

        N E d mean = -2 X^T (y - X mean) / s^2 + mean,     N E d std_i = (2 sum x_i^2 / s^2 + 1) std_i - 1 / std_i.

    z-test at 5 standard errors of 8 numbers for each of 8 cases: one choice of seeds in 27 000 fails.
    """
    problem = Problem(nn.Linear(3, 1).double(), normal(10, 3), normal(10, 1, seed=1), num_data=20)
    method, state, count = method_with(estimator=ESTIMATORS[name], kl=kl), problem.state(), 2000
    found = noisy_gradients(problem, method, state, count)
    inputs = torch.cat((problem.inputs, torch.ones(10, 1, dtype=torch.float64)), dim=1)
    mean, std = state.mean[0], softplus(state.rho[0])
    by_mean = -2.0 * inputs.T @ (problem.targets[:, 0] - inputs @ mean) / 0.7**2 + mean
    by_std = (2.0 * inputs.square().sum(0) / 0.7**2 + 1.0) * std - 1.0 / std
    expected = torch.cat((by_mean, by_std * torch.sigmoid(state.rho[0]))) / 20
    error = found.std(0) / math.sqrt(count)
    # With antithetic noise the mean's gradient of a quadratic is exact: its error is rounding.
    assert bool(((found.mean(0) - expected).abs() <= 5.0 * error + 1e-12).all())
    if name == "antithetic":
        assert float(error[:4].max()) < 1e-15
    assert float(error[4:].min()) > 1e-4


@pytest.mark.statistical
def test_estimators_agree_in_the_mean_and_are_ordered_in_variance():
    """A batch of 128 of a network with a hidden layer, with two samples each: equal mean gradients, by z-tests.

    Means: 3 x 42 z-tests at 5 standard errors, one choice of seeds in 14 000 fails. Variances: sums over 42 gradients
    of 600 draws, each good to some 5 percent; local : flipout : antithetic : shared are about 1 : 2 : 8 : 28.
    """
    problem, count = Problem(small_network(), normal(128, 3)), 600
    state = problem.state()
    found = {
        name: noisy_gradients(problem, method_with(estimator=estimator, kl="auto"), state, count)
        for name, estimator in ESTIMATORS.items()
    }
    reference = found["shared"]
    for name in ("antithetic", "local", "flipout"):
        error = ((found[name].var(0) + reference.var(0)) / count).sqrt()
        assert found[name].shape == (count, 42)
        assert float(((found[name].mean(0) - reference.mean(0)).abs() / error).max()) < 5.0
    total = {name: float(gradient.var(0).sum()) for name, gradient in found.items()}
    assert total["local"] < 0.7 * total["flipout"]
    assert total["flipout"] < 0.3 * total["antithetic"]
    assert total["antithetic"] < 0.3 * total["shared"]


# -- posteriors -------------------------------------------------------------------------------------------------------


def regression() -> tuple[Problem, Tensor, Tensor]:
    """Bayesian linear regression with correlated inputs: the problem, the posterior's exact mean and precision."""
    mixing = torch.tensor([[1.0, 0.8, 0.0], [0.0, 0.6, 0.5], [0.0, 0.0, 0.7]], dtype=torch.float64)
    inputs = normal(24, 3) @ mixing
    targets = inputs @ torch.tensor([[1.0], [-2.0], [0.5]], dtype=torch.float64) + 0.3 + 0.5 * normal(24, 1, seed=1)
    problem = Problem(
        nn.Linear(3, 1).double(),
        inputs,
        targets,
        likelihood=likelihoods.Gaussian(scale=0.5),
        prior=priors.Normal(0.0, 1.0),
    )
    design = torch.cat((inputs, torch.ones(24, 1, dtype=torch.float64)), dim=1)
    precision = design.T @ design / 0.25 + torch.eye(4, dtype=torch.float64)
    return problem, torch.linalg.solve(precision, design.T @ targets[:, 0] / 0.25), precision


@pytest.mark.statistical
@pytest.mark.parametrize("name", ESTIMATORS)
def test_linear_regression_has_the_exact_means_and_the_precision_of_each_weight(name):
    """The best mean-field Gaussian for a Gaussian: its means, and the variances 1 / precision_ii (not the marginals).

    64 particles from different starts; their average must be the exact answer within 5 standard errors of it, and
    0.002 of the standard deviation's logarithm for the curvature of the noise (one choice of seeds in 50 000 fails).
    """
    problem, exact, precision = regression()
    estimator = dataclasses.replace(ESTIMATORS[name], samples=4)
    method = method_with(
        learning_rate=0.1,
        scale_learning_rate=0.15,
        optimizer=SGD(momentum=0.8),
        estimator=estimator,
        initial_mean=0.3,
        initial_scale=0.1,
        schedule=Cosine(final=0.0),
    )
    particles, steps = 64, 250
    rng = Rng.create(0, particles)
    state = method.init(problem.model, rng)
    for step in range(steps):
        batch = problem.batch(particles, progress=step / steps)
        state, _ = method.update(problem.model, state, batch, rng.at(step))
    mean, log_std = state.mean, softplus(state.rho).log()
    expected = -0.5 * precision.diagonal().log()
    marginal = 0.5 * torch.linalg.inv(precision).diagonal().log()
    assert float((marginal - expected).max()) > 0.5
    error = mean.std(0) / math.sqrt(particles)
    assert float(error.max()) < 0.01
    assert bool(((mean.mean(0) - exact).abs() <= 5.0 * error + 1e-8).all())
    error = log_std.std(0) / math.sqrt(particles)
    assert float(error.max()) < 0.02
    assert bool(((log_std.mean(0) - expected).abs() <= 5.0 * error + 0.002).all())
    if name == "antithetic":  # the means see no noise at all: what is left is the end of their convergence
        torch.testing.assert_close(mean, exact.expand(particles, -1), rtol=0.0, atol=1e-8)


def gaussian_target(precision: Tensor, mean: Tensor) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """A linear network and data whose likelihood is N(mean, precision^-1), for a flat prior: X^T X = precision."""
    inputs = torch.linalg.cholesky(precision).T.contiguous()
    return nn.Linear(len(mean), 1, bias=False).double(), (inputs, inputs @ mean)


MEAN = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64)
CORRELATED = torch.tensor([[100.0, 60.0, 0.0], [60.0, 64.0, 24.0], [0.0, 24.0, 49.0]], dtype=torch.float64)
DIAGONAL = torch.tensor([100.0, 49.0, 64.0], dtype=torch.float64).diag()


@pytest.mark.statistical
def test_a_gaussian_target_is_met_by_its_means_and_single_precisions():
    """Through `fit`. The standard deviations' logarithms: 0.05 is five standard deviations over seeds."""
    network, data = gaussian_target(CORRELATED, MEAN)
    model = bp.Model(network, likelihood=likelihoods.Gaussian(scale=1.0), prior=priors.Flat())
    method = method_with(
        learning_rate=0.02,
        scale_learning_rate=0.01,
        optimizer=SGD(momentum=0.8),
        estimator=SharedWeights(100, antithetic=True),
        initial_mean=0.1,
        initial_scale=0.05,
        schedule=Cosine(final=0.0),
    )
    posterior = bp.fit(model, data, method, epochs=400, batch_size=None, seed=0, progress=False)
    torch.testing.assert_close(posterior.mean()[0], MEAN, rtol=0.0, atol=1e-8)
    expected = -0.5 * CORRELATED.diagonal().log()
    torch.testing.assert_close(posterior.std()[0].log(), expected, rtol=0.0, atol=0.05)
    assert float((0.5 * torch.linalg.inv(CORRELATED).diagonal().log() - expected).min()) > 0.2


def test_stick_the_landing_has_no_noise_at_the_optimum_of_a_diagonal_target():
    """Where q is the posterior, each single gradient is 0; without it, or with correlations, only their mean is."""

    def noise(precision: Tensor, landing: bool) -> float:
        network, (inputs, targets) = gaussian_target(precision, MEAN)
        problem = Problem(
            network, inputs, targets[:, None], likelihood=likelihoods.Gaussian(scale=1.0), prior=priors.Flat()
        )
        std = precision.diagonal().rsqrt()
        rho = std + torch.log(-torch.expm1(-std))
        optimum = MeanFieldState(MEAN[None], rho[None], {}, {})
        method = method_with(estimator=SharedWeights(1), kl="monte_carlo", stick_the_landing=landing)
        return float(noisy_gradients(problem, method, optimum, 200).abs().max())

    assert noise(DIAGONAL, landing=True) < 1e-12
    assert noise(DIAGONAL, landing=False) > 0.1
    assert noise(CORRELATED, landing=True) > 0.1


def test_stick_the_landing_arrives_exactly():
    network, data = gaussian_target(DIAGONAL, MEAN)
    model = bp.Model(network, likelihood=likelihoods.Gaussian(scale=1.0), prior=priors.Flat())
    method = method_with(
        learning_rate=0.02,
        optimizer=SGD(momentum=0.8),
        kl="monte_carlo",
        stick_the_landing=True,
        initial_mean=0.1,
        initial_scale=0.05,
    )
    posterior = bp.fit(model, data, method, epochs=400, batch_size=None, seed=0, progress=False)
    torch.testing.assert_close(posterior.mean()[0], MEAN, rtol=0.0, atol=1e-7)
    torch.testing.assert_close(posterior.std()[0], DIAGONAL.diagonal().rsqrt(), rtol=1e-7, atol=0.0)
