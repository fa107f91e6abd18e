"""Which columns of theta belong to one input of a layer: what dropout switches off together.

A layer with weight W sees W (m * x) when its input x is multiplied by a mask m, one number for each input unit. That is
the weight W diag(m): dropout of inputs is a distribution over weights whose columns share one number each (Gal and
Ghahramani 2016). Input units are the features of a dense layer, the channels of a convolution, the rows of an embedding
(whole words), the inputs and the state of a recurrent layer (the same mask at all times and for all gates), and what
the projections of attention read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bayesprop.layout import Layout

__all__ = ["Inputs", "input_units", "unit_of_column"]

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_MATRICES = (nn.Linear, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)


@dataclass(frozen=True)
class Inputs:
    """The input units of one weight: `count` of them, numbered from `first` over all layers; dimension `dim` of the
    weight `shape` counts them, in `groups` groups."""

    name: str
    shape: tuple[int, ...]
    first: int
    count: int
    dim: int
    groups: int = 1

    def along(self, units: Tensor) -> Tensor:
        """One number for each unit, (..., count), in a shape that broadcasts against the weight (..., *shape)."""
        lead, behind = units.shape[:-1], [1] * (len(self.shape) - 2)
        if self.groups == 1 or self.dim == 0:
            return units.reshape(*lead, *([self.count, 1] if self.dim == 0 else [1, self.count]), *behind)
        each = units.reshape(*lead, self.groups, 1, self.count // self.groups)
        each = each.expand(*lead, self.groups, self.shape[0] // self.groups, self.count // self.groups)
        return each.reshape(*lead, self.shape[0], self.count // self.groups, *behind)


def input_units(network: nn.Module, layout: Layout) -> dict[str, Inputs]:
    """The input units of each random weight that belongs to a layer of a known kind, by the weight's name.

    Biases, norm layers and parameters of a module of your own have none: they keep their values.
    """
    modules, found, first = dict(network.named_modules()), {}, 0
    for block in layout.of_kind("random"):
        module, shape = modules[block.module], block.shape
        if len(shape) < 2 or block.name.rpartition(".")[2].startswith("bias"):
            continue
        groups = 1
        if isinstance(module, _CONVOLUTIONS):
            dim, groups = 1, module.groups
        elif isinstance(module, _MATRICES):
            dim = 1
        elif isinstance(module, (*_TRANSPOSED, nn.Embedding, nn.EmbeddingBag)):
            dim = 0
        else:
            continue
        count = shape[dim] * groups
        found[block.name] = Inputs(block.name, shape, first, count, dim, groups)
        first += count
    return found


def unit_of_column(inputs: Mapping[str, Inputs], layout: Layout) -> Tensor:
    """The number of the unit that each random column belongs to, (random,); the number of units for those without."""
    total = sum(layer.count for layer in inputs.values())
    found = torch.full((layout.random,), total)
    for name, layer in inputs.items():
        numbers = layer.along(torch.arange(layer.first, layer.first + layer.count)).expand(layer.shape)
        assert numbers.numel() == math.prod(layer.shape)
        found[layout.by_name[name].columns] = numbers.reshape(-1)
    return found
