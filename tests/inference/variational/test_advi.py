"""ADVI: gradients against the written-out ELBO, the law of each covariance, the sequence of the paper, refusals."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.inference import ADVI
from bayesprop.inference.variational.advi import GaussianState
from bayesprop.posteriors import FullGaussian
from bayesprop.rng import Rng
from bayesprop.testing import LinearRegression, MethodSuite

from ..conftest import Problem, normal, run_to_the_end, same_seeds, small_network

STEP = 1e-5


def found_covariance(posterior):
    """(4, 4), of a mean field too."""
    return posterior.covariance()[0] if hasattr(posterior, "covariance") else torch.diag(posterior.std()[0].square())


class TestFullRank(MethodSuite):
    settings = {"covariance": "full rank"}

    def make(self):
        return ADVI(**self.settings, learning_rate=0.01)

    def check_linear_regression(self, problem):
        """The gradient has no noise where q is the posterior: mean and covariance are found as a point is."""
        method = ADVI(**self.settings, learning_rate=0.05, kl_weights="uniform")
        posterior = run_to_the_end(problem, method, 1000)
        assert isinstance(posterior, FullGaussian)
        assert_close(posterior.mean()[0], problem.mean, rtol=0.0, atol=1e-4)
        assert_close(found_covariance(posterior), problem.covariance, rtol=0.0, atol=1e-4)


class TestLowRank(MethodSuite):
    def make(self):
        return ADVI("low rank", rank=2, learning_rate=0.01)

    def check_linear_regression(self, problem):
        """With as many factors as columns every covariance can be written, and the posterior's is found."""
        method = ADVI("low rank", rank=4, learning_rate=0.05, kl_weights="uniform")
        posterior = run_to_the_end(problem, method, 1500)
        assert_close(posterior.mean()[0], problem.mean, rtol=0.0, atol=2e-3)
        size = problem.covariance.abs().max()
        assert_close(found_covariance(posterior) / size, problem.covariance / size, rtol=0.0, atol=0.01)


class TestMeanField(MethodSuite):
    def make(self):
        return ADVI("mean field", learning_rate=0.01, samples=2, antithetic=True, stick_the_landing=False)

    def check_linear_regression(self, problem):
        """Pairs of opposite noise see the mean's gradient without any: it is exact. Variances are 1 / L_ii within the
        noise that a rate falling to zero leaves."""
        method = ADVI("mean field", learning_rate=0.03, samples=16, antithetic=True, kl_weights="uniform")
        posterior = run_to_the_end(problem, method, 800)
        assert_close(posterior.mean()[0], problem.mean, rtol=0.0, atol=1e-6)
        ratio = posterior.std()[0].square() * problem.precision.diagonal()
        assert_close(ratio, torch.ones(4).double(), rtol=0.05, atol=0.0)


PROBLEM = {"prior": priors.Normal(scale=priors.HalfNormal(0.5)), "likelihood": likelihoods.Gaussian()}


@pytest.mark.parametrize("covariance", ["mean field", "low rank", "full rank"])
@pytest.mark.parametrize("landing", [True, False])
def test_the_gradient_is_that_of_the_elbo(covariance, landing):
    """Central differences of (4) along random directions, for weights, scales of priors and noise alike. With the path
    alone, log q is differentiated at parameters that are held."""
    problem = Problem(small_network(), normal(7, 3), num_data=20, **PROBLEM)
    model, layout = problem.model, problem.model.layout
    width = layout.latent
    assert width == layout.random + 3  # scales of two layers and the noise
    method = ADVI(covariance, rank=2, samples=4, antithetic=True, stick_the_landing=landing)
    state = method.init(model, Rng.create(0))
    for index, tensor in enumerate((state.mean, *state.shape.values())):
        tensor.add_(0.3 * normal(*tensor.shape, seed=40 + index))
    state.shape["rho"].add_(2.0)
    batch, rng = problem.batch(1, slice(2, None)), same_seeds(1)
    found, _ = method.gradients(model, state, batch, rng, 0.7, 1.0 / 20.0)

    def posterior(mean, shape):
        made = method.posterior(model, GaussianState(mean, shape, {}, {}))
        return made

    def objective(mean, shape):
        """From draws that are the map of the same noise; the entropy in closed form, or log q with held numbers."""
        here = GaussianState(mean, shape, {}, {})
        draws = drawn(method, model, here, rng)
        q = posterior(state.mean, state.shape) if landing else posterior(mean, shape)
        log_q = q.log_density(draws).mean() if landing else -q.entropy().mean()
        log_p = model.log_prior(draws).mean()
        data = model.log_likelihood(draws, {}, batch).mean() * (20.0 / batch.rows)
        return (0.7 * (log_q - log_p) - data) / 20.0

    places = {"mean": state.mean, **state.shape}
    assert found.keys() == places.keys()
    for index, name in enumerate(places):
        direction = normal(*places[name].shape, seed=60 + index)
        ends = []
        for sign in (1.0, -1.0):
            moved = {n: t + (sign * STEP * direction if n == name else 0.0) for n, t in places.items()}
            mean = moved.pop("mean")
            ends.append(objective(mean, moved))
        expected = (ends[0] - ends[1]) / (2.0 * STEP)
        assert_close((found[name] * direction).sum(), expected, rtol=2e-5, atol=1e-7)


