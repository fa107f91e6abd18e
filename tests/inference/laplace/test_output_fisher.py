"""The likelihood's curvature: Fisher information against the average of squared scores over its own samples' law."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from bayesprop import likelihoods
from bayesprop.inference.laplace.output_fisher import latents_of, whitened

from ..conftest import normal


def fisher(likelihood, outputs: Tensor, targets: Tensor, columns: Tensor) -> Tensor:
    """R R^T of each row, from R^T applied to the unit matrix."""
    size = outputs[0].numel() + len(columns)
    one = torch.eye(size, dtype=outputs.dtype).expand(len(outputs), size, size)
    root = whitened(likelihood, outputs, targets, columns, one)
    return root.transpose(1, 2) @ root


def scores(likelihood, row: Tensor, targets: Tensor, columns: Tensor) -> Tensor:
    """d log p(y | eta) / d eta of one row of outputs for many targets: (targets, K + L)."""

    def log_prob(eta: Tensor, target: Tensor) -> Tensor:
        latents = latents_of(likelihood, eta[row.numel() :])
        return likelihood.log_prob(eta[: row.numel()].reshape(1, *row.shape), target[None], latents)[0]

    eta = torch.cat((row.flatten(), columns))
    return torch.func.vmap(torch.func.grad(log_prob), in_dims=(None, 0))(eta, targets)


def density(likelihood, row: Tensor, targets: Tensor, columns: Tensor) -> Tensor:
    latents = latents_of(likelihood, columns)
    return likelihood.log_prob(row.expand(len(targets), *row.shape), targets, latents).exp()


@pytest.mark.parametrize(
    ("likelihood", "outputs", "latents", "tolerance"),
    [
        (likelihoods.Gaussian(0.6), 1, 0, 1e-9),
        (likelihoods.Gaussian(), 1, 1, 1e-9),
        (likelihoods.HeteroscedasticGaussian(), 2, 0, 1e-9),
        (likelihoods.StudentT(4.0, 0.7), 1, 0, 1e-6),
        (likelihoods.StudentT(5.0), 1, 1, 1e-6),
    ],
)
def test_of_a_quantity_it_is_the_integral_of_squared_scores(likelihood, outputs, latents, tolerance):
    """E_y[score score^T] by the rectangle rule in t, y = sinh(t): exponentially exact for densities that fall off; the
    tails of Student's t are cut at |y| = 3,000, where 1e-13 of it is left, and 1e-6 allows for scores there."""
    row, columns = normal(outputs, seed=1), 0.3 * normal(latents, seed=2)
    grid = torch.linspace(-8.7, 8.7, 4001, dtype=torch.float64)
    targets, step = torch.sinh(grid), float(grid[1] - grid[0])
    weights = density(likelihood, row, targets, columns) * torch.cosh(grid) * step
    assert float(weights.sum()) == pytest.approx(1.0, abs=1e-9)
    found = scores(likelihood, row, targets, columns)
    expected = torch.einsum("n,na,nb->ab", weights, found, found)
    assert_close(fisher(likelihood, row[None], targets[:1], columns)[0], expected, rtol=0.0, atol=tolerance)


@pytest.mark.parametrize(
    ("likelihood", "shape", "targets"),
    [
        (likelihoods.Bernoulli(), (1,), torch.arange(2)),
        (likelihoods.Categorical(), (4,), torch.arange(4)),
        (likelihoods.Poisson(), (1,), torch.arange(60).double()),
    ],
)
def test_of_a_label_or_count_it_is_the_sum_of_squared_scores(likelihood, shape, targets):
    row, columns = normal(*shape, seed=1), torch.zeros(0).double()
    weights = density(likelihood, row, targets, columns)
    found = scores(likelihood, row, targets, columns)
    expected = torch.einsum("n,na,nb->ab", weights, found, found)
    assert float(weights.sum()) == pytest.approx(1.0, abs=1e-12)
    assert_close(fisher(likelihood, row[None], targets[:1], columns)[0], expected, rtol=0.0, atol=1e-12)


def test_labels_of_many_pixels_are_independent():
    outputs, none = normal(2, 3, 2, 2), torch.zeros(0).double()
    found = fisher(likelihoods.Categorical(), outputs, torch.zeros(2, 2, 2).long(), none).reshape(2, 3, 4, 3, 4)
    for pixel in range(4):
        alone = outputs.reshape(2, 3, 4)[:, :, pixel]
        expected = fisher(likelihoods.Categorical(), alone, torch.zeros(2).long(), none)
        assert_close(found[:, :, pixel, :, pixel], expected, rtol=1e-12, atol=1e-14)
    assert float(found[:, :, 0, :, 1].abs().max()) == 0.0


def test_several_targets_share_a_learnt_scale():
    likelihood, log_scale = likelihoods.Gaussian(), torch.tensor([0.2], dtype=torch.float64)
    found = fisher(likelihood, normal(1, 3), normal(1, 3), log_scale)[0]
    expected = torch.diag(torch.tensor([*[math.exp(-0.4)] * 3, 6.0], dtype=torch.float64))
    assert_close(found, expected, rtol=1e-12, atol=0.0)


def test_other_likelihoods_take_the_hessian_at_the_target():
    """A gamma distribution with a fixed shape k and the rate e^f: -log p has the second derivative e^f y."""
    likelihood = likelihoods.FromDistribution(
        lambda f: torch.distributions.Gamma(torch.full_like(f[:, 0], 2.0), f[:, 0].exp()), kind="regression"
    )
    outputs, targets = normal(5, 1), normal(5, seed=2).abs() + 0.1
    found = fisher(likelihood, outputs, targets, torch.zeros(0).double())
    assert_close(found[:, 0, 0], outputs[:, 0].exp() * targets, rtol=1e-10, atol=0.0)


@dataclass(frozen=True)
class Tempered(likelihoods.StudentT):
    """One that inherits: its formula may be another."""

    def log_prob(self, outputs, targets, latents):
        return 0.5 * super().log_prob(outputs, targets, latents)


def test_where_the_density_is_not_concave_the_negative_part_is_left_out():
    """Far from its centre Student's t bends upwards: no information, not a negative one."""
    likelihood, none = Tempered(4.0, 1.0), torch.zeros(0).double()
    outputs, targets = torch.zeros(2, 1).double(), torch.tensor([0.1, 10.0], dtype=torch.float64)
    found = fisher(likelihood, outputs, targets, none)[:, 0, 0]
    expected = 0.5 * 5.0 * (4.0 - 0.01) / (4.0 + 0.01) ** 2
    assert_close(found, torch.tensor([expected, 0.0], dtype=torch.float64), rtol=1e-10, atol=1e-14)
