"""The log joint of all rows: the model's own, summed in float64."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.inference.mcmc.target import Target
from bayesprop.inference.oracle import joint_gradient
from bayesprop.model import Batch, Model
from bayesprop.rng import Rng, Stream


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return Rng.create(seed).normal(count, Stream.INITIAL, dtype=dtype)[0, 0].reshape(shape)


def make(*between: nn.Module, dtype: torch.dtype = torch.float64) -> tuple[Model, Batch]:
    network = nn.Sequential(nn.Linear(2, 3), *between, nn.Tanh(), nn.Linear(3, 1)).to(dtype)
    model = Model(network, likelihood=likelihoods.Gaussian(), prior=priors.Normal(scale=priors.HalfNormal(1.0)))
    inputs, targets = numbers(20, 2, dtype=dtype), numbers(20, 1, seed=1, dtype=dtype)
    model.probe(inputs, targets)
    model.set_mode(True)
    return model, Batch(inputs.expand(3, 20, 2), targets.expand(3, 20, 1), 20)


def test_it_is_the_log_joint_of_the_model_and_its_gradient():
    model, batch = make()
    theta = numbers(3, model.layout.size, seed=2)
    point = Target(model, batch)(theta, {})
    assert_close(point.value, model.log_joint(theta[:, None], {}, batch)[:, 0], rtol=1e-12, atol=1e-12)
    value, gradient = joint_gradient(model, theta, {}, batch)
    assert_close(point.log_likelihood, value, rtol=1e-12, atol=1e-12)
    assert_close(point.gradient, gradient, rtol=1e-10, atol=1e-12)


def test_float32_networks_are_summed_in_float64():
    """A million in the sum: float32 would round it to 1/16, and each of its differences with it."""
    model, batch = make(dtype=torch.float32)
    many = Batch(batch.inputs.repeat(1, 20, 1), 40.0 + batch.targets.repeat(1, 20, 1), 400)
    theta = numbers(3, model.layout.size, seed=2, dtype=torch.float32)
    theta[:, -1] = -1.0  # log of the noise's scale
    point = Target(model, many)(theta, {})
    assert point.value.dtype == torch.float64
    assert point.gradient.dtype == torch.float32
    outputs = model.outputs(theta[:, None], {}, many.inputs[0])[:, 0]
    scale = torch.exp(theta[:, -1:])
    rows = model.likelihood.log_prob(outputs[0], many.targets[0], {model.likelihood.latents[0].name: scale[0]})
    assert float(point.log_likelihood[0].abs()) > 1e6
    assert_close(point.log_likelihood[0], rows.double().sum(), rtol=1e-9, atol=0.0)


def test_dropout_is_left_out_and_the_mode_comes_back():
    model, batch = make(nn.Dropout(0.5))
    target, theta = Target(model, batch), numbers(3, model.layout.size, seed=2)
    assert model.draws_globally
    with target.steady():
        first, second = target(theta, {}), target(theta, {})
        target.check_steady(first, {})
    plain, _ = make()
    assert torch.equal(first.value, second.value)
    assert_close(first.value, Target(plain, batch)(theta, {}).value, rtol=1e-12, atol=1e-12)
    assert model.network.training


class Noisy(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


def test_a_network_that_is_never_the_same_is_refused():
    with torch.random.fork_rng():
        model, batch = make(Noisy())
        target, theta = Target(model, batch), numbers(3, model.layout.size, seed=2)
        with target.steady():
            point = target(theta, {})
            with pytest.raises(ConfigurationError, match="a function of the weights") as caught:
                target.check_steady(point, {})
    assert "write: SGHMC()" in str(caught.value)


def test_buffers_of_a_point_are_its_own():
    model, batch = make(nn.BatchNorm1d(3))
    theta, before = numbers(3, model.layout.size, seed=2), model.initial_buffers(3)
    held = {name: buffer.clone() for name, buffer in before.items()}
    point = Target(model, batch)(theta, before)
    assert_close(before, held, rtol=0.0, atol=0.0)
    assert point.buffers["1.num_batches_tracked"].tolist() == [1, 1, 1]
    other = Target(model, batch)(theta + 1.0, point.buffers)
    mixed = other.where(torch.tensor([True, False, True]), point)
    assert mixed.buffers["1.num_batches_tracked"].tolist() == [2, 1, 2]
    assert_close(mixed.theta[1], theta[1], rtol=0.0, atol=0.0)
    assert_close(mixed.value, torch.stack((other.value[0], point.value[1], other.value[2])), rtol=0.0, atol=0.0)
