"""The native step of IVON against its equations in float64."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from bayesprop.kernels import curvature
from bayesprop.kernels.curvature import Numbers


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)


@pytest.fixture
def columns():
    """mean, precision, momentum, gradient and noise of two particles; some steps are longer than a radius of 0.05."""
    mean, momentum, gradient, noise = (numbers(2, 1003, seed=seed) for seed in range(4))
    return mean, 0.5 + numbers(2, 1003, seed=5).square(), momentum, 30.0 * gradient, noise


def expected(columns, own, count):
    """Equation (2) of the module, in float64."""
    m, t, moment, g, noise = (tensor.double()[:, :count] for tensor in columns)
    rows = {
        name: torch.tensor([[getattr(n, name)] for n in own]).double()
        for name in ("rate", "share", "heat", "loc", "prior", "correction")
    }
    moment = moment + (1.0 - own[0].beta1) * (rows["heat"] * rows["prior"] * (m - rows["loc"]) - g - moment)
    step = moment / (rows["correction"] * rows["heat"] * t)
    if own[0].radius is not None:
        step = step.clamp(-own[0].radius, own[0].radius)
    change = rows["share"] / rows["heat"] * (rows["heat"] * (rows["prior"] - t) - g * noise * t.sqrt())
    return m - rows["rate"] * step, t + change + change.square() / (2.0 * t), moment


@pytest.mark.parametrize("radius", [None, 0.05])
@pytest.mark.parametrize("count", [1003, 600])
def test_the_step_is_that_of_the_equations(columns, radius, count):
    """Columns beyond `count` stay as they are."""
    assert curvature.library().handle is not None, curvature.library().reason
    own = [Numbers(0.2, 0.01, 1.0, 0.9, 0.19, radius, 0.1, 4.0), Numbers(0.1, 0.02, 0.5, 0.9, 0.5, radius, 0.0, 0.0)]
    wanted = expected(columns, own, count)
    mean, precision, momentum, gradient, noise = (tensor.clone() for tensor in columns)
    curvature.take_step(mean, precision, momentum, gradient, noise, count, own)
    for found, exact, before in zip((mean, precision, momentum), wanted, columns, strict=False):
        assert_close(found[:, :count].double(), exact, rtol=2e-5, atol=1e-5)
        assert torch.equal(found[:, count:], before[:, count:])
    assert bool((precision > 0.0).all())


def test_draws_spread_by_the_root_of_the_precision(columns):
    mean, precision, *_, noise = columns
    found = curvature.spread(mean, precision, noise, 700)
    assert_close(found[:, :700], (mean + noise / precision.sqrt())[:, :700], rtol=1e-5, atol=1e-6)
    assert torch.equal(found[:, 700:], mean[:, 700:])
