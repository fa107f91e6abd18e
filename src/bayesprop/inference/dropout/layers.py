"""Which layers of a model can drop their inputs, and numbers for each layer as numbers for each column."""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.layout import match
from bayesprop.model import Model
from bayesprop.random_weights import Inputs, input_units

__all__ = ["droppable", "for_each_layer", "of_columns", "share_of"]

# The layer of each random column, on the device of the model: a captured step must not bring it there again.
_layers: WeakKeyDictionary[Model, Tensor] = WeakKeyDictionary()


def droppable(model: Model, name: str) -> dict[str, Inputs]:
    """The layers whose inputs can be dropped, by the names of their weights; refused if there are none."""
    found = input_units(model.network, model.layout)
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


def of_columns(values: Tensor, model: Model, missing: float) -> Tensor:
    """Numbers for each layer (particles, layers) as numbers for each random column (particles, random)."""
    if model not in _layers or _layers[model].device != values.device:
        inputs = input_units(model.network, model.layout)
        found = torch.full((model.layout.random,), len(inputs))
        for number, name in enumerate(inputs):
            found[model.layout.by_name[name].columns] = number
        _layers[model] = found.to(values.device)
    return torch.nn.functional.pad(values, (0, 1), value=missing)[:, _layers[model]]


def share_of(inputs: Mapping[str, Inputs], like: Tensor) -> Tensor:
    """The numbers of input units of the layers, (layers,)."""
    return torch.tensor([layer.count for layer in inputs.values()], dtype=like.dtype, device=like.device)
