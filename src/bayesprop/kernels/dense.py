"""Stacks of dense layers on a GPU: forward, loss and backward for all lanes, and an update without a gradient in memory.

    h_l = a_l(h_{l-1} W_l' + b_l),   d_{l-1} = (d_l W_l) a_{l-1}'(h_{l-1}),   dL/dW_l = d_l' h_{l-1}                (1)

`update` forms dL/dW_l tile by tile and hands each tile to the optimiser where it arises (equation (2) of
`kernels.columns`), so that a step moves the bytes of mean, rho and their moments once and nothing else of that size.
The definition is autograd of the same network with the plain path of Bayes by Backprop; tests hold them together.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesprop.kernels.columns import Prior, Rule

__all__ = ["MOST_CLASSES", "Layer", "Stack", "backward", "forward", "head", "update"]

HEAD_ROWS, MOST_CLASSES = 16, 128  # rows of a tile of `head`, whose classes lie in one tile


@dataclass(frozen=True)
class Layer:
    """One dense layer: the first columns of its weight and its bias (-1: none), its width, and what follows it."""

    weight: int
    bias: int
    inputs: int
    outputs: int
    activation: str = "identity"


@dataclass(frozen=True)
class Stack:
    """Layers that feed one another. All of their columns lie in one theta."""

    layers: tuple[Layer, ...]

    @property
    def aligned(self) -> bool:
        """Whether each row of each weight consists of whole blocks of noise."""
        return all(layer.inputs % 4 == 0 and layer.weight % 4 == 0 for layer in self.layers)


def _power(number: int, low: int, high: int) -> int:
    """The power of two that covers a number, between two bounds."""
    return min(high, max(low, 1 << max(0, number - 1).bit_length()))


def _tile(rows: int, width: int, depth: int, lanes: int) -> tuple[int, int, int, int]:
    """Rows, columns and depth of a product's tile, and its warps: small ones where there are few lanes to fill a GPU."""
    if lanes >= 8:
        return _power(rows, 16, 128), _power(width, 16, 64), 32, 4
    return 16, _power(width, 16, 32), _power(depth, 16, 128), 2


