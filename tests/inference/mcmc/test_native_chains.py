"""Native trajectories against their definition, and the models that have none."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.inference import HMC
from bayesprop.inference.mcmc import native_chains
from bayesprop.inference.mcmc.leapfrog import trajectory
from bayesprop.inference.mcmc.target import Target
from bayesprop.inference.starting_point import starting_means
from bayesprop.kernels import chains
from bayesprop.model import Batch, Model
from bayesprop.rng import Rng

SCALES = priors.Normal(0.1, priors.HalfNormal(1.0))
MIXED = {
    "0.*": priors.Normal(0.2, 0.7),
    "2.*": priors.Normal(scale=priors.HalfCauchy(0.5, shared="weight")),
    "4.*": priors.Normal(),
}
CASES = {
    "classes": (3, likelihoods.Categorical(), SCALES),
    "two classes": (1, likelihoods.Bernoulli(), priors.Normal(scale=priors.HalfNormal(1.0, shared="network"))),
    "known noise": (2, likelihoods.Gaussian(0.3), priors.Normal(scale=priors.HalfNormal(1.0, shared="unit"))),
    "learnt noise": (1, likelihoods.Gaussian(), MIXED),
    "vectors": (1, likelihoods.Gaussian(priors.HalfCauchy(0.3)), {"*.weight": priors.Normal(scale=0.4), "*": SCALES}),
}


@pytest.fixture
def native_code() -> None:
    """These tests need a C++ compiler, and say so where there is none."""
    assert chains.library().handle is not None, chains.library().reason


def problem(name: str, activation: nn.Module, rows: int = 300, particles: int = 3) -> tuple[Model, Batch]:
    outputs, likelihood, prior = CASES[name]
    layers = (nn.Linear(4, 6), activation, nn.Linear(6, 5, bias=False), activation, nn.Linear(5, outputs))
    model = Model(nn.Sequential(*layers), likelihood=likelihood, prior=prior)
    inputs = Rng.create(1).normal(rows * 4, 1)[0, 0].reshape(rows, 4)  # type: ignore[arg-type]
    if outputs == 1 and isinstance(likelihood, likelihoods.Bernoulli):
        targets = (inputs[:, 0] > 0).long()
    elif isinstance(likelihood, likelihoods.Categorical):
        targets = torch.arange(rows) % 3
    else:
        targets = inputs[:, :outputs].sin()
    model.probe(inputs[:8], targets[:8])
    model.set_mode(True)
    return model, Batch(*(t.expand(particles, *t.shape) for t in (inputs, targets)), rows)


def start(model: Model, batch: Batch) -> tuple[Target, object, Tensor, Tensor]:
    target, particles = Target(model, batch), batch.targets.shape[0]
    point = target(starting_means(model, Rng.create(0, particles)), {})
    momentum = Rng.create(2, particles).normal(model.layout.size, 1)[:, 0]  # type: ignore[arg-type]
    scale = 0.5 + torch.arange(model.layout.size).expand(particles, -1) / model.layout.size
    return target, point, momentum, scale


@pytest.mark.parametrize("activation", [nn.Tanh(), nn.ReLU(), nn.Sigmoid()])
@pytest.mark.parametrize("name", CASES)
def test_trajectories_are_those_of_the_definition(native_code, name: str, activation: nn.Module):
    """Energies to 1e-3 nats of some hundred, which a Metropolis test does not see; places to float32."""
    model, batch = problem(name, activation)
    target, point, momentum, scale = start(model, batch)
    native = native_chains.native_target(model, batch)
    assert native is not None
    before = (point.theta.clone(), momentum.clone())
    for steps in (0, 1, 15):
        if steps == 0:
            found, _ = native.trajectory(point, momentum, scale, 0.005, 0)
            assert_close(found.gradient, point.gradient, rtol=1e-3, atol=2e-3)
            assert_close(found.value, point.value, rtol=1e-5, atol=1e-3)
            continue
        expected, last = trajectory(target, point, momentum, scale, 0.005, steps)
        found, end = native.trajectory(point, momentum, scale, 0.005, steps)
        assert_close(found.theta, expected.theta, rtol=1e-3, atol=2e-4)
        assert_close(end, last, rtol=1e-3, atol=5e-3)
        assert_close(found.value, expected.value, rtol=1e-4, atol=1e-2)
        assert_close(found.log_likelihood, expected.log_likelihood, rtol=1e-4, atol=1e-2)
    assert_close((point.theta, momentum), before, rtol=0.0, atol=0.0)


def test_rows_of_their_own_for_each_chain(native_code):
    model, batch = problem("classes", nn.Tanh())
    moved = batch.inputs + torch.arange(3.0)[:, None, None]
    own = Batch(moved, batch.targets.clone(), 300)
    _, point, momentum, scale = start(model, own)
    native = native_chains.native_target(model, own)
    assert native is not None
    assert len(native.inputs) == 3
    found, _ = native.trajectory(point, momentum, scale, 0.005, 0)
    assert_close(found.value, point.value, rtol=1e-5, atol=1e-3)


def test_a_trajectory_leads_back(native_code):
    """In float32: with the momentum turned round, to where it came from within 1e-4."""
    model, batch = problem("classes", nn.Tanh())
    _, point, momentum, scale = start(model, batch)
    native = native_chains.native_target(model, batch)
    assert native is not None
    there, last = native.trajectory(point, momentum, scale, 0.002, 20)
    back, _ = native.trajectory(there, -last, scale, 0.002, 20)
    assert_close(back.theta, point.theta, rtol=0.0, atol=1e-4)


def test_both_bodies_sample_the_same_posterior(native_code, monkeypatch):
    """The first trajectories of a run, before rounding grows: the same places to 1e-3."""
    model, batch = problem("classes", nn.Tanh(), rows=40)
    method = HMC(samples=2, warm_up=2, chains=3, step_size=0.005, trajectory=0.05, jitter=0.0)
    assert method.explain(model).startswith("native code")
    data = (batch.inputs[0], batch.targets[0])
    native = bp.fit(model, data, method, progress=False).tensors()["theta"]
    monkeypatch.setattr(chains.native.shutil, "which", lambda name: None)
    monkeypatch.setattr(chains, "library", chains.library.__wrapped__)
    assert method.explain(model).startswith("plain torch: no C++ compiler")
    plain = bp.fit(model, data, method, progress=False).tensors()["theta"]
    assert_close(native, plain, rtol=0.0, atol=1e-3)


def test_another_prior_is_seen(native_code):
    """A sweep gives one model the priors of its settings, one after the other."""
    model, batch = problem("known noise", nn.Tanh())
    first = native_chains.native_target(model, batch)
    model.bound_prior = Model(model.network, likelihood=model.likelihood, prior=priors.Normal(scale=0.1)).bound_prior
    second = native_chains.native_target(model, batch)
    assert first is not None
    assert second is not None
    assert float(first.joint.precision[0]) == 1.0
    assert float(second.joint.precision[0]) == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"network": nn.Linear(4, 2).double()}, "weights are torch.float64 on cpu"),
        ({"network": nn.Sequential(nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 2))}, "1 is a GELU"),
        ({"random": "weight"}, "bias is not random"),
        ({"likelihood": likelihoods.StudentT(4.0)}, "the likelihood is StudentT"),
        ({"prior": priors.Laplace()}, "a prior that is not normal"),
        ({"prior": priors.Horseshoe()}, "a prior that is not normal, or whose scale is a product"),
        (
            {"prior": priors.Normal(scale=priors.HalfNormal(1.0, centred=True))},
            "or whose scale is a product or centred",
        ),
        ({"prior": priors.Normal(scale=priors.Gamma(2.0, 1.0))}, "is no HalfNormal or HalfCauchy of a scale"),
        ({"prior": priors.Normal(scale=priors.HalfNormal(1.0, of="variance"))}, "is no HalfNormal or HalfCauchy"),
        ({"network": nn.Linear(200, 200)}, "native code is for up to 20,000 weights"),
    ],
)
def test_what_has_no_native_trajectories(options, reason: str):
    settings = {"network": nn.Linear(4, 2), "likelihood": likelihoods.Gaussian(0.5), **options}
    model = Model(settings.pop("network"), **settings)
    found = HMC().explain(model)
    assert found.startswith("plain torch: ")
    assert reason in found
