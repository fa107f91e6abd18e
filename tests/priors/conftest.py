"""A small network's columns, with what makes layouts hard: a scalar at the root, a module of a single parameter."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bayesprop.layout import Block
from bayesprop.priors import BoundPrior

SHAPES = {
    "0.weight": (4, 3),
    "0.bias": (4,),
    "2.weight": (2, 4),
    "2.bias": (2,),
    "norm.weight": (4,),
    "temperature": (),
}


def lay_out(shapes: dict[str, tuple[int, ...]]) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for name, shape in shapes.items():
        start = blocks[-1].stop if blocks else 0
        blocks.append(Block(name, shape, start, module=name.rpartition(".")[0]))
    return tuple(blocks)


@pytest.fixture
def blocks() -> tuple[Block, ...]:
    return lay_out(SHAPES)


@pytest.fixture
def draw() -> Callable[..., Tensor]:
    """Columns for a bound prior, in float64, from a generator of their own."""

    def one(bound: BoundPrior, *lead: int, extra: int = 0, seed: int = 0) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return 0.8 * torch.randn(*lead, bound.size + extra, generator=generator, dtype=torch.float64)

    return one
