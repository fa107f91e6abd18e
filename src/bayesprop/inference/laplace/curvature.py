"""One pass over the data: the generalised Gauss-Newton matrix of the log-likelihood, by a Jacobian for each row.

The network is in evaluation mode, as `posteriors.jacobian` says. Sums are float64.

Each row of the data counts once: the last minibatch of an epoch is filled up with rows that were seen before, and those
are cut off. A stream that brings fewer rows than N is scaled to N, as it is in training.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bayesprop.inference.laplace.output_fisher import latents_of, whitened
from bayesprop.model import Batch, Model
from bayesprop.posteriors.jacobian import jacobian
from bayesprop.rng import Rng, Stream, quarantine

__all__ = ["counted_rows", "observed_precision", "pieces", "surroundings"]

JACOBIAN_BUDGET = 8_000_000  # numbers of a Jacobian that are held at a time


def observed_precision(
    model: Model,
    theta: Tensor,
    buffers: Mapping[str, Tensor],
    epoch: Callable[[], Iterator[Batch]],
    rng: Rng,
    columns: Tensor,
    *,
    diagonal: bool,
) -> tuple[Tensor, Tensor]:
    """The Gauss-Newton matrix (particles, M, M) over these columns, or its diagonal (particles, M), and the
    log-likelihood (particles,), of the full data at theta (particles, D); both float64."""
    model.set_mode(False)
    particles, width = theta.shape[0], len(columns)
    total = torch.zeros(particles, width, *(() if diagonal else (width,)), dtype=torch.float64, device=theta.device)
    value = torch.zeros(particles, dtype=torch.float64, device=theta.device)
    seen, expected = 0, 1
    for number, (batch, rows) in enumerate(counted_rows(epoch)):
        seen, expected = seen + rows, batch.num_data
        for particle in range(particles):
            inputs, targets = pytree.tree_map(lambda t, p=particle, n=rows: t[p, :n], (batch.inputs, batch.targets))
            own = {name: buffer[particle] for name, buffer in buffers.items()}
            with surroundings(model, rng.at(number)):
                for matrix, log_likelihood in pieces(model, theta[particle], own, inputs, targets, columns):
                    flat = matrix.flatten(0, 1)
                    total[particle] += (flat.square().sum(0) if diagonal else flat.T @ flat).double()
                    value[particle] += log_likelihood
    scale = expected / max(1, seen)
    return total.mul_(scale), value.mul_(scale)


def counted_rows(epoch: Callable[[], Iterator[Batch]]) -> Iterator[tuple[Batch, int]]:
    """The minibatches of an epoch, and how many rows of each were not seen before."""
    seen = 0
    for batch in epoch():
        rows = min(batch.rows, batch.num_data - seen)
        if rows > 0:
            yield batch, rows
        seen += rows


def pieces(
    model: Model, theta: Tensor, buffers: Mapping[str, Tensor], inputs: Any, targets: Tensor, columns: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """A of equation (1) in `output_fisher` and the log-likelihood, for so many rows at a time as fit."""
    likelihood, rows = model.likelihood, targets.shape[0]
    names = [model.layout.by_name[latent.name] for latent in likelihood.latents]
    numbers = torch.cat([torch.arange(b.start, b.stop, device=theta.device) for b in names] or [columns[:0]])
    of_latents = (numbers[:, None] == columns[None, :]).to(theta.dtype)
    first, step = 0, 1  # the first row says how many outputs there are
    while first < rows:
        part = slice(first, min(first + step, rows))
        piece = pytree.tree_map(lambda t, part=part: t[part], inputs)
        outputs, derivative = jacobian(model, theta, buffers, piece, columns)
        wide = torch.cat((derivative, of_latents.expand(len(outputs), *of_latents.shape)), dim=1)
        values = theta.detach()[numbers]
        with torch.no_grad():
            found = likelihood.log_prob(outputs, targets[part], latents_of(likelihood, values))
        yield whitened(likelihood, outputs, targets[part], values, wide), found.double().sum()
        first, step = part.stop, max(1, JACOBIAN_BUDGET // max(1, wide[0].numel()))


@contextlib.contextmanager
def surroundings(model: Model, rng: Rng) -> Iterator[None]:
    """The generator of torch for networks that draw from it also in evaluation, and no cuDNN under recurrent ones,
    whose backward pass it refuses there."""
    with contextlib.ExitStack() as stack:
        if model.draws_globally:
            stack.enter_context(quarantine(rng.integer(Stream.GLOBAL), model.device))
        if model.device.type == "cuda" and any(isinstance(m, nn.RNNBase) for m in model.network.modules()):
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        yield
