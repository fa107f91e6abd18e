"""Predictions through the tangent: against Jacobians, against closed forms, and where they are exact."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.errors import CapabilityError
from bayesprop.posteriors import DiagonalGaussian, FullGaussian
from bayesprop.posteriors.linearised import along, tangent


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.head = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.cells(x)[0][:, -1])


class Looking(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.layer(x).mean(1))


NETWORKS = {
    "dense": (lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), (6, 3)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.Flatten(), nn.Linear(9, 2)),
        (6, 2, 5),
    ),
    "lstm": (Recurrent, (6, 5, 3)),
    "attention": (Looking, (6, 3, 4)),
}


def made(name, particles=2, likelihood=None):
    make, shape = NETWORKS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = make().double()
    model = bp.Model(network, likelihood=likelihood or likelihoods.Categorical())
    inputs = numbers(*shape)
    model.probe(inputs, None)
    model.set_mode(False)
    mean = 0.5 * numbers(particles, model.layout.size, seed=1)
    std = 0.1 + 0.2 * numbers(particles, model.layout.latent, seed=2).abs()
    return DiagonalGaussian(model, mean, std, model.initial_buffers(particles)), inputs


@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_derivatives_forwards_and_backwards_agree(name):
    """A draw is f + J (theta - theta*), whichever way, for layers of every kind; the tangent touches the network."""
    found, inputs = made(name)
    theta = found.draw(found.rng(0), 3)
    arguments = (found.model, found._mean, theta, found.buffers, inputs)
    forwards = along(*arguments)
    assert forwards.shape == (2, 3, 6, 2)
    assert_close(forwards, tangent(*arguments), rtol=1e-9, atol=1e-11)
    near = found._mean[:, None] + 1e-5 * (theta - found._mean[:, None])
    network = found.model.outputs(near, found.buffers, inputs)
    assert_close(along(found.model, found._mean, near, found.buffers, inputs), network, rtol=0.0, atol=1e-7)


def test_what_it_is_remembers_through_files(tmp_path):
    found, inputs = made("dense")
    linear = found.linearised()
    assert not found.linear
    assert linear.linear
    assert not linear.sampled().linear
    assert_close(linear.sampled().predict(inputs, 9).mean, found.predict(inputs, 9).mean, rtol=0.0, atol=0.0)
    assert not torch.allclose(linear.predict(inputs, 9).mean, found.predict(inputs, 9).mean)
    linear.save(tmp_path / "one.bayes")
    again = bp.load(tmp_path / "one.bayes", network=found.model.network)
    assert again.linear
    assert again.member(1).linear
    assert_close(again.predict(inputs, 9).mean, linear.predict(inputs, 9).mean, rtol=0.0, atol=0.0)


def test_a_linear_network_is_its_own_tangent():
    model = bp.Model(nn.Linear(3, 1).double(), likelihood=likelihoods.Gaussian(0.5))
    factor = torch.linalg.cholesky(torch.eye(4).double() + 0.5)[None]
    found, inputs = FullGaussian(model, numbers(1, 4), factor, {}), numbers(5, 3)
    assert_close(found.linearised().predict(inputs, 7).draws, found.predict(inputs, 7).draws, rtol=1e-9, atol=1e-12)
    mean, covariance = found.function_moments(inputs)
    design = torch.cat((inputs, torch.ones(5, 1).double()), dim=1)
    assert_close(covariance[0, :, 0, 0], ((design @ factor[0]) ** 2).sum(1))
    assert_close(mean[0, :, 0], design @ found._mean[0])


@pytest.mark.statistical
def test_moments_are_those_of_the_draws():
    """Of 4000 linearised draws; 5 standard errors."""
    found, inputs = made("dense", particles=1)
    mean, covariance = found.function_moments(inputs)
    drawn = torch.cat([outputs for _, outputs, _ in found.linearised().outputs(inputs, 4000)()], dim=1)
    variance = covariance.diagonal(dim1=2, dim2=3)[0]
    assert bool(((drawn.mean(0) - mean[0]).abs() < 5.0 * (variance / 4000).sqrt()).all())
    assert bool(((drawn.var(0) / variance - 1.0).abs() < 5.0 * math.sqrt(2.0 / 4000)).all())


def test_probit():
    """MacKay's formula, near the average over draws of the tangent where the spread is moderate."""
    found, inputs = made("dense")
    mean, covariance = found.function_moments(inputs)
    shrunk = mean / torch.sqrt(1.0 + math.pi / 8.0 * covariance.diagonal(dim1=2, dim2=3))
    assert_close(found.probit(inputs), shrunk.softmax(-1).mean(0))
    binary, inputs = made("dense", likelihood=likelihoods.Bernoulli())
    model = bp.Model(nn.Linear(3, 1).double(), likelihood=likelihoods.Bernoulli())
    binary = DiagonalGaussian(model, numbers(1, 4), 0.7 * torch.ones(1, 4).double(), {})
    assert_close(binary.probit(inputs), binary.linearised().predict(inputs, 20_000).mean, rtol=0.0, atol=0.02)
    regression, _ = made("dense", likelihood=likelihoods.Gaussian(0.1))
    with pytest.raises(CapabilityError, match="probit is an approximation for classes") as caught:
        regression.probit(inputs)
    assert "function_moments" in str(caught.value)
