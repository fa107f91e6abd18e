"""MAP: the mode of the posterior."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.inference import MAP, SGD, Constant
from bayesprop.testing import MethodSuite

from ..conftest import normal


class TestMAP(MethodSuite):
    def make(self):
        return MAP(learning_rate=0.02)

    def check_linear_regression(self, problem):
        """The mode of a Gaussian is its mean, exactly."""
        method = MAP(learning_rate=0.1, optimizer=SGD(0.8), schedule=Constant())
        posterior = bp.fit(problem.model, problem.data, method, epochs=300, batch_size=None, progress=False)
        assert_close(posterior.mean()[0], problem.mean, rtol=0.0, atol=1e-8)
        assert_close(posterior.std()[0], torch.zeros(4).double(), rtol=0.0, atol=0.0)


class TestMAPByMomentum(TestMAP):
    def make(self):
        return MAP(learning_rate=0.01, optimizer="momentum", clip_norm=1.0)


def test_a_learnt_noise_has_the_mode_of_its_logarithm():
    """One number mu = 0 (fixed), n rows: log p = -n log s - S / (2 s^2) + log p(s) + log s, half-normal p with scale 1:
    n - 1 = S / s^2 - s^2."""
    targets = 0.3 * normal(40, 1)
    network = nn.Linear(1, 1).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    model = bp.Model(network, likelihood=likelihoods.Gaussian(), random="weight", fixed="bias")
    method = MAP(learning_rate=0.3, optimizer="sgd", schedule=Constant())
    posterior = bp.fit(
        model, (torch.zeros(40, 1).double(), targets), method, epochs=300, batch_size=None, progress=False
    )
    total = float(targets.square().sum())
    square = (-39.0 + math.sqrt(39.0**2 + 4.0 * total)) / 2.0  # s^4 + (n - 1) s^2 - S = 0
    assert float(posterior.mean("likelihood.scale")) == pytest.approx(math.sqrt(square), rel=1e-6)


def test_scales_of_a_hierarchical_prior_are_estimated():
    model = bp.Model(
        nn.Linear(3, 1).double(), likelihood=likelihoods.Gaussian(0.5), prior=priors.Normal(0.0, priors.HalfNormal(1.0))
    )
    data = (normal(20, 3), normal(20, 1, seed=1))
    method = MAP(learning_rate=0.1, optimizer="momentum", schedule=Constant())
    posterior = bp.fit(model, data, method, epochs=500, batch_size=None, progress=False)
    theta = posterior.mean().clone().requires_grad_(True)
    batch = bp.model.Batch(data[0][None], data[1][None], 20)
    (gradient,) = torch.autograd.grad(model.log_joint(theta[:, None], {}, batch).sum(), theta)
    assert_close(gradient, torch.zeros_like(gradient), rtol=0.0, atol=1e-5)
