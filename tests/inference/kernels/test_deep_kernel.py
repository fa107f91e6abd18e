"""Deep kernel learning: the exam, its best q, and problems on which kernels on the inputs fail."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.inference import DeepKernel
from bayesprop.inference.kernels.deep_kernel import _quadrature
from bayesprop.rng import Rng
from bayesprop.testing import LinearRegression, MethodSuite

from ..conftest import normal


class TestDeepKernel(MethodSuite):
    def make(self):
        return DeepKernel(inducing=6, learning_rate=0.01)

    def check_linear_regression(self, problem):
        """With the linear kernel and no features to learn: the posterior under the amplitude that was found, which has
        more evidence than those beside it. They are apart, because q and amplitude take turns and converge slowly."""
        method = DeepKernel(inducing=8, kernel="linear", scale_learning_rate=0.05)
        posterior = bp.fit(problem.model, problem.data, method, epochs=200, batch_size=None, progress=False)
        amplitude = float(posterior.law.scales[0, 1].exp())

        def evidence(scale: float) -> float:
            whole = 0.25 * torch.eye(24).double() + scale**2 * problem.design @ problem.design.T
            law = torch.distributions.MultivariateNormal(torch.zeros(24).double(), whole)
            return float(law.log_prob(problem.targets[:, 0]))

        assert evidence(amplitude) > max(evidence(0.7 * amplitude), evidence(1.4 * amplitude))
        precision = problem.design.T @ problem.design / 0.25 + torch.eye(4).double() / amplitude**2
        covariance = torch.linalg.inv(precision)
        center = covariance @ problem.design.T @ problem.targets[:, 0] / 0.25
        mean, spread = posterior.process(problem.inputs)
        assert_close(mean[0, 0], problem.design @ center, rtol=0.0, atol=1e-4)
        assert_close(spread[0, 0], problem.design @ covariance @ problem.design.T, rtol=1e-3, atol=1e-4)

    def test_every_kind_of_column(self):
        """Point estimates, fixed parameters, latents of the likelihood, priors of several families."""
        mixed = {"0.*": priors.Laplace(scale=0.5), "*": priors.ScaleMixture(0.5, 1.0, 0.1)}
        for options in ({"random": "0.*"}, {"fixed": "0.*"}, {"prior": mixed}):
            model, data = self.problem(**options)
            posterior = self.fitted(model, data, epochs=2)
            assert bool(torch.isfinite(posterior.predict(data[0], 4).mean).all())
            assert posterior.hyper.shape == (1, 1)


def test_the_pass_at_the_end_finds_the_best_law():
    """No step of the bound's gradient by the mean or the factor of q is left, on all rows."""
    problem = LinearRegression()
    network = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    model = bp.Model(network, likelihood=likelihoods.Gaussian(0.5))
    method = DeepKernel(inducing=7)
    model.probe(problem.inputs, problem.targets)
    state, batch, rng = method.init(model, Rng.create(0)), problem.batch(), Rng.create(0)
    for step in range(5):
        state, _ = method.update(model, state, batch, rng.at(step))
    state = method.finish(model, state, lambda: iter([batch]), rng)
    law = method._law(model, state.parts, state)
    law.mean.requires_grad_(True)
    law.factor.requires_grad_(True)
    rows = method.posterior(model, state).features(problem.inputs)
    _, mean, variance = law.marginals(rows)
    bound = method._expected(model, state.parts["mean"], mean, variance, batch.targets, rng) - law.divergence()
    found = torch.autograd.grad(bound.sum(), [law.mean, law.factor])
    assert_close(found[0], torch.zeros_like(found[0]), rtol=0.0, atol=1e-6)
    assert_close(found[1].tril(), torch.zeros_like(found[1]), rtol=0.0, atol=1e-6)


def test_the_last_rows_of_an_epoch_count_once():
    """A second batch that is filled up with rows of the first one gives what all rows at once give."""
    problem = LinearRegression()
    method, model, rng = DeepKernel(inducing=5, kernel="linear"), problem.model, Rng.create(0)
    found = []
    for parts in ([slice(0, 24)], [slice(0, 15), slice(9, 24)]):
        batches = [problem.batch(1, part) for part in parts]
        if len(parts) == 2:  # the rows 15 to 23 first, then six that were seen
            order = torch.cat((torch.arange(15, 24), torch.arange(9, 15)))
            batches[1] = type(batches[1])(problem.inputs[order][None], problem.targets[order][None], 24)
        state = method.init(model, rng)
        method._begin(model, state, problem.batch(), rng)
        state = method.finish(model, state, lambda batches=batches: iter(batches), rng)
        found.append(state.shift)
    assert_close(found[0], found[1], rtol=1e-9, atol=1e-10)


def test_quadrature_is_exact_for_polynomials():
    nodes, weights = _quadrature()
    assert float((weights * nodes**4).sum()) == pytest.approx(3.0, rel=1e-12)
    assert float((weights * nodes.square()).sum()) == pytest.approx(1.0, rel=1e-12)


def test_classes_that_no_line_separates():
    """Two moons with defaults: few errors, probabilities that are no certainties where classes meet, and a spread that
    grows away from the data."""
    data = bp.data.two_moons(100)
    network = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 2))
    model = bp.Model(network, likelihood=likelihoods.Categorical())
    posterior = bp.fit(model, data, DeepKernel(inducing=16), epochs=100, progress=False)
    prediction = posterior.predict(data.inputs)
    assert float(bp.metrics.error(prediction.mean, data.targets)) < 0.04
    assert -float(prediction.log_prob(data.targets).mean()) < 0.15


def test_a_wave_with_its_noise():
    inputs = torch.linspace(-2.0, 2.0, 100)[:, None]
    targets = torch.sin(3.0 * inputs) + 0.1 * normal(100, 1).float()
    network = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1))
    model = bp.Model(network, likelihood=likelihoods.Gaussian())
    method = DeepKernel(inducing=20, learning_rate=0.01, scale_learning_rate=0.05)
    posterior = bp.fit(model, (inputs, targets), method, epochs=250, batch_size=None, progress=False)
    prediction = posterior.predict(inputs)
    assert float((prediction.mean - torch.sin(3.0 * inputs[:, 0])).square().mean().sqrt()) < 0.1
    assert 0.07 < float(prediction.aleatoric.mean().sqrt()) < 0.2


def test_refusals():
    model = bp.Model(nn.Linear(2, 1), likelihood=likelihoods.Gaussian(), output=lambda out: out)
    with pytest.raises(ConfigurationError, match="takes the place of the last dense layer, and of what follows it"):
        DeepKernel().init(model, Rng.create(0))


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"inducing": 0}, "inducing must be at least 1"),
        ({"draws": 0}, "draws must be at least 1"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"kernel": "matern"}, 'kernel is "rbf" or "linear", got \'matern\''),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, fault):
    with pytest.raises(ConfigurationError, match=fault):
        DeepKernel(**settings)
