"""Positive quantities as unconstrained columns: the bijection, its Jacobian and the score."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Beta, Gamma, LogNormal, Normal, constraints

from bayesprop.latents import Latent


def half_line(log_density, shape=(3,), **options) -> Latent:
    return Latent("scale", shape, log_density, **options)


GAMMA = half_line(Gamma(torch.tensor(2.5).double(), torch.tensor(1.5).double()).log_prob)
BETA = Latent(
    "share",
    (3,),
    Beta(torch.tensor(2.0).double(), torch.tensor(3.0).double()).log_prob,
    initial=0.25,
    constraint=constraints.unit_interval,
)
NORMAL = Latent(
    "shift",
    (3,),
    Normal(torch.tensor(1.0).double(), torch.tensor(2.0).double()).log_prob,
    initial=-3.0,
    constraint=constraints.real,
)
INTERVAL = Latent(
    "angle", (3,), lambda value: torch.zeros_like(value), initial=2.0, constraint=constraints.interval(-1.0, 3.0)
)
LATENTS = {"half line": GAMMA, "unit interval": BETA, "line": NORMAL, "interval": INTERVAL}


@pytest.fixture(params=LATENTS)
def latent(request) -> Latent:
    return LATENTS[request.param]


@pytest.fixture
def columns() -> Tensor:
    return torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_a_positive_quantity_is_stored_as_its_logarithm(columns):
    torch.testing.assert_close(GAMMA.constrain(columns), columns.exp(), rtol=1e-14, atol=0.0)
    assert half_line(torch.zeros_like).initial_column() == 0.0
    assert half_line(torch.zeros_like, initial=0.1).initial_column() == pytest.approx(math.log(0.1), rel=1e-15)


def test_values_lie_in_the_support_and_have_the_shape(latent, columns):
    value = latent.constrain(columns)
    assert latent.constraint.check(value).all()
    assert value.shape == (4, 2, 3)
    torch.testing.assert_close(latent.transform.inv(value), columns, rtol=1e-10, atol=1e-12)
    start = torch.full((1, 3), latent.initial_column(), dtype=torch.float64)
    torch.testing.assert_close(
        latent.constrain(start), torch.full((1, 3), latent.initial).double(), rtol=1e-14, atol=0.0
    )


@pytest.mark.parametrize(("shape", "size"), [((), 1), ((1,), 1), ((2, 3), 6), ((0,), 0)])
def test_columns_of_any_shape(shape, size):
    one = half_line(lambda value: -value, shape=shape)
    assert one.size == size
    columns = torch.arange(2.0 * size).reshape(2, size)
    assert one.constrain(columns).shape == (2, *shape)
    torch.testing.assert_close(one.constrain(columns).reshape(2, size), columns.exp())
    assert one.unconstrained_log_density(columns).shape == (2,)
    assert one.unconstrained_score(columns).shape == (2, size)


def test_the_jacobian_makes_a_lognormal_a_normal(columns):
    """If log s ~ N(m, v) then the density of the column is that of N(m, v): the two must agree exactly."""
    one = half_line(LogNormal(torch.tensor(0.3).double(), torch.tensor(0.7).double()).log_prob)
    expected = Normal(torch.tensor(0.3).double(), torch.tensor(0.7).double()).log_prob(columns).sum(-1)
    torch.testing.assert_close(one.unconstrained_log_density(columns), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LATENTS)
def test_the_unconstrained_density_integrates_to_what_the_density_does(name):
    """The trapezium rule on the whole line, whose error is below 1e-9 for these smooth densities."""
    grid = torch.linspace(-45.0, 45.0, 90_001, dtype=torch.float64)
    one = LATENTS[name]
    single = Latent(one.name, (1,), one.log_density, one.initial, None, one.constraint)
    mass = torch.trapezoid(single.unconstrained_log_density(grid[:, None]).exp(), grid).item()
    assert mass == pytest.approx(4.0 if name == "interval" else 1.0, abs=1e-8)  # a uniform density of 1 on (-1, 3)


def test_the_score_is_the_derivative(latent, columns):
    step = 1e-6
    score = latent.unconstrained_score(columns)
    assert score.shape == columns.shape
    for column in range(3):
        shift = step * torch.eye(3, dtype=torch.float64)[column]
        high, low = (latent.unconstrained_log_density(columns + sign * shift) for sign in (1.0, -1.0))
        torch.testing.assert_close(score[..., column], (high - low) / (2.0 * step), rtol=1e-7, atol=1e-8)


def test_the_score_is_found_in_every_mode_and_inside_of_transforms(latent, columns):
    expected = latent.unconstrained_score(columns)
    assert not expected.requires_grad
    torch.testing.assert_close(torch.func.vmap(latent.unconstrained_score)(columns), expected, rtol=1e-12, atol=1e-12)
    for mode in (torch.no_grad(), torch.inference_mode(), torch.enable_grad()):
        with mode:
            found = latent.unconstrained_score(columns.clone())
        assert not found.requires_grad
        torch.testing.assert_close(found, expected, rtol=0.0, atol=0.0)
    leaf = columns.clone().requires_grad_()
    found = latent.unconstrained_score(leaf)
    assert torch.equal(found, expected)
    assert not found.requires_grad


def test_a_score_that_is_known_is_used():
    one = half_line(lambda value: -value, score=lambda columns: 42.0 + 0.0 * columns)
    assert one.unconstrained_score(torch.zeros(2, 3)).tolist() == [[42.0] * 3] * 2


def test_a_density_without_a_slope():
    """On the line a constant density has the score 0; on the half line what remains is the Jacobian's 1."""
    flat = Latent("shift", (3,), lambda value: torch.zeros(value.shape), constraint=constraints.real)
    assert flat.unconstrained_score(torch.ones(2, 3)).tolist() == [[0.0] * 3] * 2
    positive = half_line(lambda value: torch.zeros(value.shape))
    assert positive.unconstrained_score(torch.ones(2, 3)).tolist() == [[1.0] * 3] * 2


def test_the_log_density_is_differentiable(latent, columns):
    leaf = columns.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(latent.unconstrained_log_density(leaf).sum(), leaf)
    torch.testing.assert_close(gradient, latent.unconstrained_score(columns), rtol=1e-12, atol=1e-12)
