"""The curvature of a likelihood in a network's outputs, as a square root that is applied to a Jacobian.

With eta_i what the likelihood sees of row i, the outputs f_i and the unconstrained latents such as a log noise scale,
and J_i its Jacobian by theta, the generalised Gauss-Newton matrix is

    G = sum_i J_i^T F_i J_i = sum_i A_i^T A_i,      F_i = E_y[-d^2 log p(y | eta_i) / d eta_i^2] = R_i R_i^T,
    A_i = R_i^T J_i                                                                                              (1)

F is the Fisher information, which is never indefinite and, for outputs that are natural parameters, is the Hessian:

    Gaussian              1 / s^2 for the mean, 2 for log s                                  (no cross term)
    HeteroscedasticGaussian   1 / s^2 for the mean, 2 (ds/dr)^2 / s^2 for the raw scale r    (no cross term)
    StudentT              (d + 1) / ((d + 3) s^2) for the centre, 2 d / (d + 3) for log s    (no cross term)
    Bernoulli, Poisson    p (1 - p), the rate
    Categorical           diag(p) - p p^T, whose root applied to J is sqrt(p_k) (J_k - sum_j p_j J_j)

For other likelihoods the Hessian of -log p(y_i | eta_i) at the observed target is found by autograd, and its part with
positive eigenvalues taken: the whole of it where log p is concave in the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import softplus

from bayesprop.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    Poisson,
    StudentT,
)
from bayesprop.likelihoods.heteroscedastic_gaussian import SCALE_FLOOR
from bayesprop.likelihoods.likelihood import widen
from bayesprop.likelihoods.noise_scale import scale_value

__all__ = ["latents_of", "whitened"]


def latents_of(likelihood: Likelihood, columns: Tensor) -> dict[str, Tensor]:
    """Constrained values of the likelihood's latents by name from their unconstrained columns (L,), in order."""
    found, first = {}, 0
    for latent in likelihood.latents:
        found[latent.name] = latent.constrain(columns[..., first : first + latent.size])
        first += latent.size
    return found


def whitened(likelihood: Likelihood, outputs: Tensor, targets: Tensor, columns: Tensor, jacobian: Tensor) -> Tensor:
    """A of equation (1), (rows, R, M), from outputs (rows, ...), targets, the latents' columns (L,) and the Jacobian
    (rows, K + L, M) of the K outputs of a row and of the latents."""
    outputs = widen(outputs)
    if type(likelihood) is Categorical:
        probability = outputs.softmax(1).unsqueeze(-1)
        by_class = jacobian.reshape(*outputs.shape, -1)
        centred = by_class - (probability * by_class).sum(1, keepdim=True)
        return (probability.sqrt() * centred).reshape(jacobian.shape)
    weights = _weights(likelihood, outputs, latents_of(likelihood, columns))
    if weights is not None:
        return weights.to(jacobian.dtype).sqrt()[..., None] * jacobian
    return _root_by_autograd(likelihood, outputs, targets, columns).to(jacobian.dtype) @ jacobian


def _weights(likelihood: Likelihood, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor | None:
    """The diagonal of F, (rows, K + L), where F is diagonal; None where that is not known.

    Only of the classes themselves: one that inherits may have changed the density.
    """
    rows, count = outputs.shape[0], outputs[0].numel()
    if type(likelihood) in (Gaussian, StudentT):
        assert isinstance(likelihood, Gaussian | StudentT)
        df = likelihood.df if isinstance(likelihood, StudentT) else float("inf")
        location, of_scale = (1.0, 2.0) if df == float("inf") else ((df + 1.0) / (df + 3.0), 2.0 * df / (df + 3.0))
        scale = scale_value(likelihood.scale, latents, outputs)
        weights = torch.ones_like(outputs).reshape(rows, -1) * (location / scale**2)
        return torch.cat((weights, weights.new_full((rows, len(likelihood.latents)), of_scale * count)), dim=1)
    if type(likelihood) is HeteroscedasticGaussian:
        raw = outputs.chunk(2, dim=1)[1]
        precision = (softplus(raw) + SCALE_FLOOR) ** -2
        return torch.cat((precision, 2.0 * precision * torch.sigmoid(raw).square()), dim=1).reshape(rows, -1)
    if type(likelihood) is Bernoulli:
        return (torch.sigmoid(outputs) * torch.sigmoid(-outputs)).reshape(rows, -1)
    if type(likelihood) is Poisson:
        return outputs.exp().reshape(rows, -1)
    return None


def _root_by_autograd(likelihood: Likelihood, outputs: Tensor, targets: Tensor, columns: Tensor) -> Tensor:
    """R^T, (rows, K + L, K + L): the positive part of the Hessian at the observed targets."""
    count, shape = outputs[0].numel(), outputs.shape[1:]
    eta = torch.cat((outputs.reshape(len(outputs), -1), columns.to(outputs).expand(len(outputs), -1)), dim=1)

    def negative(row: Tensor, target: Tensor) -> Tensor:
        latents = latents_of(likelihood, row[count:])
        return -likelihood.log_prob(row[:count].reshape(1, *shape), target[None], latents)[0]

    hessian = torch.func.vmap(torch.func.jacrev(torch.func.grad(negative)))(eta, targets)
    values, vectors = torch.linalg.eigh(0.5 * (hessian + hessian.transpose(1, 2)))
    return values.clamp_min(0.0).sqrt()[..., None] * vectors.transpose(1, 2)
