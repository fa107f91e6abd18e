"""What point estimates share: one step written out, clipping, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.errors import ConfigurationError
from bayesprop.inference import MAP, MLE, SGD, Constant, DeepEnsemble
from bayesprop.inference.oracle import joint_gradient
from bayesprop.inference.point.descent import clip, state_bytes
from bayesprop.inference.schedules import Steps
from bayesprop.rng import Rng
from bayesprop.testing import LinearRegression

from ..conftest import normal


def test_one_step_with_momentum_clipping_and_schedule_is_the_formula():
    """theta <- theta - r f v with v = m v + c g, g = -(gradient of the log joint) / N, c = min(1, 1 / |g|)."""
    problem = LinearRegression()
    method = MAP(
        learning_rate=0.2, optimizer=SGD(0.7), clip_norm=1.0, schedule=Steps(at=(0.5,), factor=0.5), initial_mean=0.3
    )
    rng = Rng.create(0, 2)
    state = method.init(problem.model, rng)
    state.moments["mean.velocity"].fill_(0.1)
    theta = state.mean.clone()
    batch = problem.batch(2, slice(0, 10), progress=0.6)
    gradient = -joint_gradient(problem.model, theta, {}, batch)[1] / 24
    norm = gradient.norm(dim=1, keepdim=True)
    velocity = 0.7 * 0.1 + gradient * (1.0 / norm).clamp_max(1.0)
    assert float(norm.min()) > 1.0
    state, info = method.update(problem.model, state, batch, rng.at(7))
    assert_close(state.mean, theta - 0.2 * 0.5 * velocity, rtol=1e-12, atol=1e-13)
    assert_close(info.gradient_norm, norm[:, 0], rtol=1e-12, atol=0.0)


def test_each_particle_has_its_own_rate():
    problem = LinearRegression()
    rng = Rng(torch.tensor([1, 1]))
    method = MAP(learning_rate=torch.tensor([0.1, 0.2]).double(), optimizer="sgd", schedule=Constant())
    state = method.init(problem.model, rng)
    before = state.mean.clone()
    state, _ = method.update(problem.model, state, problem.batch(2), rng)
    moved = state.mean - before
    assert_close(moved[1], 2.0 * moved[0], rtol=1e-12, atol=0.0)


def test_clipping_shortens_and_never_lengthens():
    gradient = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    norms = clip(gradient, 1.0)
    assert norms is not None
    assert_close(norms, torch.tensor([5.0, 0.5, 0.0]))
    assert_close(gradient, torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))
    assert clip(gradient, None) is None


def test_memory_counts_rows_of_theta():
    problem = LinearRegression()
    assert state_bytes(problem.model, 3) == 3 * 4 * 8
    assert MAP(optimizer="adam").memory(problem.model, 2, 8) == 2 * 4 * 4 * 8
    assert MAP(optimizer="sgd").memory(problem.model, 1, 8) == 2 * 4 * 8


@pytest.mark.parametrize("settings", [{"learning_rate": 0.0}, {"clip_norm": -1.0}])
def test_settings_that_cannot_work_are_refused(settings):
    with pytest.raises(ConfigurationError, match=r"MAP cannot work like this: .* must be positive") as caught:
        MAP(**settings)
    assert "write: MAP(learning_rate=1e-3)" in str(caught.value)


def test_rates_for_another_number_of_particles_are_refused():
    problem = LinearRegression()
    with pytest.raises(ConfigurationError, match="one number for each particle") as caught:
        MAP(learning_rate=torch.ones(3)).init(problem.model, Rng.create(0, 2))
    assert "fit(..., starts=3)" in str(caught.value)


@pytest.mark.parametrize("base", [MAP, MLE])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.Dropout1d(0.5), nn.AlphaDropout(0.5)])
def test_dropout_regularises_each_particle_by_masks_of_its_own(base, optimizer, layer):
    """Particles that start at one place see the same rows, and part by their masks alone; predictions drop nothing."""
    inputs, targets = normal(12, 2, 3), normal(12, 1, seed=1)
    modules = [nn.Linear(3, 20), nn.Tanh(), layer, nn.Flatten(), nn.Linear(40, 1)]
    network = nn.Sequential(*modules).double()
    method = DeepEnsemble(base(0.05, optimizer=optimizer, initial_mean="network"), members=3)
    spreads = {}
    for name, module in (("with", network), ("without", nn.Sequential(*modules[:2], *modules[3:]))):
        model = bp.Model(module, likelihood=likelihoods.Gaussian(0.5))
        posterior = bp.fit(model, (inputs, targets), method, epochs=3, batch_size=None, progress=False)
        spreads[name] = float(posterior.mean().std(0).max())
        drawn = posterior.predict(inputs, 30).draws
        assert len(drawn) == 3  # one for each member: nothing is drawn
        for member in range(3):
            own = posterior.member(member).predict(inputs, 5).draws
            assert_close(own, own[:1].expand_as(own), rtol=0.0, atol=0.0)
    assert spreads["without"] < 1e-12
    assert spreads["with"] > 1e-3
