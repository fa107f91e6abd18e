"""IVON: the algorithm of the paper written out, its law, temperatures, priors without a closed form, refusals."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.inference import IVON, Constant
from bayesprop.random_weights import LocalReparameterization, SharedWeights
from bayesprop.rng import Rng, Stream
from bayesprop.testing import LinearRegression, MethodSuite

from ..conftest import Problem, normal, run_to_the_end, small_network


class TestIVON(MethodSuite):
    def make(self):
        return IVON(learning_rate=0.02, beta2=0.99, estimator=SharedWeights(2, antithetic=True))

    def check_linear_regression(self, problem):
        """Antithetic pairs see the mean's gradient without noise: the mean is exact. The precision is an average of
        (1 + b2) / (1 - b2) numbers, over a rate that falls: within a tenth of L_ii. A temperature T takes the
        likelihood to the power 1 / T."""
        for temperature in (1.0, 4.0):
            estimator = SharedWeights(16, antithetic=True)
            method = IVON(
                0.3, clip_radius=None, beta2=0.98, temperature=temperature, estimator=estimator, initial_scale=0.3
            )
            posterior = run_to_the_end(problem, method, 600)
            eye = torch.eye(4).double()
            precision = (problem.precision - eye) / temperature + eye
            mean = torch.linalg.solve(precision, problem.precision @ problem.mean / temperature)
            assert_close(posterior.mean()[0], mean, rtol=0.0, atol=1e-6)
            ratio = posterior.std()[0].square() * precision.diagonal()
            assert_close(ratio, torch.ones(4).double(), rtol=0.1, atol=0.0)


@pytest.mark.parametrize("particles", [1, 2])
def test_algorithm_1_of_the_paper(particles):
    """Without momentum: g and h of the likelihood, decay delta = 1 / (N c^2), as the paper has them."""
    problem = Problem(small_network(), normal(9, 3), prior=priors.Normal(0.0, 0.7), num_data=30)
    model, width = problem.model, problem.model.layout.size
    rate, beta2, count, delta = 0.1, 0.9, 30.0, 1.0 / (30.0 * 0.49)
    method = IVON(rate, clip_radius=None, beta1=0.0, beta2=beta2, schedule=Constant(), initial_scale=0.3)
    rng = Rng.create(3, particles)
    state = method.init(model, rng)
    m, h = state.mean.clone(), 1.0 / (count * 0.09) - delta
    h = torch.full_like(m, h)
    for step in range(3):
        batch, now = problem.batch(particles, slice(step, step + 5)), rng.at(step)
        sigma = (count * (h + delta)).rsqrt()
        noise = now.normal(width, Stream.WEIGHTS, dtype=torch.float64)[:, 0]
        leaf = (m + sigma * noise)[:, None].requires_grad_(True)
        loss = -model.log_likelihood(leaf, {}, batch).sum() / batch.rows
        (gradient,) = torch.autograd.grad(loss, leaf)
        found = gradient[:, 0]
        curvature = found * noise / sigma
        m = m - rate * (found + delta * m) / (h + delta)
        h = beta2 * h + (1 - beta2) * curvature + 0.5 * (1 - beta2) ** 2 * (h - curvature) ** 2 / (h + delta)
        state, _ = method.update(model, state, batch, now)
        # The paper moves h first; with the gradient of a step both orders of writing see the same numbers below.
        assert_close(state.precision, count * (h + delta), rtol=1e-9, atol=1e-9)
        assert_close(state.mean, m, rtol=1e-9, atol=1e-9)


def test_momentum_is_that_of_adam_without_its_second_moment():
    """Two steps: b1 m + (1 - b1) g, divided by what is missing of it at the start."""
    problem = LinearRegression()
    method = IVON(
        0.1,
        clip_radius=None,
        beta1=0.9,
        beta2=1.0 - 1e-12,
        schedule=Constant(),
        estimator=SharedWeights(2, antithetic=True),
    )
    rng, batch = Rng.create(0), problem.batch()
    state = method.init(problem.model, rng)
    precision, mean = state.precision.clone(), state.mean.clone()
    moment = torch.zeros_like(mean)
    for step in range(2):
        slope = mean @ problem.precision - problem.precision @ problem.mean  # of -log p, exact for antithetic pairs
        moment = 0.9 * moment + 0.1 * slope
        mean = mean - 0.1 * moment / (1.0 - 0.9 ** (step + 1)) / precision
        state, _ = method.update(problem.model, state, batch, rng.at(step))
    assert_close(state.mean, mean, rtol=1e-9, atol=1e-11)


@pytest.mark.statistical
@pytest.mark.parametrize("estimator", [SharedWeights(), LocalReparameterization()])
@pytest.mark.parametrize("prior", [priors.Normal(0.2, 0.5), priors.Laplace(scale=0.6), priors.StudentT(5.0, scale=0.8)])
def test_the_precision_rests_at_the_expected_curvature(prior, estimator):
    """One step at the rate a = 1e-6 from 40,000 particles: the mean of what is added to t is E(-d^2 log p) - t, whose
    expectation over q comes from quadrature on 200 x 4 noise. Five standard errors."""
    problem = LinearRegression()
    model = bp.Model(problem.model.network, likelihood=likelihoods.Gaussian(scale=0.5), prior=prior)
    model.probe(problem.inputs, problem.targets)
    model.set_mode(True)
    count = 40_000
    method = IVON(1e-9, beta2=1.0 - 1e-6, schedule=Constant(), estimator=estimator, initial_mean=0.0, initial_scale=0.2)
    rng = Rng.create(1, count)
    state = method.init(model, rng)
    state, _ = method.update(model, state, problem.batch(count), rng)
    added = (state.precision - 25.0) / 1e-6
    nodes = torch.linspace(-8.0, 8.0, 2001, dtype=torch.float64)
    place = (0.2 * nodes[:, None].expand(-1, 4)).requires_grad_(True)
    density = torch.exp(-0.5 * nodes.square()) * (nodes[1] - nodes[0]) / (2.0 * torch.pi) ** 0.5
    score = model.bound_prior.score(place.detach())
    # E of a second derivative is E of the score times the noise over s: the double exponential has no other.
    expected = (problem.precision - torch.eye(4)).diagonal() - (density[:, None] * score * nodes[:, None]).sum(0) / 0.2
    error = 5.0 * added.std(0) / count**0.5
    assert bool(((added.mean(0) - (expected - 25.0)).abs() < error).all())


def test_the_precision_stays_positive_whatever_it_meets():
    """A prior with negative curvature, and steps of a = 1 that overshoot: the last term of (3) holds it up."""
    problem = Problem(small_network(), normal(9, 3), prior=priors.StudentT(1.0, scale=0.01))
    method = IVON(1e-3, beta2=0.0, schedule=Constant(), initial_mean=3.0)
    rng = Rng.create(0, 3)
    state = method.init(problem.model, rng)
    for step in range(50):
        state, _ = method.update(problem.model, state, problem.batch(3), rng.at(step))
        assert float(state.precision.min()) > 0.0


def test_a_step_of_a_weight_is_no_longer_than_the_radius():
    problem = LinearRegression()
    method = IVON(0.5, schedule=Constant(), initial_mean=50.0, initial_scale=5.0, clip_radius=1e-3)
    state = method.init(problem.model, Rng.create(0))
    before = state.mean.clone()
    state, _ = method.update(problem.model, state, problem.batch(), Rng.create(0))
    assert_close((state.mean - before).abs(), torch.full_like(before, 5e-4), rtol=1e-9, atol=0.0)


def test_numbers_for_each_particle():
    problem = LinearRegression()
    settings = {"learning_rate": (0.05, 0.2), "temperature": (1.0, 3.0), "initial_scale": (0.1, 0.3)}
    rng = Rng.create(0, 2)
    both = IVON(**{name: torch.tensor(pair, dtype=torch.float64) for name, pair in settings.items()})
    state = both.init(problem.model, rng)
    for step in range(3):
        state, _ = both.update(problem.model, state, problem.batch(2), rng.at(step))
    for particle in range(2):
        one = IVON(**{name: pair[particle] for name, pair in settings.items()})
        alone = one.init(problem.model, Rng(rng.seeds[particle : particle + 1]))
        for step in range(3):
            alone, _ = one.update(
                problem.model, alone, problem.batch(1), Rng(rng.seeds[particle : particle + 1]).at(step)
            )
        assert_close(state.mean[particle], alone.mean[0], rtol=1e-9, atol=1e-11)
        assert_close(state.precision[particle], alone.precision[0], rtol=1e-9, atol=1e-11)
    with pytest.raises(ConfigurationError, match="initial_scale: a tensor holds one number for each particle"):
        both.init(problem.model, Rng.create(0, 3))


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"learning_rate": 0.0}, "learning_rate must be positive, got 0.0"),
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"clip_radius": -1.0}, "clip_radius must be positive"),
        ({"beta1": 1.0}, r"beta1 lies in \[0, 1\), got 1.0"),
        ({"beta2": -0.1}, r"beta2 lies in \[0, 1\)"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, fault):
    with pytest.raises(ConfigurationError, match=fault) as caught:
        IVON(**settings)
    assert "write: IVON(learning_rate=" in str(caught.value)


@pytest.mark.parametrize("prior", [priors.Normal(0.3, 0.7), priors.Flat()])
@pytest.mark.parametrize("options", [{}, {"random": "0.*"}])
def test_the_native_pass_is_the_plain_one(prior, options, monkeypatch):
    """float32, three particles with numbers of their own, a learnt noise scale and point estimates: six steps."""
    network = small_network(dtype=torch.float32)
    problem = Problem(network, normal(9, 3), prior=prior, likelihood=likelihoods.Gaussian(), num_data=30, **options)
    temperature = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)
    method = IVON(temperature=temperature, initial_scale=0.1, beta2=0.9, schedule=Constant())
    assert method._native(problem.model) == problem.model.layout.random
    states = []
    for native in (True, False):
        if not native:
            monkeypatch.setattr(IVON, "_native", lambda *_: 0)
        rng = Rng.create(0, 3)
        state = method.init(problem.model, rng)
        for step in range(6):
            state, info = method.update(problem.model, state, problem.batch(3, slice(step, step + 4)), rng.at(step))
        states.append((state.mean, state.precision, state.momentum, info.log_likelihood))
    assert_close(states[0], states[1], rtol=2e-4, atol=1e-5)


def test_what_has_no_native_pass():
    model = Problem(small_network(dtype=torch.float32), normal(9, 3), prior=priors.Laplace()).model
    assert IVON()._native(model) == 0
    assert IVON()._native(LinearRegression().model) == 0  # float64
    model = Problem(small_network(dtype=torch.float32), normal(9, 3)).model
    assert IVON()._native(model) == 21
    assert IVON(estimator=SharedWeights(2))._native(model) == 0
