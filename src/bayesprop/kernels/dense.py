"""Stacks of dense layers on a GPU: forward, loss, backward and the gradient of all weights, for all lanes at once.

    h_l = a_l(h_{l-1} W_l' + b_l),   d_{l-1} = (d_l W_l) a_{l-1}'(h_{l-1}),   dL/dW_l = d_l' h_{l-1}                (1)

Weights lie in theta (lanes, columns), whose rows may lie apart (`kernels.rooms`), and their gradients in a room of the
same shape, which `kernels.columns.update` consumes. (An update that formed each tile of the gradient itself moved fewer
bytes and was slower: 19 against 13 microseconds for each of 36 networks of 478,410 weights, for want of registers.) The
definition is autograd of the same network; tests hold them together. Tiles were chosen by measurement on an H200.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesprop.kernels.device import launch
from bayesprop.kernels.rooms import room

__all__ = ["MOST_CLASSES", "Layer", "Stack", "backward", "forward", "gradient", "head"]

MOST_CLASSES = 128  # that `head` takes: all classes lie in one tile
MANY = 8  # lanes: enough to fill a GPU with large tiles


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


def _power(number: int, low: int, high: int) -> int:
    """The power of two that covers a number, between two bounds."""
    return min(high, max(low, 1 << max(0, number - 1).bit_length()))


def _tile(rows: int, width: int, depth: int, lanes: int) -> tuple[int, int, int]:
    """Rows, columns and depth of a product's tile: small where there are few lanes to fill a GPU."""
    if lanes >= MANY:
        return _power(rows, 16, 128), _power(width, 16, 64), 32
    return _power(rows, 16, 32), 16, _power(depth, 16, 128)


