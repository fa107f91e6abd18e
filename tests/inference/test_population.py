"""A population's method takes, for each particle, the steps that the particle's own method takes alone."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from bayesprop import likelihoods, priors
from bayesprop.assembly import bind_prior
from bayesprop.errors import ConfigurationError
from bayesprop.inference import Adam, Constant, Cosine
from bayesprop.inference.method import state_tensors
from bayesprop.inference.population import Several, fingerprint, structure, together
from bayesprop.inference.variational import fused
from bayesprop.inference.variational.kl_weights import Geometric, Uniform, Warmup
from bayesprop.priors.population import stack
from bayesprop.random_weights import LocalReparameterization, SharedWeights
from bayesprop.rng import Rng

from .conftest import Problem, method_with, normal, small_network

STEPS = 12
# What differs between three particles, each a population of its own.
DIFFERENT = {
    "learning_rate": (0.01, 0.02, 0.003),
    "scale_learning_rate": (0.01, 0.02, 0.003),
    "temperature": (1.0, 0.1, 0.0),
    "initial_scale": (0.1, 0.02, 0.3),
    "relative_initial_scale": (0.1, 0.02, 0.3),
    "initial_rho": (-3.0, -2.0, -5.0),
    "clip_norm": (0.1, 1.0, 0.01),
    "schedule": (Constant(), Cosine(), Cosine(0.5)),
    "kl_weights": ("uniform", "geometric", "warmup"),
}


def run(problem: Problem, model, method, seeds: list[int]) -> dict[str, torch.Tensor]:
    rng = Rng(torch.tensor(seeds))
    state = method.init(model, rng)
    for step in range(STEPS):
        place = {"index": step % 3, "count": 3, "epoch": step // 3, "progress": step / STEPS}
        batch = problem.batch(len(seeds), slice(4 * (step % 3), 4 * (step % 3) + 4), **place)
        state, info = method.update(model, state, batch, rng.at(step))
    return {**state_tensors(state), "value": info.log_likelihood}


def check(problem: Problem, methods, choices, tolerance: float) -> None:
    """All at once against one after the other, with seeds of their own."""
    seeds = [3, 8, 5]
    models = []
    for prior in choices:
        model = copy.copy(problem.model)
        model.bound_prior = bind_prior(model.network, prior, model.layout.of_kind("random"))
        models.append(model)
    whole = copy.copy(problem.model)
    whole.bound_prior = stack([model.bound_prior for model in models])
    found = run(problem, whole, together(methods), seeds)
    for p, (model, method) in enumerate(zip(models, methods, strict=True)):
        alone = run(problem, model, method, [seeds[p]])
        for name, tensor in alone.items():
            assert_close(found[name][p], tensor[0], rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", DIFFERENT)
def test_every_setting_of_a_particle(name, dtype):
    """In float32 a stack of dense layers goes the native way; rounding is all that differs."""
    problem = Problem(small_network(dtype=dtype), normal(12, 3), prior=priors.Normal(scale=0.5))
    methods = [method_with(**{"optimizer": "adam", "learning_rate": 0.01, name: v}) for v in DIFFERENT[name]]
    assert name in methods[0].per_particle
    check(problem, methods, [priors.Normal(scale=0.5)] * 3, 1e-9 if dtype == torch.float64 else 1e-4)


def test_every_setting_that_may_differ_was_looked_at():
    assert method_with(optimizer="adam").per_particle == DIFFERENT.keys()


PRIORS = {
    "normal": [priors.Normal(0.1 * i, 0.3 + i) for i in range(3)],
    "mixture": [priors.ScaleMixture(0.25 * (i + 1), math.exp(-i), math.exp(-3.0 - i)) for i in range(3)],
    "student": [priors.StudentT(2.0 + i, 0.0, 0.4) for i in range(3)],
    "hierarchical": [priors.Normal(0.1 * i, priors.HalfCauchy(0.3 + i)) for i in range(3)],
    "by name": [{"*.bias": priors.Normal(), "*": priors.Laplace(scale=0.1 + i)} for i in range(3)],
}


@pytest.mark.parametrize("estimator", [SharedWeights(), SharedWeights(2, antithetic=True), LocalReparameterization()])
@pytest.mark.parametrize("prior", PRIORS)
def test_every_prior_of_a_particle(prior, estimator):
    learnt = likelihoods.Gaussian(scale=priors.HalfNormal(0.5))
    problem = Problem(small_network(), normal(12, 3), prior=PRIORS[prior][0], likelihood=learnt)
    methods = [method_with(learning_rate=r, optimizer="adam", estimator=estimator) for r in (0.01, 0.02, 0.01)]
    check(problem, methods, PRIORS[prior], 1e-9)


@pytest.mark.parametrize("prior", ["normal", "mixture", "student"])
def test_the_native_step_knows_each_prior(prior):
    """Ten steps or so: a mixture's precision jumps, which makes longer trajectories differ by rounding alone."""
    problem = Problem(small_network(dtype=torch.float32), normal(12, 3), prior=PRIORS[prior][0])
    method = method_with(learning_rate=0.01, optimizer="adam", kl="monte_carlo")
    whole = copy.copy(problem.model)
    bounds = [bind_prior(whole.network, one, whole.layout.of_kind("random")) for one in PRIORS[prior]]
    whole.bound_prior = stack(bounds)
    here, alone = (fused.explain(method, model) for model in (whole, problem.model))
    assert (here.native, here.reason) == (alone.native, alone.reason) == (True, here.reason)
    check(problem, [method] * 3, PRIORS[prior], 1e-4)


