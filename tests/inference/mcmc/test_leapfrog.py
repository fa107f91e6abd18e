"""Leapfrog: reversible, symplectic, of second order, and right for a harmonic oscillator."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.testing import assert_close

from bayesprop import likelihoods, priors
from bayesprop.inference.mcmc.leapfrog import energy, trajectory
from bayesprop.inference.mcmc.target import Target
from bayesprop.model import Batch, Model
from bayesprop.rng import Rng, Stream
from bayesprop.testing import LinearRegression


def numbers(*shape: int, seed: int = 0) -> Tensor:
    count = torch.Size(shape).numel()
    return Rng.create(seed).normal(count, Stream.INITIAL, dtype=torch.float64)[0, 0].reshape(shape)


def network() -> tuple[Target, Tensor, Tensor, Tensor]:
    """A network with hierarchical scales; theta, a momentum and scales that differ."""
    made = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1)).double()
    model = Model(made, likelihood=likelihoods.Gaussian(), prior=priors.Normal(scale=priors.HalfNormal(1.0)))
    inputs, targets = numbers(10, 2), numbers(10, 1, seed=1)
    model.probe(inputs, targets)
    target = Target(model, Batch(inputs.expand(2, 10, 2), targets.expand(2, 10, 1), 10))
    size = model.layout.size
    scale = torch.linspace(0.5, 1.5, size, dtype=torch.float64).expand(2, size)
    return target, 0.5 * numbers(2, size, seed=2), numbers(2, size, seed=3), scale


def test_it_leads_back_with_the_momentum_turned_round():
    target, theta, momentum, scale = network()
    start = target(theta, {})
    end, last = trajectory(target, start, momentum, scale, 0.05, 20)
    back, first = trajectory(target, end, -last, scale, 0.05, 20)
    assert float((end.theta - theta).abs().max()) > 0.1
    assert_close(back.theta, theta, rtol=0.0, atol=1e-11)
    assert_close(-first, momentum, rtol=0.0, atol=1e-11)


def test_it_is_symplectic():
    """J^T W J = W for its Jacobian J by central differences, with W = (0, 1; -1, 0) and theta in units of the scales.
    Differences of 1e-5 are right to about 1e-7."""
    target, theta, momentum, scale = network()
    size, step = theta.shape[1], 1e-5

    def flow(place: Tensor) -> Tensor:
        wide = place.expand(2, -1)
        end, last = trajectory(target, target(wide[:, :size] * scale, {}), wide[:, size:], scale, 0.2, 3)
        return torch.cat((end.theta / scale, last), dim=1)[0]

    place = torch.cat((theta / scale, momentum), dim=1)[0]
    axes = step * torch.eye(2 * size, dtype=torch.float64)
    jacobian = torch.stack([(flow(place + axis) - flow(place - axis)) / (2.0 * step) for axis in axes], dim=1)
    zero, one = torch.zeros(size, size, dtype=torch.float64), torch.eye(size, dtype=torch.float64)
    form = torch.cat((torch.cat((zero, one), dim=1), torch.cat((-one, zero), dim=1)))
    assert float((jacobian - torch.eye(2 * size)).abs().max()) > 0.1
    assert_close(jacobian.T @ form @ jacobian, form, rtol=0.0, atol=1e-6)


def test_the_error_of_the_energy_falls_with_the_square_of_the_step():
    """Over the same time, half the step: a fourth of the error, but for terms of fourth order."""
    target, theta, momentum, scale = network()
    start = target(theta, {})
    before = energy(start, momentum)
    errors = [
        energy(*trajectory(target, start, momentum, scale, 0.5 / steps, steps)) - before for steps in (16, 32, 64)
    ]
    for coarse, fine in zip(errors, errors[1:], strict=False):
        assert_close(coarse / fine, torch.full_like(fine, 4.0), rtol=0.05, atol=0.0)


def test_a_gaussian_is_a_harmonic_oscillator():
    """In coordinates of the eigenvectors, with frequency w = sqrt(l): q(t) = q cos wt + r / w sin wt. Steps of 1e-3 err
    by (e w)^2 w t / 24, some 1e-4 for the largest w = 14."""
    problem = LinearRegression()
    target = Target(problem.model, problem.batch(1))
    theta, momentum = numbers(1, 4), numbers(1, 4, seed=1)
    end, last = trajectory(target, target(theta, {}), momentum, torch.ones(1, 4).double(), 1e-3, 400)
    values, vectors = torch.linalg.eigh(problem.precision)
    root, q, r = values.sqrt(), (theta[0] - problem.mean) @ vectors, momentum[0] @ vectors
    angle = 0.4 * root
    assert_close((end.theta[0] - problem.mean) @ vectors, q * angle.cos() + r / root * angle.sin(), rtol=0.0, atol=2e-3)
    assert_close(last[0] @ vectors, r * angle.cos() - q * root * angle.sin(), rtol=0.0, atol=2e-2)


def test_energy_counts_momentum_and_log_joint():
    target, theta, momentum, scale = network()
    start = target(theta, {})
    assert_close(energy(start, momentum), momentum.square().sum(1) / 2 - start.value, rtol=1e-14, atol=0.0)
    fixed = torch.where(torch.arange(theta.shape[1]) == 2, 0.0, scale)
    end, last = trajectory(target, start, momentum, fixed, 0.1, 5)
    assert_close(end.theta[:, 2], theta[:, 2], rtol=0.0, atol=0.0)
    assert_close(last[:, 2], momentum[:, 2], rtol=0.0, atol=0.0)
    assert math.isfinite(float(energy(end, last).sum()))
