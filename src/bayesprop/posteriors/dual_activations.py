"""Activations as the units of an infinitely wide layer see them: expectations under Gaussian pre-activations.

For (u, v) Gaussian with variances a, b and covariance c = r sqrt(a b), an activation phi has the dual

    E[phi(u) phi(v)]                                                                                              (1)

In closed form for rectifiers (Cho and Saul 2009) and for the error function (Williams 1997):

    relu   sqrt(a b) (sqrt(1 - r^2) + (pi - acos r) r) / 2 pi,      erf   2 / pi asin(2 c / sqrt((1 + 2a)(1 + 2b)))  (2)

For other smooth ones it is a series in the normalised Hermite polynomials h_k, with coefficients by the trapezoidal
rule, which converges geometrically for analytic functions:

    sum_k phi_k(a) phi_k(b) r^k,   phi_k(a) = E[phi(sqrt(a) z) h_k(z)],   z ~ N(0, 1)                              (3)

Every partial sum is a positive semidefinite kernel. With 64 terms its relative error off the diagonal is below 1e-6
for tanh up to variance 3 and r = 0.99, 1e-4 up to variance 10, and 1e-2 at variance 50, where tanh is nearly a step.
The diagonal is integrated by itself. Everything here is float64 and can be differentiated.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

__all__ = ["Erf", "dual", "is_known", "second_moment"]

TERMS = 64
NODES, REACH = 401, 12.0  # of the trapezoidal rule for (3)
NEARLY_ONE = 1.0 - 1e-12  # of a correlation: the derivative of acos has no end at 1


class Erf(nn.Module):
    """The error function as an activation: `torch.erf`, whose infinitely wide layer has a closed form."""

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.erf(inputs)


SMOOTH: dict[type[nn.Module], Callable[[Tensor], Tensor]] = {
    nn.Tanh: torch.tanh,
    nn.Sigmoid: torch.sigmoid,
    nn.SiLU: nn.functional.silu,
    nn.Softplus: nn.functional.softplus,
    nn.GELU: nn.functional.gelu,
}
CLOSED = (nn.Identity, nn.ReLU, nn.LeakyReLU, Erf)


def is_known(module: nn.Module) -> bool:
    """Whether an activation has a dual here. Softplus with another beta and the approximate GELU have none."""
    if type(module) is nn.Softplus:
        return module.beta == 1.0
    if type(module) is nn.GELU:
        return module.approximate == "none"
    return type(module) in CLOSED or type(module) in SMOOTH


def _rectified(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The first of (2)."""
    size = (a * b).sqrt().clamp_min(1e-300)
    r = (c / size).clamp(-NEARLY_ONE, NEARLY_ONE)
    return size * ((1.0 - r.square()).sqrt() + (math.pi - torch.acos(r)) * r) / (2.0 * math.pi)


def _series(function: Callable[[Tensor], Tensor], a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Equation (3) for a (..., n, 1), b (..., 1, m) and c (..., n, m), by Horner's rule."""
    left, right = _coefficients(function, a[..., 0]), _coefficients(function, b[..., 0, :])
    r = (c / (a * b).sqrt().clamp_min(1e-300)).clamp(-1.0, 1.0)
    total = torch.zeros_like(c)
    for k in reversed(range(TERMS)):
        total = total * r + left[..., :, None, k] * right[..., None, :, k]
    return total


def _coefficients(function: Callable[[Tensor], Tensor], variance: Tensor) -> Tensor:
    """phi_k of (3) for variances (..., n): (..., n, 64)."""
    z = torch.linspace(-REACH, REACH, NODES, dtype=variance.dtype, device=variance.device)
    density = torch.exp(-0.5 * z.square()) * (2.0 * REACH / (NODES - 1) / math.sqrt(2.0 * math.pi))
    rows = [density, z * density]
    for k in range(1, TERMS - 1):
        rows.append((z * rows[k] - math.sqrt(k) * rows[k - 1]) / math.sqrt(k + 1.0))
    return function(variance.clamp_min(1e-300).sqrt()[..., None] * z) @ torch.stack(rows, dim=1)


def dual(module: nn.Module, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Equation (1) for variances a (..., n), b (..., m) and covariances c (..., n, m): (..., n, m)."""
    a, b = a[..., :, None], b[..., None, :]
    if type(module) is nn.Identity:
        return c
    if type(module) is nn.ReLU:
        return _rectified(a, b, c)
    if type(module) is nn.LeakyReLU:  # relu(u) - s relu(-u)
        slope = module.negative_slope
        return (1.0 + slope**2) * _rectified(a, b, c) - 2.0 * slope * _rectified(a, b, -c)
    if type(module) is Erf:
        inside = 2.0 * c / ((1.0 + 2.0 * a) * (1.0 + 2.0 * b)).sqrt()
        return 2.0 / math.pi * torch.asin(inside)
    return _series(SMOOTH[type(module)], a, b, c)


def second_moment(module: nn.Module, a: Tensor) -> Tensor:
    """E[phi(u)^2], which is (1) on the diagonal: (..., n) to (..., n)."""
    if type(module) in SMOOTH:
        z = torch.linspace(-REACH, REACH, NODES, dtype=a.dtype, device=a.device)
        density = torch.exp(-0.5 * z.square()) * (2.0 * REACH / (NODES - 1) / math.sqrt(2.0 * math.pi))
        return SMOOTH[type(module)](a.clamp_min(1e-300).sqrt()[..., None] * z).square() @ density
    if type(module) is nn.ReLU:
        return 0.5 * a
    if type(module) is nn.LeakyReLU:
        return 0.5 * (1.0 + module.negative_slope**2) * a
    if type(module) is Erf:
        return 2.0 / math.pi * torch.asin(2.0 * a / (1.0 + 2.0 * a))
    return a
