"""Deep ensembles: members are fits of their own; bootstrap and adversarial training by their formulas."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.errors import ConfigurationError, DataError
from bayesprop.inference import MAP, MLE, SGD, SGLD, SWAG, BayesByBackprop, Constant, DeepEnsemble
from bayesprop.inference.oracle import joint_gradient
from bayesprop.posteriors import Delta, DiagonalGaussian, LowRankGaussian, Samples
from bayesprop.rng import Rng, Stream
from bayesprop.testing import LinearRegression, MethodSuite

from ..conftest import normal, small_network

EXACT = MAP(learning_rate=0.1, optimizer=SGD(0.8), schedule=Constant())


class TestEnsembleOfMAP(MethodSuite):
    def make(self):
        return DeepEnsemble(MAP(learning_rate=0.02), members=2)

    def check_linear_regression(self, problem):
        """A convex problem has one optimum: all members are the mode, and the ensemble has no spread at all."""
        method = DeepEnsemble(EXACT, members=3)
        posterior = bp.fit(problem.model, problem.data, method, epochs=300, batch_size=None, progress=False)
        assert_close(posterior.mean(), problem.mean.expand(3, 4), rtol=0.0, atol=1e-8)


class TestEnsembleOfBayesByBackprop(TestEnsembleOfMAP):
    def make(self):
        return DeepEnsemble(BayesByBackprop(learning_rate=0.02), members=2, bootstrap=True, adversarial=0.1)


def fitted(method, problem: LinearRegression, epochs: int = 300, batch_size: int | None = None):
    return bp.fit(problem.model, problem.data, method, epochs=epochs, batch_size=batch_size, progress=False)


def test_members_are_the_fits_that_they_would_be_alone():
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian())
    data = (normal(20, 3), normal(20, 1, seed=1))
    whole = bp.fit(model, data, DeepEnsemble(MAP(), members=3), epochs=5, batch_size=8, progress=False)
    assert isinstance(whole, Delta)
    alone = bp.fit(model, data, MAP(), epochs=5, batch_size=8, progress=False)
    assert_close(whole.mean()[0], alone.mean()[0], rtol=1e-9, atol=1e-11)
    assert float((whole.mean()[0] - whole.mean()[1]).abs().max()) > 0.1
    inputs = normal(6, 3, seed=2)
    each = [whole.member(p).predict(inputs, 1).mean for p in range(3)]
    assert_close(whole.predict(inputs, 3).mean, torch.stack(each).mean(0), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("base", "kind"),
    [
        (MLE(), Delta),
        (BayesByBackprop(), DiagonalGaussian),
        (SWAG(rank=2), LowRankGaussian),
        (SGLD(samples=3), Samples),
    ],
)
def test_any_base_method(base, kind):
    problem = LinearRegression()
    posterior = fitted(DeepEnsemble(base, members=2, adversarial=0.01), problem, 12, 8)
    assert isinstance(posterior, kind)
    assert posterior.particles == 2


@pytest.mark.parametrize("batch_size", [None, 24])
def test_with_bootstrap_each_member_has_the_mode_of_its_own_rows(batch_size):
    """Ridge regression on the rows that the member drew, counted as often as it drew them."""
    problem = LinearRegression()
    posterior = fitted(DeepEnsemble(EXACT, members=3, bootstrap=True), problem, 400, batch_size)
    drawn = Rng.create(0, 3).rows(24, Stream.BOOTSTRAP)
    for member in range(3):
        design, targets = problem.design[drawn[member]], problem.targets[drawn[member], 0]
        precision = design.T @ design / 0.25 + torch.eye(4).double()
        expected = torch.linalg.solve(precision, design.T @ targets / 0.25)
        assert_close(posterior.mean()[member], expected, rtol=0.0, atol=1e-7)


def test_a_bootstrap_goes_through_its_rows_in_epochs():
    """Minibatches of one epoch are the member's own N rows, each as often as it was drawn."""
    problem = LinearRegression()
    data = bp.Data(torch.arange(24.0)[:, None].expand(24, 3).double(), problem.targets)
    rng = Rng.create(3, 2)
    source = bp.training.source.Source(data, problem.model, batch_size=8, epochs=2, rng=rng, bootstrap=True)
    for epoch in range(2):
        seen = torch.cat([batch.inputs[..., 0] for batch in source.epoch(epoch)], dim=1)
        assert source.drawn is not None
        assert_close(seen.sort(1).values, source.drawn.double().sort(1).values, rtol=0.0, atol=0.0)
        assert len(set(seen[0].tolist())) < 24


