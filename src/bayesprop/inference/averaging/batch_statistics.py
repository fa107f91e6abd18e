"""Statistics of BatchNorm for weights that were never trained with: computed anew from the data.

A layer that normalises by running averages has those of the weights that training passed through. Averaged or sampled
weights have activations of another size, and need their own: one pass over the data in training mode, in which the k-th
batch counts 1 / k, so that the averages end as plain means over all batches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from bayesprop.model import Batch, Model
from bayesprop.rng import Rng, Stream, quarantine

__all__ = ["normalising", "renewed"]


def normalising(model: Model) -> list[Any]:
    """The modules of a network that keep running averages and are trained."""
    return [
        module
        for module in model.network.modules()
        if isinstance(module, nn.modules.batchnorm._NormBase)
        and module.running_mean is not None
        and not any(module is other for other in model._always_eval)
    ]


@contextlib.contextmanager
def _momentum(modules: list[Any], value: float) -> Iterator[None]:
    before = [module.momentum for module in modules]
    try:
        for module in modules:
            module.momentum = value
        yield
    finally:
        for module, momentum in zip(modules, before, strict=True):
            module.momentum = momentum


@torch.no_grad()
def renewed(
    model: Model, theta: Tensor, buffers: dict[str, Tensor], epoch: Callable[[], Iterator[Batch]], rng: Rng
) -> dict[str, Tensor]:
    """Buffers for each row of theta (particles, rows, columns): (particles, rows, ...).

    Each batch is seen by all rows, one after the other: activations of a single row are held at a time.
    """
    model.set_mode(True)
    modules, rows = normalising(model), theta.shape[1]
    found = [{name: buffer.clone() for name, buffer in buffers.items()} for _ in range(rows)]
    for number, batch in enumerate(epoch()):
        with _momentum(modules, 1.0 / (number + 1)):
            for row in range(rows):
                step = rng.at(number * rows + row)
                guard = (
                    quarantine(step.integer(Stream.GLOBAL), model.device)
                    if model.draws_globally
                    else contextlib.nullcontext()
                )
                with guard:
                    model.log_likelihood(theta[:, row, None], found[row], batch)
    return {name: torch.stack([each[name] for each in found], dim=1) for name in buffers}