def drawn(method, model, state, rng):
    """Draws of a step, (1, samples, columns)."""
    from bayesprop.inference.variational import location_scale
    from bayesprop.inference.variational.gradients import scales
    from bayesprop.rng import Stream

    width = model.layout.latent
    half = rng.normal(width + (method.rank if method.covariance == "low rank" else 0), Stream.WEIGHTS, 2, torch.float64)
    noise = torch.cat((half, -half), dim=1)
    return state.mean[:, None] + scales(state.shape["rho"])[0][:, None] * location_scale.white(
        state.shape, noise, width
    )


def test_the_sequence_of_the_paper_arrives():
    problem = LinearRegression()
    method = ADVI(learning_rate=0.3, optimizer="sequence", kl_weights="uniform", initial_scale=0.1)
    posterior = run_to_the_end(problem, method, 1500)
    assert_close(posterior.mean()[0], problem.mean, rtol=0.0, atol=0.02)
    assert_close(found_covariance(posterior), problem.covariance, rtol=0.0, atol=0.01)


def test_a_matrix_that_does_not_fit_is_refused_before_it_is_made():
    problem = LinearRegression()
    with pytest.raises(ConfigurationError, match=r"ADVI with a full rank covariance needs .* GiB") as caught:
        ADVI(memory_budget=1e-9).init(problem.model, Rng.create(0))
    assert 'ADVI("low rank", rank=8)  # or BayesByBackprop()' in str(caught.value)


@pytest.mark.parametrize(("hidden", "share"), [(4, 1.0), (32, 64.0 / 161.0)])
def test_many_correlations_are_learnt_more_slowly(hidden, share):
    """Adam's first step is its rate: for B that of everything else, or 64 over the number of columns."""
    network = nn.Sequential(nn.Linear(3, hidden), nn.Tanh(), nn.Linear(hidden, 1)).double()
    problem = Problem(network, normal(7, 3))
    method = ADVI(learning_rate=1e-3)
    state = method.init(problem.model, Rng.create(0))
    state, _ = method.update(problem.model, state, problem.batch(progress=0.4), Rng.create(0))
    moved = state.shape["lower"][0].tril(-1).abs().max()
    assert_close(moved, torch.tensor(1e-3 * share * method.schedule(0.4)).double(), rtol=1e-4, atol=0.0)


def test_numbers_for_each_particle():
    problem, rng = LinearRegression(), Rng.create(0, 2)
    pairs = {"learning_rate": (0.01, 0.05), "temperature": (1.0, 2.0), "initial_scale": (0.1, 0.3)}
    both = ADVI(**{name: torch.tensor(pair, dtype=torch.float64) for name, pair in pairs.items()})
    state = both.init(problem.model, rng)
    for step in range(3):
        state, _ = both.update(problem.model, state, problem.batch(2, progress=0.4), rng.at(step))
    for particle in range(2):
        seeds = Rng(rng.seeds[particle : particle + 1])
        one = ADVI(**{name: pair[particle] for name, pair in pairs.items()})
        alone = one.init(problem.model, seeds)
        for step in range(3):
            alone, _ = one.update(problem.model, alone, problem.batch(1, progress=0.4), seeds.at(step))
        assert_close(state.mean[particle], alone.mean[0], rtol=1e-9, atol=1e-11)
        assert_close(state.shape["lower"][particle], alone.shape["lower"][0], rtol=1e-9, atol=1e-11)
    with pytest.raises(ConfigurationError, match="a tensor holds one number for each particle"):
        both.init(problem.model, Rng.create(0, 3))


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"covariance": "diagonal"}, "covariance is one of mean field, low rank, full rank, got 'diagonal'"),
        ({"rank": 0}, "rank must be positive, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"samples": 3, "antithetic": True}, "antithetic samples come in pairs, got 3"),
        ({"temperature": -1.0}, "temperature must not be negative"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, fault):
    with pytest.raises(ConfigurationError, match=fault) as caught:
        ADVI(**settings)
    assert 'write: ADVI("low rank", rank=8)' in str(caught.value)
