"""Kronecker factors of the Gauss-Newton matrix: one pass over the data that looks into each layer.

For the weight of an operation that is linear in it, output = input W^T at the positions t of a row i of data, the rows
r of the derivative A_i in `output_fisher` are sums of outer products of inputs a and of derivatives g by the outputs:

    G_W = sum_i sum_r vec(sum_t g_irt a_it^T) vec(...)^T  ~  [ sum_irt g_irt g_irt^T ] x [ mean_it a_it a_it^T ]     (1)

which is exact for one row of data and for a linear network (Martens and Grosse 2015; for convolutions, whose inputs
are patches, Grosse and Martens 2016, "expand" of Eschenhagen et al. 2023). Inputs and derivatives are caught where the
operation happens, whatever module it is in. The bias of such an operation has its whole matrix, sum_ir g g^T with g
summed over positions.

Everything else (native recurrent layers, projections of attention, grouped convolutions, weights that are used more
than once) has the derivative V_ir of each row of data, a matrix, whose factors are the sums over its rows and columns,

    G_W ~ [ sum V V^T ] x [ sum V^T V ] / sum |V|^2,                                                                 (2)

which keep the trace; vectors (norm layers) have their whole matrix. Parameters are independent of one another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesprop.inference.laplace.curvature import counted_rows, pieces, surroundings
from bayesprop.inference.laplace.output_fisher import latents_of, whitened
from bayesprop.layout import Block
from bayesprop.model import Batch, Model
from bayesprop.posteriors.kronecker_gaussian import as_matrix
from bayesprop.random_weights import RandomWeight, Use
from bayesprop.random_weights.draw import Draw, NoiseSource
from bayesprop.random_weights.operations import Operation, read
from bayesprop.rng import Rng

__all__ = ["Factors", "kronecker_factors", "ways"]

CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)


@dataclass
class Factors:
    """Of one parameter: left (particles, n, n) over rows, right (particles, m, m) over columns, None for vectors. The
    matrix is left x right."""

    left: Tensor
    right: Tensor | None


def ways(model: Model) -> dict[str, str]:
    """How each random parameter is looked at: "layer" for equation (1), the name of the weight that it is the bias of,
    or "rows" for equation (2)."""
    assert model._uses is not None
    found, by_call = {}, {}
    for block in model.layout.of_kind("random"):
        uses = model._uses[block.name]
        if len(uses) == 1 and _is_layer(uses[0], block):
            found[block.name] = "layer"
            by_call[uses[0].call] = block.name
    for block in model.layout.of_kind("random"):
        uses = model._uses[block.name]
        if block.name not in found:
            single = len(uses) == 1 and len(block.shape) == 1
            found[block.name] = by_call.get(uses[0].call, "rows") if single else "rows"
    return found


def _is_layer(use: Use, block: Block) -> bool:
    if not use.readable or use.example_dim is None or len(block.shape) < 2:
        return False
    if use.function in CONVOLUTIONS:
        return use.input_shape[1] == block.shape[1]  # one group
    return use.function is F.linear


class _Catcher:
    """Runs an operation with the weight itself, and keeps what went in and what came out."""

    def __init__(self) -> None:
        self.caught: dict[str, tuple[Operation, Tensor]] = {}

    def weight(self, name: str, value: Tensor, use: Use) -> RandomWeight:
        def rule(function: Any) -> Any:
            return (lambda *a, **k: self._answer(name, function, *a, **k)) if function is use.function else None

        source = NoiseSource(torch.zeros(2, dtype=torch.int64, device=value.device))
        draw = Draw(value, value, torch.zeros_like(value), source)
        return RandomWeight.of(draw, rule, use.example_dim, name)

    def _answer(self, name: str, function: Any, *args: Any, **kwargs: Any) -> Any:
        operation = read(function, args, kwargs)
        if operation is None:
            return NotImplemented
        weight = operation.weight.draw.mean if isinstance(operation.weight, RandomWeight) else operation.weight
        output = operation.apply(operation.input, weight, operation.bias)
        if not output.requires_grad:
            output.requires_grad_(True)
        self.caught[name] = (operation, output)
        return output


def _flat(operation: Operation, block: Block, output: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs (rows, positions, m) and derivatives by outputs (rows, positions, n) of one operation."""
    rows = output.shape[0]
    if operation.form == "linear":
        return operation.input.reshape(rows, -1, block.shape[1]), gradient.reshape(rows, -1, block.shape[0])
    width = as_matrix(block)[1]
    identity = torch.eye(width, dtype=output.dtype, device=output.device).reshape(width, *block.shape[1:])
    patches = operation.apply(operation.input, identity, None)
    return patches.flatten(2).transpose(1, 2), gradient.flatten(2).transpose(1, 2)


