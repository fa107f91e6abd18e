"""Moments of a stack of layers: integrals, draws of whole networks, and what is exact for one hidden layer."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from bayesprop.inference.variational.moments import activation_moments, output_moments
from bayesprop.stacks import dense_parts

from ..conftest import normal

FUNCTIONS = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}
MEANS = torch.tensor([-9.0, -2.0, -0.3, 0.0, 0.4, 1.5, 9.0], dtype=torch.float64)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("std", [0.01, 0.5, 2.0])
def test_activations_against_integrals(name, std):
    """A trapezoid over 10 deviations in 40,001 places, right to 1e-9 (2e-4 for the step that is the slope of relu);
    quadrature nodes are to 3e-3 at a deviation of 2."""
    places = torch.linspace(-10.0, 10.0, 40_001, dtype=torch.float64)
    density = torch.exp(-0.5 * places.square()) * (places[1] - places[0]) / math.sqrt(2.0 * math.pi)
    here = (MEANS[:, None] + std * places).requires_grad_(True)
    value = FUNCTIONS[name](here)
    (slopes,) = torch.autograd.grad(value.sum(), here)
    value = value.detach()
    centre = value @ density
    expected = centre, (value - centre[:, None]).square() @ density
    mean, variance, slope = activation_moments(name, MEANS, torch.full_like(MEANS, std**2))
    assert_close((mean, variance), expected, rtol=1e-5, atol=3e-3 if name != "relu" and std > 1.0 else 1e-8)
    assert_close(slope, slopes @ density, rtol=1e-5, atol=2e-4 if name == "relu" else 3e-3 if std > 1.0 else 1e-8)
    assert bool((variance >= slope.square() * std**2 - 1e-9).all())  # the bound that keeps a covariance one
    assert mean.shape == (7,)


def test_a_unit_that_is_certain_has_a_gradient():
    mean = torch.tensor([0.5, -0.5], requires_grad=True)
    variance = torch.zeros(2, requires_grad=True)
    found = activation_moments("relu", mean, variance)
    assert_close(found[0], torch.tensor([0.5, 0.0]))
    gradients = torch.autograd.grad(found[0].sum() + found[1].sum(), (mean, variance))
    assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients)


def stack(*widths, activation=nn.ReLU):
    layers: list[nn.Module] = []
    for number, (inputs, outputs) in enumerate(zip(widths[:-1], widths[1:], strict=True)):
        layers += [nn.Linear(inputs, outputs, bias=number != 1), activation()]
    network = nn.Sequential(*layers[:-1]).double()
    parts = dense_parts(network)
    assert not isinstance(parts, str)
    return network, parts


def parameters(network, particles=2, spread=0.4):
    """Means and deviations of every parameter, one a particle."""
    means, stds = {}, {}
    for number, (name, parameter) in enumerate(network.named_parameters()):
        means[name] = 0.6 * normal(particles, *parameter.shape, seed=10 + number)
        stds[name] = spread * normal(particles, *parameter.shape, seed=30 + number).abs()
    return means, stds


def sampled(network, means, stds, inputs, draws):
    """Mean and covariance of outputs of whole networks, of particle 0, with the draws themselves."""
    theta = {n: means[n][0] + stds[n][0] * normal(draws, *means[n].shape[1:], seed=50 + i) for i, n in enumerate(means)}
    run = torch.func.vmap(lambda weights: torch.func.functional_call(network, weights, (inputs[0],)))
    outputs = run(theta)
    centre = outputs.mean(0)
    return centre, torch.einsum("dnk,dnl->nkl", outputs - centre, outputs - centre) / draws, outputs


@pytest.mark.statistical
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.Sigmoid])
@pytest.mark.parametrize("full", [True, False])
def test_one_hidden_layer_is_exact(activation, full):
    """Against 40,000 networks: five standard errors of each mean and of each entry of the covariance."""
    network, parts = stack(3, 5, 2, activation=activation)
    means, stds = parameters(network)
    inputs = normal(2, 4, 3)
    mean, covariance = output_moments(parts, means, stds, inputs, full=full)
    assert covariance.shape == (2, 4, 2, 2)
    centre, matrix, outputs = sampled(network, means, stds, inputs, 40_000)
    shifted = outputs - centre
    products = torch.einsum("dnk,dnl->dnkl", shifted, shifted)
    assert bool(((mean[0] - centre).abs() < 5.0 * outputs.std(0) / 200.0).all())
    assert bool(((covariance[0] - matrix).abs() < 5.0 * products.std(0) / 200.0).all())


def test_deeper_networks_are_near_and_correlations_bring_them_nearer():
    """Three hidden layers against 40,000 networks: variances within a tenth with correlations, and further off without;
    the matrices have no negative eigenvalue."""
    network, parts = stack(3, 6, 6, 6, 1, activation=nn.Tanh)
    means, stds = parameters(network, spread=0.15)
    inputs = normal(2, 4, 3)
    centre, matrix, _ = sampled(network, means, stds, inputs, 40_000)
    found = {full: output_moments(parts, means, stds, inputs, full=full) for full in (True, False)}
    errors = {full: ((pair[1][0] - matrix).abs() / matrix).mean() for full, pair in found.items()}
    assert float(errors[True]) < 0.1
    assert float(errors[True]) < float(errors[False])
    assert_close(found[True][0][0], centre, rtol=0.0, atol=0.05)
    assert float(torch.linalg.eigvalsh(found[True][1]).min()) > 0.0


def test_parameters_without_a_spread_are_what_they_are():
    """Fixed ones are the module's own; with none random the outputs are the network's, and certain."""
    network, parts = stack(3, 5, 2, activation=nn.Tanh)
    means, stds = parameters(network, particles=1)
    inputs = normal(1, 4, 3)
    del means["0.bias"], stds["0.bias"], stds["2.weight"]
    mean, covariance = output_moments(parts, means, stds, inputs)
    nothing = output_moments(parts, {}, {}, inputs)
    assert_close(nothing[0][0], network(inputs[0]).detach())
    assert_close(nothing[1], torch.zeros(1, 4, 2, 2).double(), rtol=0.0, atol=1e-15)
    means["0.bias"], stds["0.bias"] = network[0].bias.detach()[None], torch.zeros(1, 5).double()
    stds["2.weight"] = torch.zeros(1, 2, 5).double()
    assert_close((mean, covariance), output_moments(parts, means, stds, inputs))
