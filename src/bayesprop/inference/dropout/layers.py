"""Which layers of a model can drop their inputs, and numbers for each layer as numbers for each column."""

from __future__ import annotations

import math
from collections.abc import Mapping
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.layout import match
from bayesprop.model import Model
from bayesprop.random_weights import Inputs, input_units, unit_of_column

__all__ = ["KINDS", "counts_of", "droppable", "for_each_layer", "inputs_of", "number_of_column", "of_columns"]

KINDS = ("layer", "unit", "weight")

# The numbers of random columns, on the device of the model: a captured step must not bring them there again.
_inputs: WeakKeyDictionary[Model, dict[str, Inputs]] = WeakKeyDictionary()
_numbers: WeakKeyDictionary[Model, dict[tuple[str, torch.device], Tensor]] = WeakKeyDictionary()


def inputs_of(model: Model) -> dict[str, Inputs]:
    """The layers whose inputs can be dropped, by the names of their weights: looked for once for each model."""
    if model not in _inputs:
        _inputs[model] = input_units(model.network, model.layout)
    return _inputs[model]


def droppable(model: Model, name: str) -> dict[str, Inputs]:
    """As `inputs_of`; refused if there are none."""
    found = inputs_of(model)
    if not found:
        raise ConfigurationError(
            f"{name} drops the inputs of layers, and this network has no layer of a known kind with random weights",
            received=", ".join(block.name for block in model.layout.of_kind("random")[:8]),
            expected="Linear, Conv, ConvTranspose, Embedding, RNN, LSTM, GRU or MultiheadAttention",
            write="MCDropout()  # with torch.nn.Dropout where the network should drop",
        )
    return found


def for_each_layer(
    value: float | Tensor | Mapping[str, float], names: list[str], particles: int, argument: str, missing: float
) -> Tensor:
    """A number, one for each particle, or one for each pattern of names: (particles, layers), float64. `missing` is for
    the layers that no pattern names."""
    if isinstance(value, Mapping):
        hits = match(list(value), names, argument=argument)
        row = [float(value[hits[name]]) if name in hits else missing for name in names]
        return torch.tensor([row], dtype=torch.float64).repeat(particles, 1)
    each = torch.as_tensor(value, dtype=torch.float64).reshape(-1, 1)
    return each.expand(particles, len(names)).clone()


def number_of_column(model: Model, kind: str, device: torch.device) -> Tensor:
    """The number of the layer, the input unit or the weight that each random column is, (random,), counted over all
    layers; how many there are for columns of none."""
    held = _numbers.setdefault(model, {})
    if (kind, device) not in held:
        inputs = inputs_of(model)
        found, first = unit_of_column(inputs, model.layout), 0
        for number, name in enumerate(inputs if kind != "unit" else ()):
            block = model.layout.by_name[name]
            found[block.columns] = number if kind == "layer" else torch.arange(first, first + block.size)
            first += block.size
        total = {"layer": len(inputs), "unit": sum(layer.count for layer in inputs.values()), "weight": first}[kind]
        chosen = torch.zeros(model.layout.random, dtype=torch.bool)
        for name in inputs:
            chosen[model.layout.by_name[name].columns] = True
        held[kind, device] = torch.where(chosen, found, total).to(device)
    return held[kind, device]


def of_columns(values: Tensor, model: Model, missing: float, kind: str = "layer") -> Tensor:
    """Numbers for each layer, unit or weight (particles, count) as numbers for each random column (particles,
    random)."""
    padded = torch.nn.functional.pad(values, (0, 1), value=missing)
    return padded[:, number_of_column(model, kind, values.device)]


def counts_of(inputs: Mapping[str, Inputs], kind: str) -> list[int]:
    """How many numbers each layer has: one, one for each input unit, or one for each weight."""
    size = {"layer": lambda layer: 1, "unit": lambda layer: layer.count, "weight": lambda layer: math.prod(layer.shape)}
    return [size[kind](layer) for layer in inputs.values()]