def forward(stack: Stack, theta: Tensor, inputs: Tensor, precision: str, *, last: bool = True) -> list[Tensor]:
    """What each layer puts out, (lanes, rows, outputs), for theta (lanes, columns) and inputs (particles, rows, ...).

    Without `last` there is only room for the last layer's, for `head`.
    """
    from bayesprop.kernels.device_dense import forward_kernel

    lanes, columns = theta.shape
    rows, share = inputs.shape[1], lanes // inputs.shape[0]
    size = lanes * rows * sum(layer.outputs for layer in stack.layers)
    work = torch.empty(2 * size, dtype=torch.float32, device=theta.device)  # as much again for the gradients
    found, source, start = [], inputs, 0
    for layer in stack.layers:
        out = work[start : start + lanes * rows * layer.outputs].view(lanes, rows, layer.outputs)
        if layer is stack.layers[-1] and not last:
            found.append(out)
            break
        bm, bn, bk, warps = _tile(rows, layer.outputs, layer.inputs, lanes)
        grid = (-(-rows // bm), -(-layer.outputs // bn), lanes)
        forward_kernel[grid](
            source, theta, out, rows, layer.inputs, layer.outputs, columns, layer.weight, layer.bias, share,
            ACTIVATION=layer.activation, PRECISION=precision, BIAS=layer.bias >= 0, BM=bm, BN=bn, BK=bk,
            num_warps=warps,
        )  # fmt: skip
        found.append(out)
        source, share, start = out, 1, start + out.numel()
    return found


def _gradients_of(outputs: list[Tensor]) -> list[Tensor]:
    """Room for the gradient behind each layer, in the second half of the memory that the outputs lie in."""
    half = sum(out.numel() for out in outputs)
    base = outputs[0].storage_offset()
    return [out.as_strided(out.shape, out.stride(), out.storage_offset() - base + half) for out in outputs]


def head(stack: Stack, theta: Tensor, outputs: list[Tensor], inputs: Tensor, targets: Tensor, precision: str) -> Tensor:
    """The last layer under softmax: log p(targets | logits) in parts (lanes, blocks of rows), and its gradients.

    `outputs` has room for the last layer's, which is not used; gradients lie beside the outputs as `backward` leaves
    them, for the last two layers.
    """
    from bayesprop.kernels.device_dense import head_kernel

    lanes, columns = theta.shape
    layer, rows, alone = stack.layers[-1], outputs[0].shape[1], len(stack.layers) == 1
    places = _gradients_of(outputs)
    source, share = (inputs, lanes // inputs.shape[0]) if alone else (outputs[-2], 1)
    parts = torch.empty(lanes, -(-rows // HEAD_ROWS), dtype=torch.float32, device=theta.device)
    head_kernel[(parts.shape[1], lanes)](
        source, theta, targets, places[-1], places[-1 if alone else -2], parts, rows, layer.inputs, layer.outputs,
        columns, layer.weight, layer.bias, share, lanes // targets.shape[0],
        ACTIVATION="identity" if alone else stack.layers[-2].activation, PRECISION=precision, BIAS=layer.bias >= 0,
        ALONE=alone, BM=HEAD_ROWS, BN=_power(layer.outputs, 16, MOST_CLASSES), BK=_power(layer.inputs, 16, 128),
        num_warps=4,
    )  # fmt: skip
    return parts


def backward(stack: Stack, theta: Tensor, outputs: list[Tensor], gradient: Tensor | None, precision: str) -> None:
    """From the gradient behind the last layer to those behind all others, each beside its outputs.

    None means that `head` has run: what it did is not done again.
    """
    from bayesprop.kernels.device_dense import backward_kernel

    places = _gradients_of(outputs)
    if gradient is not None:
        places[-1].copy_(gradient)
    lanes, columns = theta.shape
    rows = outputs[0].shape[1]
    for number in range(len(stack.layers) - (1 if gradient is not None else 2), 0, -1):
        layer = stack.layers[number]
        bm, bn, bk, warps = _tile(rows, layer.inputs, layer.outputs, lanes)
        grid = (-(-rows // bm), -(-layer.inputs // bn), lanes)
        backward_kernel[grid](
            places[number], theta, outputs[number - 1], places[number - 1], rows, layer.inputs, layer.outputs, columns,
            layer.weight, ACTIVATION=stack.layers[number - 1].activation, PRECISION=precision, BM=bm, BN=bn, BK=bk,
            num_warps=warps,
        )  # fmt: skip


TILE, DEPTH, WARPS = (32, 64), 64, 4  # outputs and inputs of an update's tile, rows at a time


@functools.lru_cache(maxsize=64)
def _table(stack: Stack, lanes: int, rows: int, device: torch.device) -> tuple[Tensor, int]:
    """The layers as `dense_update_kernel` reads them, and the number of tiles."""
    half = lanes * rows * sum(layer.outputs for layer in stack.layers)
    lines, tiles, start = [], 0, 0
    for number, layer in enumerate(stack.layers):
        size = lanes * rows * layer.outputs
        before = start - lanes * rows * stack.layers[number - 1].outputs if number else 0
        lines.append((layer.weight, layer.bias, layer.inputs, layer.outputs, half + start, before, tiles))
        tiles += -(-layer.outputs // TILE[0]) * -(-layer.inputs // TILE[1])
        start += size
    return torch.tensor(lines, dtype=torch.int64, device=device), tiles


def update(
    stack: Stack,
    mean: Tensor,
    rho: Tensor,
    moments: Mapping[str, Tensor],
    inputs: Tensor,
    outputs: list[Tensor],
    seeds: Tensor,
    step: Tensor,
    stream: int,
    numbers: Tensor,
    *,
    rule: Rule,
    prior: Prior,
    antithetic: bool,
    likelihood_scale: float,
    kl_scale: float,
    precision: str,
    parts: Tensor | None = None,
    value_scale: float = 1.0,
    ahead: Tensor | None = None,
) -> Tensor:
    """The optimiser's step for all weights and biases of a stack whose `forward` and `backward` have run.

    Arguments as in `kernels.columns.update`; `prior.constants` are (particles or 1, 2 layers, 4), weight before bias.
    `ahead` (lanes, columns) receives the weights' sample of step + 1, of means and scales that are at hand here.
    Returned is the log-likelihood of each particle, the mean over its samples times `value_scale`, where `parts` of
    `head` are given.
    """
    from bayesprop.kernels.device_dense import dense_update_kernel

    particles, columns = mean.shape
    lanes, rows = outputs[0].shape[:2]
    table, tiles = _table(stack, lanes, rows, mean.device)
    samples, constants = lanes // particles, prior.constants
    value = torch.empty(particles, dtype=torch.float32, device=mean.device)
    count = 0 if parts is None else parts.numel() // particles
    dense_update_kernel[(tiles, particles)](
        mean, rho, *rule.moments(moments, "mean", mean), *rule.moments(moments, "rho", rho),
        mean if ahead is None else ahead, inputs, outputs[0], table, seeds, step, numbers, constants,
        value if parts is None else parts, value, constants.stride(0) if constants.shape[0] > 1 else 0, stream, columns,
        rho.shape[1], particles, rows, likelihood_scale, kl_scale, value_scale / samples, rule.beta1, rule.beta2, rule.epsilon, rule.weight_decay, FAMILY=prior.family,
        EXACT=prior.exact, RULE=rule.name, LAYERS=len(stack.layers), ALIGNED=stack.aligned, SAMPLES=samples,
        PAIRS=samples // 2 if antithetic else 0, AHEAD=ahead is not None, PARTS=count,
        COVER=_power(count, 1, 1 << 30), PRECISION=precision, BM=_power(rows, 16, DEPTH), BN=TILE[0], BK=TILE[1], num_warps=WARPS,
    )  # fmt: skip
    return value
