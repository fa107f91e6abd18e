"""Grids and checks that every family of densities passes."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from scipy import integrate
from torch import Tensor

from bayesprop.distributions import Elementwise


@pytest.fixture
def grid() -> Tensor:
    """Both tails, both sides of zero, and zero itself left out: the Laplace density has no derivative there."""
    right = torch.logspace(-4, 2.5, 60, dtype=torch.float64)
    return torch.cat((-right.flip(0), right))


@pytest.fixture
def check_score(grid: Tensor) -> Callable[..., None]:
    """The written-out score against automatic differentiation of the log density."""

    def check(density: Elementwise, *parameters: float | Tensor) -> None:
        value = grid.clone().requires_grad_()
        (expected,) = torch.autograd.grad(density.log_density(value, *parameters).sum(), value)
        # atol: below it a difference of large terms has rounded, in the automatic derivative as well.
        torch.testing.assert_close(density.score(grid, *parameters), expected, rtol=1e-10, atol=1e-13)

    return check


@pytest.fixture
def check_kl() -> Callable[..., None]:
    """The closed form against quadrature of N(w; m, s^2) log(N(w; m, s^2) / p(w)); its gradients against autograd."""

    def check(density: Elementwise, *parameters: float) -> None:
        assert density.kl is not None
        assert density.kl_gradients is not None
        loc = parameters[0] if parameters else 0.0
        for m, s in [(0.0, 1.0), (0.3, 0.05), (-2.0, 0.7), (5.0, 3.0), (loc, 0.2), (-0.01, 1.0)]:
            gaussian = torch.distributions.Normal(*torch.tensor([m, s], dtype=torch.float64))

            def integrand(w: float, gaussian: torch.distributions.Normal = gaussian) -> float:
                point = torch.tensor(w, dtype=torch.float64)
                log_q = gaussian.log_prob(point)
                return float(log_q.exp() * (log_q - density.log_density(point, *parameters)))

            # Twelve standard deviations hold all but 1e-32 of the mass; a kink at loc is given to the quadrature.
            low, high = m - 12.0 * s, m + 12.0 * s
            kinks = [loc] if low < loc < high else None
            expected, _ = integrate.quad(integrand, low, high, points=kinks, epsabs=1e-11, epsrel=1e-11, limit=200)
            mean = torch.tensor(m, dtype=torch.float64, requires_grad=True)
            std = torch.tensor(s, dtype=torch.float64, requires_grad=True)
            value = density.kl(mean, std, *parameters)
            assert math.isclose(value.item(), expected, rel_tol=1e-8, abs_tol=1e-8)
            by_mean, by_std = torch.autograd.grad(value, (mean, std), allow_unused=True)
            got_mean, got_std = density.kl_gradients(mean.detach(), std.detach(), *parameters)
            expected_mean = torch.zeros_like(got_mean) if by_mean is None else by_mean
            torch.testing.assert_close((got_mean, got_std), (expected_mean, by_std), rtol=1e-10, atol=1e-12)

    return check


@pytest.fixture
def check_broadcast(grid: Tensor) -> Callable[..., None]:
    """Tensor parameters give, entry by entry, what floats give; and the functions run under vmap."""

    def check(density: Elementwise, *settings: tuple[float, ...]) -> None:
        rows = [torch.tensor(column, dtype=torch.float64)[:, None] for column in zip(*settings, strict=True)]
        for function in (density.log_density, density.score):
            together = function(grid, *rows)
            apart = torch.stack([function(grid, *setting) for setting in settings])
            torch.testing.assert_close(together, apart, rtol=1e-12, atol=1e-14)
            mapped = torch.func.vmap(lambda value, f=function: f(value, *settings[0]))(grid.reshape(4, -1))
            torch.testing.assert_close(mapped.flatten(), function(grid, *settings[0]), rtol=1e-14, atol=0.0)
        stds = torch.as_tensor(density.std(*(row[:, 0] for row in rows)), dtype=torch.float64)
        torch.testing.assert_close(stds, torch.tensor([density.std(*s) for s in settings], dtype=torch.float64))

    return check
