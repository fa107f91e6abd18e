"""The exact process: against formulas, against scikit-learn, and its file."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.posteriors import GaussianProcess
from bayesprop.testing import LinearRegression


def of(network: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, noise: float) -> GaussianProcess:
    model = bp.Model(network.double(), likelihood=likelihoods.Gaussian(noise))
    return GaussianProcess(model, inputs[None], targets[None], torch.zeros(1, 0), model.initial_buffers(1))


def test_a_linear_network_has_the_posterior_of_linear_regression():
    problem = LinearRegression()
    posterior = of(nn.Linear(3, 1), problem.inputs, problem.targets, 0.5)
    rows = torch.tensor([[0.3, -1.0, 2.0], [0.0, 0.0, 0.0]]).double()
    design = torch.cat((rows, torch.ones(2, 1).double()), dim=1)
    mean, covariance = posterior.process(rows)
    assert_close(mean[0, 0], design @ problem.mean)
    assert_close(covariance[0, 0], design @ problem.covariance @ design.T)
    assert float(posterior.log_evidence) == pytest.approx(problem.log_evidence, rel=1e-12)


def test_it_agrees_with_scikit_learn():
    """A linear network is DotProduct; so is one that is deep and linear, scaled. Means, deviations and the evidence."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct

    problem = LinearRegression()
    posterior = of(nn.Sequential(nn.Linear(3, 7), nn.Linear(7, 1)), problem.inputs, problem.targets, 0.5)
    kernel = ConstantKernel(1.0, "fixed") + ConstantKernel(7.0, "fixed") * DotProduct(1.0, "fixed")
    theirs = GaussianProcessRegressor(kernel, alpha=0.25, optimizer=None)
    theirs.fit(problem.inputs.numpy(), problem.targets[:, 0].numpy())
    rows = torch.linspace(-2.0, 2.0, 30).double().reshape(10, 3)
    mean, std = theirs.predict(rows.numpy(), return_std=True)
    ours, covariance = posterior.process(rows)
    assert_close(ours[0, 0], torch.as_tensor(mean), rtol=1e-8, atol=1e-10)
    assert_close(covariance[0, 0].diagonal().sqrt(), torch.as_tensor(std), rtol=1e-8, atol=1e-10)
    assert float(posterior.log_evidence) == pytest.approx(theirs.log_marginal_likelihood_value_, rel=1e-10)


def test_it_goes_through_data_without_noise_and_back_to_the_prior_far_away():
    inputs = torch.linspace(-1.0, 1.0, 6).double()[:, None]
    targets = torch.cat((inputs.sin(), inputs.cos()), dim=1)
    network = nn.Sequential(nn.Linear(1, 4), bp.inference.kernels.Erf(), nn.Linear(4, 2))
    posterior = of(network, inputs, targets, 1e-3)
    mean, covariance = posterior.process(inputs)
    assert_close(mean[0].T, targets, rtol=0.0, atol=1e-2)
    assert float(covariance[0, 0].diagonal().max()) < 2e-6
    _, far = posterior.process(torch.tensor([[4.0]]).double())
    assert float(far[0, 0]) > 0.01


def test_variances_without_covariances():
    problem = LinearRegression()
    posterior = of(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)), problem.inputs, problem.targets, 0.5)
    mean, covariance = posterior.joint(problem.inputs[:5])
    alone, variance = posterior.marginal(problem.inputs[:5])
    assert_close(alone, mean)
    assert_close(variance[0], covariance[0, 0].diagonal())


def test_without_rows_it_is_the_prior():
    network = nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 1))
    posterior = of(network, torch.zeros(0, 1).double(), torch.zeros(0, 1).double(), 0.1)
    mean, covariance = posterior.process(torch.tensor([[1.0]]))
    assert float(mean) == 0.0
    assert float(covariance) == pytest.approx(1.0 + 4.0 * 0.5 * 2.0)
    assert float(posterior.log_evidence) == 0.0


def test_log_evidence_of_one_row():
    posterior = of(nn.Linear(1, 1), torch.tensor([[2.0]]).double(), torch.tensor([[1.5]]).double(), 1.0)
    expected = -0.5 * (1.5**2 / 6.0 + math.log(2.0 * math.pi * 6.0))
    assert float(posterior.log_evidence) == pytest.approx(expected, rel=1e-12)


def test_its_file_holds_the_rows(tmp_path: Path):
    problem = LinearRegression()
    posterior = of(nn.Linear(3, 1), problem.inputs, problem.targets, 0.5)
    posterior.save(tmp_path / "process.bayes")
    again = bp.load(tmp_path / "process.bayes", network=nn.Linear(3, 1).double())
    assert isinstance(again, GaussianProcess)
    assert_close(again.predict(problem.inputs).mean, posterior.predict(problem.inputs).mean, rtol=0.0, atol=0.0)
    assert_close(again.log_evidence, posterior.log_evidence, rtol=0.0, atol=0.0)
    assert posterior.member(0).log_evidence.shape == (1,)
