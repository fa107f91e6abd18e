"""Boosting: its gradients against the ELBO of a mixture by quadrature, weights, phases, the law, refusals."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.inference import SGD, Boosting, Constant
from bayesprop.inference.variational.boosting import stick_weights
from bayesprop.model import Batch
from bayesprop.posteriors.gaussian_mixture import mixture_log_density
from bayesprop.rng import Rng
from bayesprop.testing import LinearRegression, MethodSuite

from ..conftest import run_to_the_end


def gap(problem, posterior):
    """KL(q || posterior) in nats, from 20,000 draws of q, with its standard error."""
    theta = posterior.draw(posterior.rng(1), 20_000)
    exact = torch.distributions.MultivariateNormal(problem.mean, problem.covariance).log_prob(theta[0])
    each = posterior.log_density(theta)[0] - exact
    return float(each.mean()), float(each.std()) / math.sqrt(20_000)


class TestBoosting(MethodSuite):
    def make(self):
        return Boosting(components=2, learning_rate=0.01)

    def check_linear_regression(self, problem):
        """One component is the mean-field Gaussian, whose divergence is known; three along the correlation come closer
        by more than five standard errors, and never below 0."""
        settings = {"learning_rate": 0.05, "samples": 4, "warmup": 0.0, "initial_scale": 0.1}
        one = run_to_the_end(problem, Boosting(1, **settings), 500)
        assert_close(one.mean()[0], problem.mean, rtol=0.0, atol=0.05)
        ratio = one.std()[0].square() * problem.precision.diagonal()
        assert_close(ratio, torch.ones(4).double(), rtol=0.1, atol=0.0)
        found, error = gap(problem, one)
        exact = 0.5 * float(problem.precision.diagonal().log().sum() - torch.logdet(problem.precision))
        assert found == pytest.approx(exact, abs=5.0 * error + 0.02)
        three, error_of_three = gap(problem, run_to_the_end(problem, Boosting(3, **settings), 900))
        assert 0.0 < three < found - 5.0 * (error + error_of_three)


class TestEqualBoosting(MethodSuite):
    def make(self):
        return Boosting(components=2, weights="equal", learning_rate=0.01)

    def check_linear_regression(self, problem):
        """Two components of half the weight each, around the mean."""
        method = Boosting(2, "equal", learning_rate=0.05, warmup=0.0, initial_scale=0.1)
        posterior = run_to_the_end(problem, method, 500)
        assert_close(posterior.weights, torch.full((1, 2), 0.5).double())
        assert bool(((posterior.mean()[0] - problem.mean).abs() < posterior.std()[0]).all())


def test_weights_are_what_sticks_leave():
    shares = torch.tensor([[1.0, 0.5, 0.25, 0.1]]).double()
    expected = torch.tensor([[0.5 * 0.75 * 0.9, 0.5 * 0.75 * 0.9, 0.25 * 0.9, 0.1]]).double()
    assert_close(stick_weights(shares), expected)
    equal = stick_weights(1.0 / torch.arange(1.0, 6.0)[None])
    assert_close(equal, torch.full((1, 5), 0.2))


@pytest.mark.statistical
def test_gradients_are_those_of_the_elbo_of_the_mixture():
    """One weight, one step of 40,000 particles from the same place: the mean moves of m, rho and the logit of a are
    the derivatives of the ELBO by quadrature, those of m and rho over a. Five standard errors."""
    inputs, targets = torch.tensor([[1.0], [0.5]]).double(), torch.tensor([[1.2], [0.1]]).double()
    model = bp.Model(nn.Linear(1, 1, bias=False).double(), likelihood=likelihoods.Gaussian(0.6), prior=priors.Normal())
    model.probe(inputs, targets)
    model.set_mode(True)
    count, place = 40_000, {"mean": (0.2, 1.0), "rho": (-0.5, -0.9), "logit": (0.0, -0.4)}
    method = Boosting(2, learning_rate=1e-4, optimizer=SGD(), schedule=Constant(), warmup=0.0)
    state = method.init(model, Rng.create(0, count))
    state.mean[..., 0] = torch.tensor(place["mean"])
    state.rho[..., 0] = torch.tensor(place["rho"])
    state.logit.copy_(torch.tensor(place["logit"]))
    batch = Batch(inputs.expand(count, 2, 1), targets.expand(count, 2, 1), 2, progress=0.8)
    state.joined[:, 1] = 1.0
    before = {name: getattr(state, name).clone() for name in place}
    state, _ = method.update(model, state, batch, Rng.create(0, count))
    points = torch.linspace(-8.0, 8.0, 20_001, dtype=torch.float64)[None, :, None]

    def elbo(mean, rho, logit):
        share = torch.sigmoid(logit)
        std = torch.nn.functional.softplus(rho)[None, :, None]
        log_q = mixture_log_density(points, torch.stack((1.0 - share, share)).log()[None], mean[None, :, None], std)
        log_p = model.log_joint(points, {}, Batch(inputs[None], targets[None], 2))
        return (log_q.exp() * (log_p - log_q)).sum() * 8e-4

    leaves = [torch.tensor(place[n], dtype=torch.float64, requires_grad=True) for n in ("mean", "rho")]
    logit = torch.tensor(place["logit"][1], dtype=torch.float64, requires_grad=True)
    by_mean, by_rho, by_logit = torch.autograd.grad(elbo(*leaves, logit), (*leaves, logit))
    share = float(torch.sigmoid(logit.detach()))
    for name, slope in (("mean", by_mean), ("rho", by_rho)):
        moved = (getattr(state, name) - before[name])[:, 1, 0] / 1e-4 * 2.0  # gradients are divided by N
        error = 5.0 * float(moved.std()) / count**0.5
        assert abs(float(moved.mean()) - float(slope[1]) / share) < error, name
    # Adam's first moment holds a tenth of the gradient.
    climbs = state.moments[1]["logit.first"][:, 0] / 0.1 * -2.0
    assert abs(float(climbs.mean()) - float(by_logit)) < 5.0 * float(climbs.std()) / count**0.5
    assert torch.equal(state.mean[:, 0], before["mean"][:, 0])  # the old component rests


def test_phases():
    """Three components in 12 steps: each takes four, joins after two, and the first counts from the start."""
    problem, method = LinearRegression(), Boosting(3)
    rng = Rng.create(0, 2)
    state, counts = method.init(problem.model, rng), []
    for step in range(12):
        batch = problem.batch(2, progress=step / 12, epochs=12, epoch=step)
        state, _ = method.update(problem.model, state, batch, rng.at(step))
        counts.append(method.posterior(problem.model, state).components)
    assert counts == [1] * 6 + [2] * 4 + [3] * 2
    assert state.steps.tolist() == [[4.0] * 3] * 2
    found = method.posterior(problem.model, state)
    assert_close(found.weights.sum(1), torch.ones(2).double())
    assert len({float(m) for m in found.tensors()["mean"][0, :, 0]}) == 3


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"components": 0}, "components must be positive, got 0"),
        ({"weights": "fixed"}, 'weights is "learnt" or "equal", got \'fixed\''),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"warmup": 1.5}, r"warmup is a share of a phase in \[0, 1\], got 1.5"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, fault):
    with pytest.raises(ConfigurationError, match=fault) as caught:
        Boosting(**settings)
    assert "write: Boosting(components=3)" in str(caught.value)
    with pytest.raises(ConfigurationError, match="a tensor holds one number for each particle"):
        Boosting(learning_rate=torch.ones(2)).init(LinearRegression().model, Rng.create(0, 3))
