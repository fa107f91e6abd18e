"""Derivatives of a network's outputs by its columns: for each row a matrix, without any step of a training.

The network is in evaluation mode, where rows do not touch one another (BatchNorm uses its running averages, dropout is
off), and rows are lanes: `vmap` of the Jacobian of one row where the network can be batched, and backward passes row by
row where it cannot (native LSTMs).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bayesprop import lanes
from bayesprop.model import Model

__all__ = ["jacobian"]


def jacobian(
    model: Model, theta: Tensor, buffers: Mapping[str, Tensor], inputs: Any, columns: Tensor
) -> tuple[Tensor, Tensor]:
    """Outputs (rows, ...) of the network with the one row theta (D,), and their derivatives by the columns with these
    numbers, (rows, K, M): K is the number of outputs of a row. `buffers` are those of the particle, without an axis."""
    theta, rows = theta.detach(), pytree.tree_leaves(inputs)[0].shape[0]
    leaves, numbers = _leaves(model, theta, columns)

    def outputs(moving: Mapping[str, Tensor], own: dict[str, Tensor], row: Any) -> Tensor:
        weights = _weights(model, theta, moving, columns)
        return model.forward(weights, own, pytree.tree_map(lambda t: t.unsqueeze(0), row))

    def batched(own: dict[str, Tensor], row: Any) -> tuple[Tensor, dict[str, Tensor]]:
        def twice(moving: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            found = outputs(moving, own, row)
            return found, found

        derivative, value = torch.func.jacrev(twice, has_aux=True)(leaves)
        return value, {name: d.reshape(value.numel(), -1) for name, d in derivative.items()}

    def one_by_one(own: dict[str, Tensor], row: Any) -> tuple[Tensor, dict[str, Tensor]]:
        moving = {name: leaf.detach().requires_grad_(True) for name, leaf in leaves.items()}
        with torch.enable_grad():
            found = outputs(moving, own, row)
            if not found.requires_grad:  # none of these columns reaches the output
                return found, {name: leaf.new_zeros(found.numel(), leaf.numel()) for name, leaf in moving.items()}
            wanted = list(moving.values())
            each = [
                torch.autograd.grad(part, wanted, retain_graph=True, materialize_grads=True) for part in found.flatten()
            ]
        stacked = [torch.stack(pieces).reshape(len(each), -1) for pieces in zip(*each, strict=True)]
        return found.detach(), dict(zip(moving, stacked, strict=True))

    copies = {n: b[0] for n, b in model.spread_buffers({n: b[None] for n, b in buffers.items()}, rows).items()}
    function = batched if model.vectorised else one_by_one
    with contextlib.ExitStack() as stack:
        if model.vectorised:
            stack.enter_context(lanes.batchable())
        if any(isinstance(module, nn.RNNBase) for module in model.network.modules()):
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))  # it refuses derivatives in evaluation mode
        value, derivative = lanes.run(
            function, (copies, inputs), ("P", "P"), particles=rows, draws=1, vectorised=model.vectorised
        )
    value = value.detach().reshape(rows, *value.shape[3:])
    pieces = [derivative[name].detach().to(theta.dtype).reshape(rows, value[0].numel(), -1) for name in leaves]
    whole = torch.cat(pieces, dim=-1) if pieces else theta.new_zeros(rows, value[0].numel(), 0)
    if torch.equal(numbers, columns):
        return value, whole
    # Columns that are no weights, such as a noise scale, do not move the outputs: they take the zeros at the end.
    place = torch.full((model.layout.size,), len(numbers), device=theta.device)
    place[numbers] = torch.arange(len(numbers), device=theta.device)
    return value, torch.nn.functional.pad(whole, (0, 1))[..., place[columns]]


def _leaves(model: Model, theta: Tensor, columns: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """What is differentiated by, and the numbers of its columns in their order.

    The parameters that hold any of the columns: a derivative through the row that they are cut from would cost as much
    as all columns for each output, and none below the first layer that moves is needed. Where scales are multiplied in,
    a weight depends on columns elsewhere, and it is the columns themselves.
    """
    if not model.bound_prior.centred:
        return {"": theta[columns]}, columns
    chosen = torch.zeros(model.layout.size, dtype=torch.bool, device=theta.device)
    chosen[columns] = True
    blocks = [b for b in model.layout.of_kind("random", "point") if bool(chosen[b.columns].any())]
    numbers = [torch.arange(b.start, b.stop, device=theta.device) for b in blocks]
    return {b.name: theta[b.columns].reshape(b.shape) for b in blocks}, torch.cat(numbers or [columns[:0]])


def _weights(model: Model, theta: Tensor, moving: Mapping[str, Tensor], columns: Tensor) -> dict[str, Tensor]:
    """The network's parameters from the row theta and what moves of it."""
    if not model.bound_prior.centred:
        return model.weights(theta.index_put((columns,), moving[""]))
    named = model.layout.unflatten(theta, ("random", "point"))
    named.update({name: leaf.to(named[name].dtype) for name, leaf in moving.items()})
    return model.hold_padding(named)
