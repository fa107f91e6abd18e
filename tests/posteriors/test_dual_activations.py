"""Duals of activations against quadrature in two dimensions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from bayesprop.posteriors.dual_activations import Erf, dual, is_known, second_moment

A, B = torch.tensor([0.3, 1.0, 3.0]).double(), torch.tensor([0.5, 2.0]).double()


def covariances(r: float) -> Tensor:
    return r * (A[:, None] * B).sqrt()


def by_quadrature(module: nn.Module, r: float) -> Tensor:
    """E[phi(u) phi(v)], by Gauss-Hermite nodes for smooth activations and a fine grid of angles for rectifiers.

    A rectifier of a Gaussian vector is radius times rectifier of the direction, and E[radius^2] is 2.
    """
    if isinstance(module, nn.ReLU | nn.LeakyReLU):
        angle = (torch.arange(200_000).double() + 0.5) * (2.0 * math.pi / 200_000)
        one, other, weight = angle.cos(), angle.sin(), torch.full_like(angle, 2.0 / 200_000)
    else:
        nodes, weights = (torch.as_tensor(a) for a in np.polynomial.hermite_e.hermegauss(120))
        one, other = (t.flatten() for t in torch.meshgrid(nodes, nodes, indexing="ij"))
        weight = (weights[:, None] * weights).flatten() / (2.0 * math.pi)
    found = torch.empty(len(A), len(B), dtype=torch.float64)
    for i, a in enumerate(A):
        for j, b in enumerate(B):
            u, v = a.sqrt() * one, b.sqrt() * (r * one + math.sqrt(1.0 - r * r) * other)
            found[i, j] = (weight * module(u) * module(v)).sum()
    return found


CLOSED = {"relu": nn.ReLU(), "leaky": nn.LeakyReLU(0.3), "erf": Erf(), "identity": nn.Identity()}
SMOOTH = {"tanh": nn.Tanh(), "sigmoid": nn.Sigmoid(), "silu": nn.SiLU(), "gelu": nn.GELU(), "softplus": nn.Softplus()}


@pytest.mark.parametrize("r", [-0.7, 0.0, 0.5, 0.97])
@pytest.mark.parametrize("name", [*CLOSED, *SMOOTH])
def test_the_dual_is_the_expectation(name: str, r: float):
    """The grid of angles is exact to 1e-9; Gauss-Hermite quadrature and the series to 1e-6 at these variances."""
    module = (CLOSED | SMOOTH)[name]
    found = dual(module, A, B, covariances(r))
    assert_close(found, by_quadrature(module, r), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", [*CLOSED, *SMOOTH])
def test_the_second_moment_is_the_dual_at_correlation_one(name: str):
    module = (CLOSED | SMOOTH)[name]
    whole = dual(module, A, A, (A[:, None] * A).sqrt())
    assert_close(second_moment(module, A), whole.diagonal(), rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("name", ["relu", "leaky", "erf", "tanh"])
def test_derivatives_are_those_of_finite_differences(name: str):
    module = (CLOSED | SMOOTH)[name]
    arguments = [t.clone().requires_grad_(True) for t in (A, B, covariances(0.6))]
    assert torch.autograd.gradcheck(lambda a, b, c: dual(module, a, b, c), arguments)
    assert torch.autograd.gradcheck(lambda a: second_moment(module, a), (A.clone().requires_grad_(True),))


def test_gradients_of_a_rectifier_at_equal_rows_are_finite():
    """At correlation 1 the derivative of acos has no end; that of the dual by the covariance is 1 / 2."""
    c = torch.ones(1, 1).double().requires_grad_(True)
    one = torch.ones(1).double()
    (slope,) = torch.autograd.grad(dual(nn.ReLU(), one, one, 0.999999999 * c).sum(), c)
    assert float(slope) == pytest.approx(0.5, abs=1e-4)


def test_partial_sums_are_positive_semidefinite():
    rows = torch.linspace(-3.0, 3.0, 30).double()
    kernel = 1.0 + rows[:, None] * rows
    found = dual(nn.Tanh(), kernel.diagonal(), kernel.diagonal(), kernel)
    assert float(torch.linalg.eigvalsh(found).min()) > -1e-12


def test_what_has_a_dual():
    assert all(is_known(module) for module in (*CLOSED.values(), *SMOOTH.values()))
    assert not is_known(nn.Softplus(beta=2.0))
    assert not is_known(nn.GELU(approximate="tanh"))
    assert not is_known(nn.Dropout())
