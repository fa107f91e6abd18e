"""From precision matrices to a Gaussian and its evidence: equations (1) of `laplace` and `prior_curvature`.

The covariance's lower Cholesky factor comes from the precision without an inverse: with the precision P = U U^T, U
upper triangular (the Cholesky factor of P read backwards), it is U^-T.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.inference.laplace.prior_curvature import (
    log_prior_of,
    prior_precision,
    strongest_factor,
    unexplained,
)
from bayesprop.model import Model

__all__ = ["covariance_factor", "diagonal_law", "full_law"]

Factor = float | Literal["evidence"]


def covariance_factor(precision: Tensor) -> tuple[Tensor, Tensor]:
    """The lower Cholesky factor of the inverse of one matrix (M, M), and the log determinant of the matrix itself."""
    backwards, info = torch.linalg.cholesky_ex(precision.flip(0, 1))
    if int(info) != 0:
        raise _indefinite(f"a matrix of {len(precision):,} columns that is not positive definite")
    upper = backwards.flip(0, 1)
    one = torch.eye(len(precision), dtype=precision.dtype, device=precision.device)
    factor = torch.linalg.solve_triangular(upper, one, upper=True).T.contiguous()
    return factor, 2.0 * upper.diagonal().log().sum()


def full_law(
    model: Model, theta: Tensor, matrix: Tensor, value: Tensor, columns: Tensor, factor: Factor
) -> tuple[Tensor, Tensor]:
    """The covariance's factor (particles, M, M) and the evidence (particles, 2), from G (particles, M, M) and the
    log-likelihood (particles,). G is overwritten."""
    prior = prior_precision(model, theta)
    weights = columns < model.layout.random

    def eigenvalues(particle: int) -> Tensor:
        """Those of H^-1/2 G H^-1/2 over the weights, latents integrated out."""
        whole = matrix[particle] + torch.diag(prior[particle, columns].double() * ~weights)
        inner, across = whole[weights][:, weights], whole[weights][:, ~weights]
        inner = inner - across @ torch.linalg.solve(whole[~weights][:, ~weights], across.T)
        root = prior[particle, columns[weights]].double().rsqrt()
        return torch.linalg.eigvalsh(root[:, None] * inner * root)

    factors = _factors(model, theta, prior, columns[weights], factor, eigenvalues)
    found, log_det = [], []
    for particle, strength in enumerate(factors):
        own = torch.where(weights, strength, 1.0) * prior[particle, columns].double()
        matrix[particle].diagonal().add_(own)
        lower, determinant = covariance_factor(matrix[particle])
        found.append(lower.to(theta.dtype))
        log_det.append(determinant)
    return torch.stack(found), _evidence(model, theta, prior, columns, value, factors, torch.stack(log_det))


def diagonal_law(
    model: Model, theta: Tensor, matrix: Tensor, value: Tensor, columns: Tensor, factor: Factor
) -> tuple[Tensor, Tensor]:
    """Standard deviations (particles, M) and the evidence (particles, 2), from the diagonal of G (particles, M)."""
    prior = prior_precision(model, theta)
    weights = columns < model.layout.random

    def eigenvalues(particle: int) -> Tensor:
        return matrix[particle, weights] / prior[particle, columns[weights]].double()

    factors = _factors(model, theta, prior, columns[weights], factor, eigenvalues)
    precision = matrix + torch.where(weights, factors[:, None], 1.0) * prior[:, columns].double()
    if not bool((precision > 0).all()):
        number = columns[(precision <= 0).any(0)][0].item()
        name = next(block.name for block in model.layout.blocks if block.start <= number < block.stop)
        raise _indefinite(f"a precision of {float(precision.min()):.3g} in {name}")
    evidence = _evidence(model, theta, prior, columns, value, factors, precision.log().sum(1))
    return precision.rsqrt().to(theta.dtype), evidence


def _factors(
    model: Model,
    theta: Tensor,
    prior: Tensor,
    columns: Tensor,
    factor: Factor,
    eigenvalues: Callable[[int], Tensor],
) -> Tensor:
    """The factor on the prior's precision for each particle, float64."""
    if factor != "evidence":
        return torch.full((len(theta),), float(factor), dtype=torch.float64, device=theta.device)
    values = torch.stack([eigenvalues(particle) for particle in range(len(theta))])
    return strongest_factor(values, unexplained(model, theta, prior, columns))


def _evidence(
    model: Model, theta: Tensor, prior: Tensor, columns: Tensor, value: Tensor, factors: Tensor, log_det: Tensor
) -> Tensor:
    """Equation (1) of `prior_curvature`, and the factors: (particles, 2) in theta's dtype."""
    log_prior = log_prior_of(model, theta, columns)
    if bool((factors != 1.0).any()):
        weights = columns[columns < model.layout.random]
        quadratic = unexplained(model, theta, prior, weights)
        log_prior = log_prior + 0.5 * len(weights) * factors.log() - 0.5 * (factors - 1.0) * quadratic
    found = value + log_prior + 0.5 * len(columns) * math.log(2.0 * math.pi) - 0.5 * log_det
    return torch.stack((found, factors), dim=1).to(theta.dtype)


def _indefinite(received: str) -> ConfigurationError:
    return ConfigurationError(
        "the log joint has no maximum at the point where training ended, so there is no Gaussian around it",
        received=received,
        expected="a precision that is positive in every direction: a longer training, or a prior that has a curvature "
        "everywhere",
        write="bp.Model(network, prior=bp.priors.Normal(scale=1.0), ...)",
    )
