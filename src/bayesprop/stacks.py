"""Networks that are a stack of dense layers, read off their modules.

For such a network a step can be written as a few products and one update (`kernels.dense`). What counts is a
`torch.nn.Sequential` of `Linear` layers with elementwise activations between them, perhaps after a `Flatten`, in which
every parameter is random and nothing else happens: no hooks, no tied weights, no noise of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn

from bayesprop.kernels.dense import Layer, Stack
from bayesprop.layout import Layout

__all__ = ["dense_parts", "find_stack"]

ACTIVATIONS: dict[type[nn.Module], str] = {nn.ReLU: "relu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid"}


def find_stack(network: nn.Module, layout: Layout) -> Stack | str:
    """The stack that a network is, or in words why it is none."""
    parts = dense_parts(network)
    if isinstance(parts, str):
        return parts
    layers: list[Layer] = []
    for name, module, activation in parts:
        found = _layer(layout, f"{name}." if name else "", module)
        if isinstance(found, str):
            return found
        layers.append(_with(found, activation))
    return Stack(tuple(layers))


def dense_parts(network: nn.Module) -> list[tuple[str, nn.Linear, str]] | str:
    """(name, layer, the activation behind it) in the order in which data meet them, whatever is random; or in words
    why the network is no stack of dense layers."""
    parts: list[tuple[str, nn.Linear, str]] = []
    for name, module in _leaves(network, ""):
        if _is_watched(module):
            return f"{name or 'the network'} has hooks or a parametrisation"
        if type(module) is nn.Identity or (type(module) is nn.Dropout and module.p == 0.0):
            continue
        if type(module) is nn.Flatten and not parts and (module.start_dim, module.end_dim) == (1, -1):
            continue
        if type(module) in ACTIVATIONS and parts and parts[-1][2] == "identity":
            parts[-1] = (*parts[-1][:2], ACTIVATIONS[type(module)])
        elif type(module) is nn.Linear:
            if parts and parts[-1][1].out_features != module.in_features:
                return f"{name} takes another width than the layer before it gives"
            parts.append((name, module, "identity"))
        else:
            return f"{name or 'the network'} is a {type(module).__name__}"
    if not parts:
        return "the network has no dense layer"
    if parts[-1][2] != "identity":
        return "an activation follows the last layer"
    return parts


def _leaves(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """The modules that do something, in the order in which data meet them; each by its name."""
    if type(module) is nn.Sequential and not _is_watched(module):
        for key, child in module._modules.items():  # named_children leaves out what it has seen: a shared activation
            assert child is not None
            yield from _leaves(child, f"{name}.{key}" if name else key)
    else:
        yield name, module


def _is_watched(module: nn.Module) -> bool:
    hooks: Callable[[str], object] = lambda attribute: getattr(module, attribute, None)  # noqa: E731
    return (
        any(hooks(f"_{kind}_hooks") for kind in ("forward", "forward_pre", "backward", "backward_pre"))
        or "parametrizations" in module._modules
        or "forward" in vars(module)
    )


def _with(layer: Layer, activation: str) -> Layer:
    return Layer(layer.weight, layer.bias, layer.inputs, layer.outputs, activation)


def _layer(layout: Layout, prefix: str, module: nn.Linear) -> Layer | str:
    """One layer by the columns of its parameters, which must be random and used here alone."""
    columns = {"bias": -1}
    for key in ("weight", "bias"):
        if getattr(module, key) is None:
            continue
        block = layout.by_name.get(prefix + key)
        if block is None or block.kind != "random":
            return f"{prefix}{key} is not random"
        if block.aliases:
            return f"{prefix}{key} is tied to {block.aliases[0]}"
        if block.dtype != torch.float32:
            return f"{prefix}{key} is {block.dtype}"
        columns[key] = block.start
    return Layer(columns["weight"], columns["bias"], module.in_features, module.out_features)
