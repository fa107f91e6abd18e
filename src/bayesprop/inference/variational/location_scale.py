"""The three shapes of a Gaussian over columns, as maps of white noise: what ADVI needs to know of each.

A draw is theta = m + s y with s = log(1 + exp(rho)) and y = z (independent), y = z + C^T u (low rank) or y = (1 + B) z
(full rank, B strictly lower). With R the covariance of y,

    R = 1,    1 + C^T C,    (1 + B)(1 + B)^T                                                                      (1)
    log det = 2 sum log s + log det R,        d log q / d theta = -R^-1 y / s                                     (2)

where det R is 1, det(1 + C C^T) (of r x r) and 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bayesprop.model import Model
from bayesprop.posteriors import DiagonalGaussian, FullGaussian, LowRankGaussian, Posterior
from bayesprop.rng import Rng, Stream

__all__ = ["COVARIANCES", "descent", "log_det", "posterior", "start", "white"]

COVARIANCES = ("mean field", "low rank", "full rank")
STARTING_FACTOR = 0.01  # deviation of the numbers in C at the start; where all are 0 they have no gradient


def start(covariance: str, rho: Tensor, rank: int, rng: Rng, skip: int) -> dict[str, Tensor]:
    """rho as given (particles, W), and no correlation yet (next to none, at low rank). The first `skip` numbers of the
    stream are spoken for: they are the noise of the means."""
    particles, width = rho.shape
    if covariance == "low rank":
        drawn = rng.normal(skip + rank * width, Stream.INITIAL, dtype=rho.dtype)[:, 0, skip:]
        return {"rho": rho, "factors": STARTING_FACTOR * drawn.reshape(particles, rank, width)}
    if covariance == "full rank":
        return {"rho": rho, "lower": rho.new_zeros(particles, width, width)}
    return {"rho": rho}


def white(shape: dict[str, Tensor], noise: Tensor, width: int) -> Tensor:
    """y (particles, draws, W) of noise (particles, draws, W, or W + r)."""
    if "factors" in shape:
        return noise[..., :width] + noise[..., width:] @ shape["factors"]
    if "lower" in shape:
        return noise + noise @ shape["lower"].tril(-1).transpose(1, 2)
    return noise


def descent(shape: dict[str, Tensor], y: Tensor) -> Tensor:
    """R^-1 y, for y (particles, draws, W)."""
    if "factors" in shape:
        factors = shape["factors"]
        inner = torch.linalg.solve(_capacity(factors), factors @ y.transpose(1, 2))
        return y - inner.transpose(1, 2) @ factors
    if "lower" in shape:
        lower = shape["lower"]
        half = torch.linalg.solve_triangular(lower, y.transpose(1, 2), upper=False, unitriangular=True)
        transposed = lower.transpose(1, 2)
        return torch.linalg.solve_triangular(transposed, half, upper=True, unitriangular=True).transpose(1, 2)
    return y


def log_det(shape: dict[str, Tensor], std: Tensor) -> Tensor:
    """Half the log-determinant of the covariance, (particles,): the entropy of q but for a constant."""
    half = std.log().sum(1)
    if "factors" in shape:
        half = half + 0.5 * torch.linalg.slogdet(_capacity(shape["factors"]))[1]
    return half


def posterior(
    model: Model, mean: Tensor, shape: dict[str, Tensor], std: Tensor, buffers: dict[str, Tensor]
) -> Posterior:
    """The Gaussian itself."""
    if "factors" in shape:
        return LowRankGaussian(model, mean, std, shape["factors"] * std[:, None], buffers)
    if "lower" in shape:
        factor = shape["lower"].tril(-1)
        factor = (factor + torch.eye(factor.shape[1], dtype=factor.dtype, device=factor.device)) * std[:, :, None]
        return FullGaussian(model, mean, factor, buffers)
    return DiagonalGaussian(model, mean, std, buffers)


def _capacity(factors: Tensor) -> Tensor:
    """1 + C C^T, (particles, r, r)."""
    eye = torch.eye(factors.shape[1], dtype=factors.dtype, device=factors.device)
    return eye + factors @ factors.transpose(1, 2)
