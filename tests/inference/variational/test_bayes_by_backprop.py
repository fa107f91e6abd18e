"""Where q starts, how a step moves it, and what must not matter: the company, the global generator, a low precision."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.data import Data
from bayesprop.inference.method import state_tensors
from bayesprop.inference.variational import fused
from bayesprop.inference.variational.gradients import elbo_gradients, scales
from bayesprop.posteriors import DiagonalGaussian
from bayesprop.random_weights import Flipout, LocalReparameterization, SharedWeights
from bayesprop.rng import Rng
from bayesprop.training.source import Source

from ..conftest import Problem, method_with, normal, same_seeds, small_network

ESTIMATORS = [SharedWeights(1), SharedWeights(2, antithetic=True), LocalReparameterization(2), Flipout(1)]
LEARNT = likelihoods.Gaussian(scale=priors.HalfNormal(0.5))


# -- where q starts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-8, 1e-4, 0.02, 0.6931, 1.0, 30.0, 200.0])
def test_standard_deviations_start_where_initial_scale_says(scale, dtype):
    problem = Problem(small_network(dtype=dtype), normal(6, 3), likelihood=LEARNT)
    method = method_with(initial_scale=scale)
    state = method.init(problem.model, Rng.create(0, 2))
    assert state.rho.shape == (2, 22)
    assert state.rho.dtype == dtype
    std = method.posterior(problem.model, state).std()
    # One rounding of rho: relative to std it is |rho| times that of the number.
    tolerance = 32.0 * torch.finfo(dtype).eps
    torch.testing.assert_close(std, torch.full_like(std, scale), rtol=tolerance, atol=0.0)


def test_rho_starts_where_it_is_told():
    problem = Problem(small_network(), normal(6, 3))
    state = method_with(initial_rho=-4.5).init(problem.model, Rng.create(0, 2))
    assert torch.equal(state.rho, torch.full((2, 21), -4.5, dtype=torch.float64))


@pytest.mark.statistical
def test_rho_starts_uniformly_between_two_numbers():
    """2000 particles of 21 columns: mean and variance within 5 standard errors, once in 870 000 seeds; and like the
    means, each particle's own."""
    problem, rng = Problem(small_network(), normal(6, 3)), Rng.create(4, 2000)
    method = method_with(initial_rho=(-5.0, -4.0), initial_mean=1.0)
    state = method.init(problem.model, rng)
    count = state.rho.numel()
    assert -5.0 <= float(state.rho.min()) < -4.999
    assert -4.001 < float(state.rho.max()) <= -4.0
    assert float(state.rho.mean()) == pytest.approx(-4.5, abs=5.0 / math.sqrt(12.0 * count))
    assert float(state.rho.var()) == pytest.approx(1.0 / 12.0, rel=5.0 * math.sqrt(0.8 / count))
    # No noise in common with the means: their correlation is 0 within 5 standard errors.
    products = (state.rho + 4.5) * state.mean * math.sqrt(12.0)
    assert abs(float(products.mean())) < 5.0 / math.sqrt(count)
    alone = method.init(problem.model, Rng(rng.seeds[7:8]))
    assert torch.equal(alone.rho[0], state.rho[7])


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
@pytest.mark.parametrize("prior", [priors.Normal(), priors.Laplace(), priors.ScaleMixture(), priors.Horseshoe()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rho", [-100.0, -88.0, 100.0])
def test_a_rho_far_out_neither_overflows_nor_gets_lost(rho, dtype, prior, estimator):
    """Standard deviations of e^-100 and of 100; the gradient is finite and leads back."""
    problem = Problem(small_network(dtype=dtype), normal(6, 3), prior=prior, likelihood=likelihoods.Gaussian(scale=0.7))
    method, state = method_with(estimator=estimator), problem.state(2)
    state.rho[1] = rho
    state.mean[1, problem.model.layout.random :] = 0.0  # scales of e^100 are no fault of rho's
    std = method.posterior(problem.model, state).std()[1]
    if rho > 0.0:
        assert torch.equal(std, torch.full_like(std, 100.0))
        return
    assert 0.0 < float(std.min()) <= float(std.max()) < 1e-34
    found = elbo_gradients(method, problem.model, state, problem.batch(2), same_seeds(2), 1.0).by_name
    assert bool(torch.isfinite(found["mean"]).all())
    # Only the entropy is left: d (-log std) / d rho = -slope / std = -1, of the loss divided by N = 6.
    expected = torch.full_like(found["rho"][1], -1.0 / 6.0)
    torch.testing.assert_close(found["rho"][1], expected, rtol=1e-5, atol=0.0)


def test_a_large_rho_has_the_gradient_of_its_standard_deviation():
    problem = Problem(nn.Linear(3, 1).double(), normal(6, 3), prior=priors.Normal(0.0, 2.0))
    state = problem.state()
    state.rho[:] = 100.0
    found = elbo_gradients(method_with(), problem.model, state, problem.batch(), same_seeds(1), 1.0).by_name
    data = elbo_gradients(method_with(), problem.model, state, problem.batch(), same_seeds(1), 0.0).by_name
    expected = torch.full((1, 4), (100.0 / 4.0 - 1.0 / 100.0) / 6.0, dtype=torch.float64)
    torch.testing.assert_close(found["rho"] - data["rho"], expected, rtol=1e-9, atol=0.0)


def test_scales_are_softplus_and_its_slope():
    rho = torch.linspace(-80.0, 60.0, 200, dtype=torch.float64, requires_grad=True)
    std, slope = scales(rho)
    # torch takes softplus(x) = x from 20 on, where it is short of e^-20 / 20.
    torch.testing.assert_close(std, torch.log1p(torch.exp(rho)), rtol=1.1e-10, atol=0.0)
    (expected,) = torch.autograd.grad(softplus(rho).sum(), rho)
    torch.testing.assert_close(slope, expected, rtol=1e-8, atol=0.0)
    assert [float(part) for part in scales(torch.tensor(-200.0))] == [float(p) for p in scales(torch.tensor(-80.0))]


# -- a step -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_a_step_of_gradient_descent_is_rate_times_gradient(estimator):
    problem = Problem(small_network(), normal(6, 3), likelihood=LEARNT)
    rates = torch.tensor([0.1, 0.02], dtype=torch.float64)
    method = method_with(learning_rate=rates, scale_learning_rate=0.3, estimator=estimator)
    state, before, rng = problem.state(2), problem.state(2), Rng.create(3, 2)
    found = elbo_gradients(method, problem.model, before, problem.batch(2), rng, 1.0)
    after, info = method.update(problem.model, state, problem.batch(2), rng)
    assert after.mean is state.mean  # in place: a step allocates no second state
    torch.testing.assert_close(state.mean, before.mean - rates[:, None] * found.by_name["mean"], rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(state.rho, before.rho - 0.3 * found.by_name["rho"], rtol=1e-13, atol=1e-14)
    assert torch.equal(info.log_likelihood, found.log_likelihood)


def test_the_rate_of_rho_is_that_of_the_mean_unless_it_is_given():
    problem = Problem(small_network(), normal(6, 3))
    states = [problem.state(), problem.state()]
    for state, rate in zip(states, (None, 0.1), strict=True):
        method_with(learning_rate=0.1, scale_learning_rate=rate).update(
            problem.model, state, problem.batch(), same_seeds(1)
        )
    assert torch.equal(states[0].rho, states[1].rho)
    assert not torch.equal(states[0].rho, problem.state().rho)


def test_gradients_are_clipped_particle_by_particle():
    """The norm over mean and rho together; a particle that is short enough is left alone."""
    problem = Problem(small_network(), normal(6, 3))
    free, state, rng = method_with(learning_rate=1.0), problem.state(3), Rng.create(3, 3)
    found = elbo_gradients(free, problem.model, state, problem.batch(3), rng, 1.0).by_name
    norms = torch.cat((found["mean"], found["rho"]), dim=1).norm(dim=1)
    limit = float(norms.sort().values[:2].mean())
    assert int((norms > limit).sum()) == 2
    before = problem.state(3)
    _, info = method_with(learning_rate=1.0, clip_norm=limit).update(problem.model, state, problem.batch(3), rng)
    assert info.gradient_norm is not None
    torch.testing.assert_close(info.gradient_norm, norms, rtol=1e-12, atol=0.0)
    factor = (limit / norms).clamp_max(1.0)[:, None]
    torch.testing.assert_close(before.mean - state.mean, factor * found["mean"], rtol=1e-9, atol=1e-14)
    torch.testing.assert_close(before.rho - state.rho, factor * found["rho"], rtol=1e-9, atol=1e-14)


def test_a_gradient_of_zero_is_not_divided_by_its_norm():
    by_name = {"mean": torch.zeros(2, 3), "rho": torch.zeros(2, 3)}
    by_name["mean"][1, 0] = 4.0
    norm = method_with(clip_norm=1.0)._clip(by_name)
    assert norm is not None
    assert norm.tolist() == [0.0, 4.0]
    assert by_name["mean"].tolist() == [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]


def test_a_posterior_is_a_copy_that_later_steps_do_not_move():
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm = nn.Linear(3, 2), nn.BatchNorm1d(2)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(self.linear(x))

    problem = Problem(Counting().double(), normal(6, 3))
    method, state = method_with(), problem.state(2)
    posterior = method.posterior(problem.model, state)
    assert isinstance(posterior, DiagonalGaussian)
    kept = {name: tensor.clone() for name, tensor in {**posterior.tensors(), **posterior.buffers}.items()}
    torch.testing.assert_close(kept["std"], softplus(state.rho), rtol=1e-13, atol=0.0)
    state, _ = method.update(problem.model, state, problem.batch(2), Rng.create(0, 2))
    assert not torch.equal(state.buffers["norm.running_mean"], kept["norm.running_mean"])
    for name, tensor in {**posterior.tensors(), **posterior.buffers}.items():
        assert torch.equal(tensor, kept[name])


# -- what must not matter ---------------------------------------------------------------------------------------------


def _train(model: bp.Model, data: Data, method, rng: Rng, epochs: int = 3):
    """What `fit` does with a population: batches in the order of each particle's own seed."""
    source = Source(data, model, batch_size=5, epochs=epochs, rng=rng)
    source.probe()
    state, step = method.init(model, rng), 0
    for epoch in range(epochs):
        for batch in source.epoch(epoch):
            model.set_mode(True)
            state, _ = method.update(model, state, batch, rng.at(step))
            step += 1
    assert step == 4 * epochs
    return method.posterior(model, state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("optimizer", ["adam", "momentum"])
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_a_member_of_a_population_is_what_it_is_alone(estimator, optimizer, dtype):
    """Twelve steps of three particles; in float32 with Adam and one sample they are native ones."""
    data = Data(normal(20, 3).to(dtype), normal(20, seed=1).to(dtype))
    model = bp.Model(small_network(dtype=dtype), likelihood=LEARNT, prior=priors.Normal(0.0, 0.5), random="0.*")
    method = method_with(learning_rate=0.02, optimizer=optimizer, estimator=estimator)
    native = dtype == torch.float32 and optimizer == "adam" and estimator == SharedWeights(1)
    assert fused.explain(method, model).native is native
    everyone = Rng.create(9, 3)
    together = _train(model, data, method, everyone)
    # Rounding differs between one matrix product and a batch of them; Adam divides small gradients by themselves.
    rtol, atol = (1e-9, 1e-11) if dtype == torch.float64 else (1e-4, 1e-5)
    for particle in range(3):
        alone = _train(model, data, method, Rng(everyone.seeds[particle : particle + 1]))
        torch.testing.assert_close(alone.mean()[0], together.mean()[particle], rtol=rtol, atol=atol)
        torch.testing.assert_close(alone.std()[0], together.std()[particle], rtol=rtol, atol=atol)
    assert not torch.allclose(together.mean()[0], together.mean()[1], atol=0.01)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_global_generator_is_touched(estimator, dtype):
    problem = Problem(small_network(dtype=dtype), normal(6, 3), likelihood=LEARNT)
    method = method_with(optimizer="adam", estimator=estimator, initial_rho=(-3.0, -2.0))

    def run() -> list[Tensor]:
        rng = Rng.create(1, 2)
        state = method.init(problem.model, rng)
        for step in range(3):
            state, _ = method.update(problem.model, state, problem.batch(2), rng.at(step))
        return [tensor.clone() for tensor in method.posterior(problem.model, state).tensors().values()]

    states = torch.get_rng_state(), random.getstate(), str(np.random.get_state())  # noqa: NPY002
    first = run()
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), str(np.random.get_state())) == states[1:]  # noqa: NPY002
    with bp.rng.quarantine(77):  # and what it is left at does not matter
        second = run()
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_autocast_lowers_the_network_and_not_the_posterior(estimator):
    """bfloat16 keeps 8 bits: gradients are those of float32 within a few times 2^-8 of their size; q stays float32."""
    problem = Problem(small_network(dtype=torch.float32), normal(16, 3), likelihood=LEARNT)
    method, state = method_with(optimizer="adam", estimator=estimator), problem.state(2)
    exact = elbo_gradients(method, problem.model, state, problem.batch(2), same_seeds(2), 1.0)
    with torch.autocast("cpu", torch.bfloat16):
        low = elbo_gradients(method, problem.model, state, problem.batch(2), same_seeds(2), 1.0)
    for name, gradient in exact.by_name.items():
        assert low.by_name[name].dtype == torch.float32
        assert not torch.equal(low.by_name[name], gradient)
        assert float((low.by_name[name] - gradient).norm() / gradient.norm()) < 0.03
    state = method.init(problem.model, Rng.create(0, 2))
    with torch.autocast("cpu", torch.bfloat16):
        for step in range(3):
            state, info = method.update(problem.model, state, problem.batch(2), Rng.create(0, 2).at(step))
    assert {tensor.dtype for tensor in state_tensors(state).values()} == {torch.float32}
    assert info.log_likelihood.dtype == torch.float32
    assert bool(torch.isfinite(info.log_likelihood).all())


def test_a_fit_under_autocast_is_near_the_fit_without():
    data = normal(40, 3).float(), normal(40, seed=1).float()
    found = []
    for precision in (None, torch.bfloat16):
        model = bp.Model(small_network(dtype=torch.float32), likelihood=likelihoods.Gaussian(scale=0.5))
        method = method_with(learning_rate=0.01, optimizer="adam")
        options = {"epochs": 5, "batch_size": 10, "seed": 0, "progress": False, "autocast": precision}
        found.append(bp.fit(model, data, method, **options))
    plain, low = found
    assert low.mean().dtype == low.std().dtype == torch.float32
    assert not torch.equal(low.mean(), plain.mean())
    # 20 steps of Adam move by at most 0.2; a few signs of near-zero gradients may differ.
    assert float((low.mean() - plain.mean()).abs().mean()) < 0.005
    assert float((low.std() - plain.std()).abs().mean()) < 0.005