def test_the_adversarial_step_is_its_formula():
    """x' = x + e sign(grad_x loss); the gradient of (L(x) + L(x')) / 2, with the prior once."""
    problem = LinearRegression()
    method = DeepEnsemble(MAP(learning_rate=0.3, optimizer="sgd", schedule=Constant()), members=2, adversarial=0.2)
    rng = Rng.create(0, 2)
    state = method.init(problem.model, rng)
    theta, batch = state.mean.clone(), problem.batch(2, slice(0, 7))
    state, _ = method.update(problem.model, state, batch, rng)
    residual = (
        batch.targets - torch.einsum("pnf,pf->pn", batch.inputs, theta[:, :3])[..., None] - theta[:, 3, None, None]
    )
    # The loss is residual^2 / (2 s^2): its gradient by x is -residual w / s^2.
    moved = batch.inputs + 0.2 * (-residual * theta[:, None, :3]).sign()
    found = torch.zeros_like(theta)
    for inputs in (batch.inputs, moved):
        found += 0.5 * joint_gradient(problem.model, theta, {}, bp.model.Batch(inputs, batch.targets, 24))[1]
    assert_close(state.mean, theta + 0.3 * found / 24, rtol=1e-11, atol=1e-12)


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_a_base_that_is_a_population_is_refused():
    with pytest.raises(ConfigurationError, match="members of an ensemble are single fits") as caught:
        DeepEnsemble(SWAG(members=3))
    assert "received: SWAG with a population of 3" in str(caught.value)
    assert "DeepEnsemble(SWAG(), members=3)" in str(caught.value)


@pytest.mark.parametrize("base", [MAP, "adam"])
def test_what_is_no_method_is_refused(base):
    with pytest.raises(ConfigurationError, match="DeepEnsemble needs a base method") as caught:
        DeepEnsemble(base)
    assert "write: DeepEnsemble(MAP(), members=5)" in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "fault"),
    [({"members": 0}, "members must be at least 1"), ({"adversarial": -0.1}, "adversarial must not be negative")],
)
def test_settings_that_cannot_work_are_refused(settings, fault):
    with pytest.raises(ConfigurationError, match=fault):
        DeepEnsemble(MAP(), **settings)


def test_adversaries_of_whole_numbers_are_refused():
    network = nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(6, 1))
    model = bp.Model(network, likelihood=likelihoods.Gaussian(0.5))
    data = (torch.arange(18).reshape(6, 3) % 5, torch.zeros(6, 1))
    with pytest.raises(ConfigurationError, match="adversarial training moves inputs along a gradient") as caught:
        bp.fit(model, data, DeepEnsemble(MAP(), adversarial=0.1), epochs=1, progress=False)
    assert "received: inputs of dtype torch.int64" in str(caught.value)


def test_a_bootstrap_of_a_stream_is_refused():
    problem = LinearRegression()
    loader = DataLoader(TensorDataset(*problem.data), batch_size=8)
    with pytest.raises(DataError, match="a bootstrap draws rows with replacement") as caught:
        bp.fit(problem.model, loader, DeepEnsemble(MAP(), bootstrap=True), epochs=1, progress=False)
    assert "DeepEnsemble(MAP(), bootstrap=False)" in str(caught.value)