def forward(stack: Stack, theta: Tensor, inputs: Tensor, precision: str, *, last: bool = True) -> list[Tensor]:
    """What each layer puts out, (lanes, rows, outputs), for theta (lanes, columns) and inputs (particles, rows, ...).

    Without `last` there is only room for the last layer's, for `head`.
    """
    from bayesprop.kernels.device_dense import forward_kernel

    lanes, pitch = theta.shape[0], theta.stride(0)
    rows, share = inputs.shape[1], lanes // inputs.shape[0]
    work = torch.empty(_places(stack, lanes, rows)[1], dtype=torch.float32, device=theta.device)
    found, source, start = [], inputs, 0
    for number, layer in enumerate(stack.layers):
        out = work[start : start + lanes * rows * layer.outputs].view(lanes, rows, layer.outputs)
        if layer is stack.layers[-1] and not last:
            found.append(out)
            break
        bm, bn, bk = _tile(rows, layer.outputs, layer.inputs, lanes)
        grid = (-(-rows // bm), -(-layer.outputs // bn), lanes)
        launch(
        forward_kernel, grid,
            source, theta, out, rows, layer.inputs, layer.outputs, pitch, layer.weight, layer.bias, share,
            ACTIVATION=layer.activation, PRECISION=precision, BIAS=layer.bias >= 0, REVERSED=number % 2 == 0,
            BM=bm, BN=bn, BK=bk, num_warps=4 if lanes >= MANY else 2, num_stages=4 if lanes >= MANY else 3,
        )  # fmt: skip
        found.append(out)
        source, share, start = out, 1, start + out.numel()
    return found


def _padded(number: int) -> int:
    return -(-number // 16) * 16


def _places(stack: Stack, lanes: int, rows: int) -> tuple[list[tuple[int, int]], int]:
    """Where in the working memory the gradient behind each layer begins, as it is and transposed; the memory's size.

    What all layers put out comes first. Transposed rows lie a multiple of 16 numbers apart.
    """
    size, starts = _padded(lanes * rows * sum(layer.outputs for layer in stack.layers)), []
    for layer in stack.layers:
        transposed = size + _padded(lanes * rows * layer.outputs)
        starts.append((size, transposed))
        size = transposed + lanes * layer.outputs * _padded(rows)
    return starts, size


def _gradients_of(stack: Stack, outputs: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Room for the gradient behind each layer, (lanes, rows, outputs) and (lanes, outputs, rows), in the memory that
    the outputs lie in."""
    lanes, rows = outputs[0].shape[:2]
    found, pitch = [], _padded(rows)
    for out, (start, transposed) in zip(outputs, _places(stack, lanes, rows)[0], strict=True):
        width = out.shape[2]
        plain = out.as_strided(out.shape, (rows * width, width, 1), start)
        found.append((plain, out.as_strided((lanes, width, rows), (width * pitch, pitch, 1), transposed)))
    return found


def head(stack: Stack, theta: Tensor, outputs: list[Tensor], inputs: Tensor, targets: Tensor, precision: str) -> Tensor:
    """The last layer under softmax: log p(targets | logits) in parts (lanes, blocks of rows), and its gradients.

    `outputs` has room for the last layer's, which is not used; gradients lie beside the outputs as `backward` leaves
    them, for the last two layers.
    """
    from bayesprop.kernels.device_dense import head_kernel

    lanes, pitch = theta.shape[0], theta.stride(0)
    layer, rows, alone = stack.layers[-1], outputs[0].shape[1], len(stack.layers) == 1
    places = _gradients_of(stack, outputs)
    source, share = (inputs, lanes // inputs.shape[0]) if alone else (outputs[-2], 1)
    bm, bk = (_power(rows, 16, 64), 64) if lanes >= MANY else (16, 128)
    spans = 1 if lanes >= MANY else -(-layer.inputs // bk)  # the gradient before the layer, by how many programs
    parts = torch.empty(lanes, -(-rows // bm), dtype=torch.float32, device=theta.device)
    launch(
        head_kernel, (parts.shape[1], lanes, spans),
        source, theta, targets, places[-1][1], *places[-1 if alone else -2], parts, rows, layer.inputs, layer.outputs,
        pitch, layer.weight, layer.bias, share, lanes // targets.shape[0], -(-layer.inputs // (spans * bk)) * bk,
        _padded(rows),
        ACTIVATION="identity" if alone else stack.layers[-2].activation, PRECISION=precision, BIAS=layer.bias >= 0,
        ALONE=alone, BOTH=len(stack.layers) > 2,
        REVERSED=len(stack.layers) % 2 == 1, BM=bm, BN=_power(layer.outputs, 16, MOST_CLASSES), BK=bk, num_warps=4,
    )  # fmt: skip
    return parts


def backward(stack: Stack, theta: Tensor, outputs: list[Tensor], gradient: Tensor | None, precision: str) -> None:
    """From the gradient behind the last layer to those behind all others, each beside its outputs.

    None means that `head` has run: what it did is not done again.
    """
    from bayesprop.kernels.device_dense import backward_kernel

    places = _gradients_of(stack, outputs)
    if gradient is not None:
        for place, values in zip(places[-1], (gradient, gradient.mT), strict=True):
            place.copy_(values)
    lanes, pitch = theta.shape[0], theta.stride(0)
    rows = outputs[0].shape[1]
    for number in range(len(stack.layers) - (1 if gradient is not None else 2), 0, -1):
        layer = stack.layers[number]
        bm, bn, bk = _tile(rows, layer.inputs, layer.outputs, lanes)
        grid = (-(-rows // bm), -(-layer.inputs // bn), lanes)
        launch(
        backward_kernel, grid,
            places[number][0], theta, outputs[number - 1], *places[number - 1], rows, layer.inputs, layer.outputs,
            pitch, layer.weight, _padded(rows), ACTIVATION=stack.layers[number - 1].activation, BOTH=number > 1,
            PRECISION=precision, REVERSED=number % 2 == 0, BM=bm, BN=bn, BK=bk, num_warps=2,
        )  # fmt: skip


@functools.lru_cache(maxsize=64)
def _table(
    stack: Stack, lanes: int, rows: int, tile: tuple[int, int], device: torch.device
) -> tuple[Tensor, int, bool]:
    """The layers as `gradient_kernel` reads them, the number of tiles, and whether rows begin at multiples of 16."""
    lines, tiles, before = [], 0, 0
    for number, (layer, (_, start)) in enumerate(zip(stack.layers, _places(stack, lanes, rows)[0], strict=True)):
        before += lanes * rows * stack.layers[number - 2].outputs if number > 1 else 0
        lines.append((layer.weight, layer.bias, layer.inputs, layer.outputs, start, before, tiles))
        tiles += -(-layer.outputs // tile[0]) * -(-layer.inputs // tile[1])
    wide = all(number % 16 == 0 for line in lines for number in (line[0], line[2], line[5]))
    return torch.tensor(lines, dtype=torch.int64, device=device), tiles, wide


def gradient(stack: Stack, inputs: Tensor, outputs: list[Tensor], columns: int, precision: str) -> Tensor:
    """dL/dtheta (lanes, columns), a room, of a stack whose `forward` and `backward` have run; only its own columns are
    written."""
    from bayesprop.kernels.device_dense import gradient_kernel

    lanes, rows = outputs[0].shape[:2]
    bn, bk = (64, 128) if lanes >= MANY else (16, 64)
    table, tiles, wide = _table(stack, lanes, rows, (bn, bk), inputs.device)
    found = room(lanes, columns, device=inputs.device)
    launch(
        gradient_kernel, (tiles, lanes),
        inputs, outputs[0], table, found, found.stride(0), rows, _padded(rows), lanes // inputs.shape[0],
        LAYERS=len(stack.layers), WIDE=wide, PRECISION=precision, BM=_power(rows, 16, 32), BN=bn, BK=bk, num_warps=2,
    )  # fmt: skip
    return found