def test_a_convolutional_network():
    network = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(27, 2)).double()
    labels = torch.arange(12) % 2
    problem = Problem(network, normal(12, 1, 5, 5), labels, likelihood=likelihoods.Categorical())
    methods = [method_with(learning_rate=r, temperature=t) for r, t in ((0.1, 1.0), (0.02, 0.1), (0.3, 0.5))]
    check(problem, methods, PRIORS["normal"], 1e-9)


def test_several_functions_of_the_place():
    several = Several((Uniform(), Geometric(), Warmup(0.5)), torch.tensor([2, 0, 1, 0]))
    expected = [0.5, 1.0, Geometric()(1, 4, 0.25), 1.0]
    assert_close(several(1, 4, 0.25), torch.tensor(expected, dtype=torch.float64))


def test_equal_settings_stay_one_setting():
    one = method_with(optimizer="adam", kl_weights="warmup")
    assert together([one]) is one
    both = together([one, method_with(optimizer=Adam(), kl_weights=Warmup(), learning_rate=0.3)])
    assert both.kl_weights == Warmup()
    assert both.temperature == 1.0
    assert_close(both.learning_rate, torch.tensor([0.1, 0.3], dtype=torch.float64))


@pytest.mark.parametrize(
    "change",
    [
        {"estimator": SharedWeights(2)},
        {"optimizer": "adamw"},
        {"optimizer": Adam(beta1=0.8)},
        {"kl": "monte_carlo"},
        {"scale_learning_rate": 0.1},  # a number where the other has none
        {"initial_rho": (-3.0, -2.0)},
        {"clip_norm": 1.0},
    ],
)
def test_another_structure_is_refused(change):
    methods = [method_with(optimizer="adam"), method_with(**{"optimizer": "adam", **change})]
    assert structure(methods[0]) != structure(methods[1])
    with pytest.raises(ConfigurationError, match="differ in what each particle may have for itself") as caught:
        together(methods)
    assert "received: 2 structures among 2 methods" in str(caught.value)
    assert "learning_rate" in str(caught.value)


def test_a_class_of_torch_takes_one_rate():
    methods = [method_with(optimizer=torch.optim.RMSprop, learning_rate=rate) for rate in (0.1, 0.2)]
    assert structure(methods[0]) != structure(methods[1])
    others = [method_with(optimizer=torch.optim.RMSprop, temperature=t) for t in (0.1, 0.2)]
    assert structure(others[0]) == structure(others[1])


def test_fingerprints_look_at_values_and_at_functions_themselves():
    def one(x: float) -> float:
        return x

    def other(x: float) -> float:
        return x

    assert fingerprint(torch.tensor([1.0, 2.0])) == fingerprint(torch.tensor([1.0, 2.0]))
    assert fingerprint(torch.tensor([1.0, 2.0])) != fingerprint(torch.tensor([1.0, 3.0]))
    assert fingerprint(priors.Normal(scale=torch.ones(2))) == fingerprint(priors.Normal(scale=torch.ones(2)))
    assert fingerprint({"a": priors.Normal()}) != fingerprint({"b": priors.Normal()})
    assert fingerprint(one) == fingerprint(one) != fingerprint(other)


def test_as_many_numbers_as_particles():
    problem = Problem(small_network(), normal(12, 3))
    method = method_with(initial_scale=torch.tensor([0.1, 0.2]))
    with pytest.raises(ConfigurationError, match="initial_scale: a tensor holds one number for each particle"):
        method.init(problem.model, Rng.create(0, 3))
