"""From precision matrices to a Gaussian and its evidence: equations (1) of `laplace` and `prior_curvature`.

The covariance's lower Cholesky factor comes from the precision without an inverse: with the precision P = U U^T, U
upper triangular (the Cholesky factor of P read backwards), it is U^-T.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.inference.laplace.kronecker import Factors
from bayesprop.inference.laplace.noise import strongest_noise
from bayesprop.inference.laplace.prior_curvature import (
    log_prior_of,
    prior_precision,
    strongest_factor,
    unexplained,
)
from bayesprop.model import Model

__all__ = ["Factor", "covariance_factor", "diagonal_law", "full_law", "full_spectrum", "renewed_noise", "rotated"]

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
        return full_spectrum(matrix[particle], prior[particle], columns, weights)

    factors = _factors(model, theta, prior, columns[weights], factor, eigenvalues)
    found, log_det = [], []
    for particle, strength in enumerate(factors):
        own = torch.where(weights, strength, 1.0) * prior[particle, columns].double()
        matrix[particle].diagonal().add_(own)
        lower, determinant = covariance_factor(matrix[particle])
        found.append(lower.to(theta.dtype))
        log_det.append(determinant)
    return torch.stack(found), _evidence(model, theta, prior, columns, value, factors, torch.stack(log_det))


def full_spectrum(matrix: Tensor, prior: Tensor, columns: Tensor, weights: Tensor) -> Tensor:
    """The eigenvalues of H^-1/2 G H^-1/2 over the weights of one particle, latents integrated out."""
    whole = matrix + torch.diag(prior[columns].double() * ~weights)
    inner, across = whole[weights][:, weights], whole[weights][:, ~weights]
    inner = inner - across @ torch.linalg.solve(whole[~weights][:, ~weights], across.T)
    root = prior[columns[weights]].double().rsqrt()
    return torch.linalg.eigvalsh(root[:, None] * inner * root)


def renewed_noise(
    model: Model, theta: Tensor, matrix: Tensor, value: Tensor, columns: Tensor, factor: Factor, count: int
) -> Tensor:
    """Puts the noise scale with the greatest evidence into theta and rescales G, a diagonal or a matrix, to it, both in
    place; returns the log-likelihood there."""
    prior, weights = prior_precision(model, theta), columns < model.layout.random
    chosen = columns[weights]
    if matrix.dim() == 2:
        values = matrix[:, weights] / prior[:, chosen].double()
    else:
        spectra = [full_spectrum(matrix[p], prior[p], columns, weights) for p in range(len(theta))]
        values = torch.stack(spectra)
    place = model.layout.by_name[model.likelihood.latents[0].name].start
    quadratic = unexplained(model, theta, prior, chosen)
    found, value = strongest_noise(theta[:, place], value, count, values, quadratic, factor)
    scale = torch.exp(2.0 * (theta[:, place].double() - found))
    rows = weights.to(matrix.dtype)
    if matrix.dim() == 2:
        matrix.mul_(1.0 + (scale[:, None] - 1.0) * rows)
    else:
        matrix.mul_(1.0 + (scale[:, None, None] - 1.0) * rows[:, None] * rows)
    theta[:, place] = found.to(theta.dtype)
    return value


def rotated(model: Model, held: Mapping[str, Factors], latents: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The diagonal (particles, columns with a distribution) of Kronecker factors in the basis of their eigenvectors,
    and these: the bases of a `KroneckerGaussian`, in which `diagonal_law` holds."""
    diagonal, bases = [], {}
    for block in model.layout.of_kind("random"):
        factors = held[block.name]
        values, bases[f"left.{block.name}"] = torch.linalg.eigh(factors.left)
        values = values.clamp_min(0.0)[:, :, None]
        if factors.right is not None:
            across, bases[f"right.{block.name}"] = torch.linalg.eigh(factors.right)
            values = values * across.clamp_min(0.0)[:, None]
        diagonal.append(values.flatten(1))
    return torch.cat((*diagonal, latents), dim=1), bases


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
