"""Draws of functions: their mean, their covariance, and what a process does not have."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.errors import CapabilityError
from bayesprop.posteriors import GaussianProcess
from bayesprop.posteriors.process import JOINT, factor_of


def process(rows: int = 5, outputs: int = 2) -> GaussianProcess:
    """The process of a small network, given a few rows."""
    network = nn.Sequential(nn.Linear(2, 10), nn.ReLU(), nn.Linear(10, outputs)).double()
    model = bp.Model(network, likelihood=likelihoods.Gaussian(0.3))
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(1, rows, 2, generator=generator, dtype=torch.float64)
    targets = torch.randn(1, rows, outputs, generator=generator, dtype=torch.float64)
    return GaussianProcess(model, inputs, targets, torch.zeros(1, 0), model.initial_buffers(1))


def test_a_factor_of_a_matrix_that_is_nearly_singular():
    row = torch.linspace(0.0, 1.0, 40).double()
    matrix = torch.exp(-0.5 * (row[:, None] - row).square())
    lower = factor_of(matrix)
    assert_close(lower @ lower.T, matrix, rtol=0.0, atol=1e-4)
    definite = matrix + torch.eye(40).double()
    assert_close(factor_of(definite), torch.linalg.cholesky(definite), rtol=0.0, atol=0.0)
    with pytest.raises(CapabilityError, match="not positive definite"):
        factor_of(-torch.eye(3).double())


def test_pairs_of_draws_have_the_mean_of_the_process():
    posterior, rows = process(), torch.tensor([[0.1, 0.2], [1.0, -1.0], [3.0, 0.0]])
    drawn = [outputs for _, outputs, _ in posterior.outputs(rows.double(), 6)()]
    assert len(drawn) == 1
    assert drawn[0].shape == (6, 3, 2)
    mean, _ = posterior.process(rows)
    assert_close(drawn[0].mean(0).T, mean[0])
    assert not torch.equal(drawn[0][0], drawn[0][2])


@pytest.mark.statistical
def test_draws_have_the_covariance_of_the_process():
    """20,000 pairs. Five standard errors of each covariance, sqrt((k_ii k_jj + k_ij^2) / 20,000)."""
    posterior, rows = process(outputs=1), torch.tensor([[0.1, 0.2], [1.0, -1.0], [3.0, 0.0]]).double()
    ((_, drawn, _),) = posterior.outputs(rows, 40_000)()
    mean, covariance = posterior.process(rows)
    apart = drawn[..., 0] - mean[0, 0]
    expected = covariance[0, 0]
    size = expected.diagonal()
    error = ((size[:, None] * size + expected.square()) / 20_000).sqrt()
    assert bool(((apart.T @ apart / 40_000 - expected).abs() < 5.0 * error).all())


def test_many_rows_come_in_blocks_and_the_same_seed_gives_the_same_functions():
    posterior, rows = process(), torch.linspace(-1.0, 1.0, 2 * (JOINT + 10)).reshape(-1, 2).double()
    once, again, other = (list(posterior.outputs(rows, 2, seed=s)()) for s in (1, 1, 2))
    assert [part for part, _, _ in once] == [slice(0, JOINT), slice(JOINT, JOINT + 10)]
    assert all(torch.equal(a[1], b[1]) for a, b in zip(once, again, strict=True))
    assert not torch.equal(once[0][1], other[0][1])


def test_there_are_no_weights():
    posterior = process()
    with pytest.raises(CapabilityError, match="a GaussianProcess posterior is a distribution over functions") as caught:
        posterior.sample(3)
    assert "posterior.process(inputs)" in str(caught.value)
    with pytest.raises(CapabilityError, match="mean and std needs moments"):
        posterior.mean()
    with pytest.raises(CapabilityError, match="the ELBO needs log_density"):
        bp.elbo(posterior, (torch.zeros(2, 2), torch.zeros(2, 2)))
