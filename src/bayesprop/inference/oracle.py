"""What a method may ask a model: the log-likelihood of a minibatch, the log joint, and their gradients by theta.

Both are on the scale of the full data: N / n times the sum over n rows. Between methods and networks there is nothing
else, so that a method is arithmetic on matrices (particles, columns).
"""

from __future__ import annotations

import torch
from torch import Tensor

from bayesprop.model import Batch, Model

__all__ = ["draws_gradient", "joint_gradient", "likelihood_gradient", "prior_score"]


def likelihood_gradient(model: Model, theta: Tensor, buffers: dict[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor]:
    """N / n sum_rows log p(y | x, theta), (particles,), and its gradient by theta (particles, columns)."""
    scale = batch.num_data / batch.rows
    if theta.shape[0] > 1 or not model.bound_prior.centred:
        leaf = theta.detach()[:, None].requires_grad_(True)
        with torch.enable_grad():
            value = model.log_likelihood(leaf, buffers, batch)[:, 0]
            (gradient,) = torch.autograd.grad(value.sum(), leaf, materialize_grads=True)
        return value.detach() * scale, gradient[:, 0] * scale
    # A single network is differentiated by each parameter itself: cutting a row into parameters inside of the graph
    # would make autograd add one row of zeros for each of them.
    row, layout = theta.detach()[0], model.layout
    leaves = [row[b.columns].view(b.shape).requires_grad_(True) for b in layout.of_kind("random")]
    rest = row[layout.random :].requires_grad_(True)
    with torch.enable_grad():
        value = model.row_log_likelihood(leaves, rest, buffers, batch)
        found = torch.autograd.grad(value, (*leaves, rest), materialize_grads=True)
    gradient = torch.cat([piece.reshape(1, -1) for piece in found], dim=1)
    return value.detach()[None] * scale, gradient.mul_(scale)


def joint_gradient(model: Model, theta: Tensor, buffers: dict[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor]:
    """The log-likelihood as `likelihood_gradient` gives it, and the gradient of

        log p(theta, D) = N / n sum_rows log p(y | x, theta) + log p(theta)                                     (1)

    by theta. Columns of point estimates have no prior.
    """
    value, gradient = likelihood_gradient(model, theta, buffers, batch)
    width = model.layout.latent
    gradient[:, :width] += prior_score(model, theta[:, :width])
    return value, gradient


def draws_gradient(model: Model, theta: Tensor, buffers: dict[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor]:
    """`likelihood_gradient` for several draws: theta (particles, draws, columns), the value (particles, draws)."""
    if theta.shape[1] == 1:
        value, gradient = likelihood_gradient(model, theta[:, 0], buffers, batch)
        return value[:, None], gradient[:, None]
    scale, leaf = batch.num_data / batch.rows, theta.detach().requires_grad_(True)
    with torch.enable_grad():
        value = model.log_likelihood(leaf, buffers, batch)
        (gradient,) = torch.autograd.grad(value.sum(), leaf, materialize_grads=True)
    return value.detach() * scale, gradient * scale


def prior_score(model: Model, theta: Tensor, *, skip_weights: bool = False) -> Tensor:
    """d log p(theta) / d theta of the unconstrained columns (..., columns with a distribution)."""
    score = torch.zeros_like(theta) if skip_weights else model.bound_prior.score(theta)
    for latent in model.likelihood.latents:
        columns = model.layout.by_name[latent.name].columns
        score[..., columns] = latent.unconstrained_score(theta[..., columns])
    return score
