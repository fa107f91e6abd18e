"""The three shapes of a Gaussian: draws, densities and determinants against its covariance matrix."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from bayesprop.inference.variational import location_scale
from bayesprop.inference.variational.location_scale import COVARIANCES
from bayesprop.posteriors import DiagonalGaussian, FullGaussian, LowRankGaussian
from bayesprop.rng import Rng
from bayesprop.testing import LinearRegression

from ..conftest import normal

WIDTH, RANK = 4, 2


def shapes(covariance):
    """rho (2, 4), with numbers in place of those of the start."""
    shape = {"rho": normal(2, WIDTH, seed=1)}
    if covariance == "low rank":
        shape["factors"] = normal(2, RANK, WIDTH, seed=2)
    if covariance == "full rank":
        shape["lower"] = normal(2, WIDTH, WIDTH, seed=3)
    return shape, 0.3 + torch.rand(2, WIDTH, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def relative(covariance, shape):
    """R, from the linear map that `white` is."""
    noise = torch.eye(WIDTH + (RANK if covariance == "low rank" else 0)).double().expand(2, -1, -1)
    columns = location_scale.white(shape, noise, WIDTH)
    return columns.transpose(1, 2) @ columns


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_descent_and_determinant_are_those_of_the_matrix(covariance):
    shape, std = shapes(covariance)
    matrix = relative(covariance, shape)
    y = normal(2, 3, WIDTH, seed=5)
    assert_close(location_scale.descent(shape, y), torch.linalg.solve(matrix, y.transpose(1, 2)).transpose(1, 2))
    expected = 0.5 * torch.linalg.slogdet(std[:, :, None] * matrix * std[:, None])[1]
    assert_close(location_scale.log_det(shape, std), expected)


@pytest.mark.parametrize(
    ("covariance", "kind"), list(zip(COVARIANCES, (DiagonalGaussian, LowRankGaussian, FullGaussian), strict=True))
)
def test_the_posterior_has_the_covariance_of_the_draws(covariance, kind):
    shape, std = shapes(covariance)
    found = location_scale.posterior(LinearRegression().model, normal(2, WIDTH), shape, std, {})
    assert type(found) is kind
    expected = std[:, :, None] * relative(covariance, shape) * std[:, None]
    assert_close(found.std().square(), expected.diagonal(dim1=1, dim2=2))
    if kind is not DiagonalGaussian:
        assert_close(found.covariance(), expected)
    # Its density falls along the path as `descent` says.
    theta = normal(2, 1, WIDTH, seed=7).requires_grad_(True)
    (slope,) = torch.autograd.grad(found.log_density(theta).sum(), theta)
    y = (theta.detach() - found.mean()[:, None]) / std[:, None]
    assert_close(slope, -location_scale.descent(shape, y) / std[:, None], rtol=1e-6, atol=1e-8)


def test_a_start_has_next_to_no_correlations():
    rho = normal(3, WIDTH)
    low = location_scale.start("low rank", rho, 200, Rng.create(0, 3), 10)
    assert float(low["factors"].std()) == pytest.approx(0.01, rel=0.1)
    alone = location_scale.start("low rank", rho[2:], 200, Rng(Rng.create(0, 3).seeds[2:]), 10)
    assert torch.equal(alone["factors"][0], low["factors"][2])
    assert not location_scale.start("full rank", rho, 2, Rng.create(0, 3), 10)["lower"].any()
    assert list(location_scale.start("mean field", rho, 2, Rng.create(0, 3), 10)) == ["rho"]
