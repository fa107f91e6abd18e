"""Noise by the evidence: against a grid, and MacKay's fixed point."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.errors import ConfigurationError
from bayesprop.inference.laplace.noise import check_noise, strongest_noise
from bayesprop.testing import LinearRegression

from ..conftest import small_network


def spectrum(problem, scale):
    """Those of X'X / s^2 under the prior N(0, 1), and the log-likelihood of the weights of least squares."""
    design, targets = problem.design, problem.targets[:, 0]
    errors = (targets - design @ problem.least_squares).square().sum()
    value = -24 * (math.log(scale) + 0.5 * math.log(2.0 * math.pi)) - 0.5 * errors / scale**2
    return torch.linalg.eigvalsh(design.T @ design)[None] / scale**2, value[None], errors


@pytest.mark.parametrize("factor", [1.0, 0.2, "evidence"])
def test_the_noise_solves_mackays_equation(factor):
    """s^2 = E / (n - g), wherever it starts; and no noise beside it has more evidence."""
    problem, quadratic = LinearRegression(), torch.tensor([3.0], dtype=torch.float64)
    found = {}
    for start in (0.1, 0.5, 4.0):
        values, value, errors = spectrum(problem, start)
        log_scale = torch.tensor([math.log(start)], dtype=torch.float64)
        found[start], likelihood = strongest_noise(log_scale, value, 24, values, quadratic, factor)
        variance = torch.exp(2.0 * found[start])
        expected = -24 * (found[start] + 0.5 * math.log(2.0 * math.pi)) - 0.5 * errors / variance
        assert_close(likelihood, expected)
    assert_close(found[0.1], found[0.5])
    assert_close(found[4.0], found[0.5])
    if factor != "evidence":
        at_one, _, errors = spectrum(problem, 1.0)
        scaled = at_one / torch.exp(2.0 * found[0.5])
        determined = float((scaled / (scaled + factor)).sum())
        assert float(torch.exp(2.0 * found[0.5])) == pytest.approx(float(errors) / (24 - determined), rel=1e-9)
        grid = found[0.5] + torch.tensor([-0.01, 0.0, 0.01], dtype=torch.float64)
        evidence = [
            float(
                -24 * g - 0.5 * errors * torch.exp(-2 * g) - 0.5 * torch.log(at_one * torch.exp(-2 * g) + factor).sum()
            )
            for g in grid
        ]
        assert evidence[1] > max(evidence[0], evidence[2])


def test_other_likelihoods_are_refused():
    for likelihood in (likelihoods.Gaussian(0.5), likelihoods.StudentT(4.0)):
        model = bp.Model(small_network(), likelihood=likelihood)
        with pytest.raises(ConfigurationError, match="chooses the noise of a Gaussian likelihood that is learnt"):
            check_noise(model)
    check_noise(bp.Model(small_network(), likelihood=likelihoods.Gaussian()))
    assert likelihoods.Gaussian().latents