def kronecker_factors(
    model: Model,
    theta: Tensor,
    buffers: Mapping[str, Tensor],
    epoch: Callable[[], Iterator[Batch]],
    rng: Rng,
) -> tuple[dict[str, Factors], Tensor, Tensor]:
    """The factors of all random parameters by name, the diagonal (particles, latents) for a noise scale, and the
    log-likelihood (particles,) of the full data at theta (particles, D); all float64."""
    model.set_mode(False)
    layout, particles, how = model.layout, theta.shape[0], ways(model)
    options: dict[str, Any] = {"dtype": torch.float64, "device": theta.device}
    held: dict[str, Factors] = {}
    for block in layout.of_kind("random"):
        height, width = as_matrix(block)
        right = torch.zeros(particles, width, width, **options) if width > 1 or how[block.name] == "layer" else None
        held[block.name] = Factors(torch.zeros(particles, height, height, **options), right)
    latents = torch.zeros(particles, layout.latent - layout.random, **options)
    value, positions = torch.zeros(particles, **options), dict.fromkeys(held, 0)
    by_rows = [torch.arange(b.start, b.stop) for b in layout.of_kind("random") if how[b.name] == "rows"]
    columns = torch.cat(by_rows or [torch.arange(0)]).to(theta.device)
    seen, expected = 0, 1
    for number, (batch, rows) in enumerate(counted_rows(epoch)):
        seen, expected = seen + rows, batch.num_data
        for particle in range(particles):
            inputs, targets = pytree.tree_map(lambda t, p=particle, n=rows: t[p, :n], (batch.inputs, batch.targets))
            own = {name: buffer[particle] for name, buffer in buffers.items()}
            with surroundings(model, rng.at(number)):
                found = _layers(model, theta[particle], own, inputs, targets, how)
                value[particle] += found.log_likelihood
                latents[particle] += found.latents
                for name, (left, right, count) in found.factors.items():
                    held[name].left[particle] += left
                    if right is not None:
                        held[name].right[particle] += right  # type: ignore[index]
                        positions[name] += count if particle == 0 else 0
                for matrix, _ in pieces(model, theta[particle], own, inputs, targets, columns) if len(columns) else ():
                    _add_rows(held, particle, layout, how, matrix)
    scale = expected / max(1, seen)
    for name, factors in held.items():
        factors.left.mul_(scale)
        if how[name] == "layer" and factors.right is not None:
            factors.right.div_(max(1, positions[name]))
        elif factors.right is not None:  # equation (2)
            factors.right.div_(factors.right.diagonal(dim1=1, dim2=2).sum(-1).clamp_min(1e-300)[:, None, None])
    return held, latents.mul_(scale), value.mul_(scale)


@dataclass
class _Found:
    """What one minibatch says of one particle: (left, right, positions) by name."""

    factors: dict[str, tuple[Tensor, Tensor | None, int]]
    latents: Tensor
    log_likelihood: Tensor


def _layers(
    model: Model, theta: Tensor, buffers: dict[str, Tensor], inputs: Any, targets: Tensor, how: Mapping[str, str]
) -> _Found:
    """Equation (1) for one minibatch."""
    layout, likelihood, catcher = model.layout, model.likelihood, _Catcher()
    assert model._uses is not None
    named = {name: weight.detach() for name, weight in model.weights(theta).items()}
    weights: dict[str, Tensor] = dict(named)
    for name, way in how.items():
        if way == "layer":
            weights[name] = catcher.weight(name, named[name], model._uses[name][0])
    with torch.enable_grad():
        outputs = model.forward(weights, buffers, inputs)
    rows, count = outputs.shape[0], outputs[0].numel()
    flat, columns = outputs.detach(), theta.detach()[model.bound_prior.size : layout.latent]
    eye = torch.eye(count + len(columns), dtype=flat.dtype, device=flat.device).expand(rows, -1, -1)
    root = whitened(likelihood, flat, targets, columns, eye)  # R^T (rows, R, K + L)
    with torch.no_grad():
        log_likelihood = likelihood.log_prob(flat, targets, latents_of(likelihood, columns)).double().sum()
    of_latents = torch.zeros(layout.latent - layout.random, dtype=torch.float64, device=theta.device)
    if len(columns):
        of_latents[-len(columns) :] = root[..., count:].double().square().sum((0, 1))
    caught = list(catcher.caught.items())
    sums: dict[str, tuple[Tensor, Tensor | None, int]] = {}
    biases = {way: name for name, way in how.items() if way not in ("layer", "rows")}
    for index in range(root.shape[1]) if caught and outputs.requires_grad else ():
        scalar = (root[:, index, :count].to(outputs.dtype) * outputs.reshape(rows, count)).sum()
        gradients = torch.autograd.grad(
            scalar, [output for _, (_, output) in caught], retain_graph=True, materialize_grads=True
        )
        for (name, (operation, output)), gradient in zip(caught, gradients, strict=True):
            a, g = (t.detach().double() for t in _flat(operation, layout.by_name[name], output, gradient))
            left = torch.einsum("rti,rtj->ij", g, g)
            if index == 0:
                sums[name] = (left, torch.einsum("rti,rtj->ij", a, a), a.shape[0] * a.shape[1])
            else:
                sums[name] = (sums[name][0] + left, *sums[name][1:])
            if name in biases:
                whole = g.sum(1)
                before = sums[biases[name]][0] if index else 0.0
                sums[biases[name]] = (before + whole.T @ whole, None, 0)
    return _Found(sums, of_latents, log_likelihood)


def _add_rows(held: dict[str, Factors], particle: int, layout: Any, how: Mapping[str, str], matrix: Tensor) -> None:
    """Equation (2) for the derivatives (rows, R, columns) of those parameters that are looked at row by row."""
    first = 0
    for block in layout.of_kind("random"):
        if how[block.name] != "rows":
            continue
        each = matrix[..., first : first + block.size].double().reshape(-1, *as_matrix(block))
        first += block.size
        held[block.name].left[particle] += torch.einsum("nij,nkj->ik", each, each)
        right = held[block.name].right
        if right is not None:
            right[particle] += torch.einsum("nij,nik->jk", each, each)
