"""What a prior is before it meets a network: a density and its arguments."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesprop.distributions.elementwise import Elementwise, Number
from bayesprop.distributions.hyperpriors import Hyperprior, Product

__all__ = ["Argument", "Prior", "Scale"]

Scale = float | Tensor | Hyperprior | Product
Argument = Number | Hyperprior | Product


@dataclass(frozen=True, eq=False)
class Prior(ABC):
    """A density over weights, the same for every weight of a parameter or, through tensors, different for each.

    A new one is a frozen dataclass that names its elementwise `density` and returns, in `arguments`, a value for each
    of the density's parameters. Only a parameter called "scale" may be a hyperprior.
    """

    density: ClassVar[Elementwise]

    @abstractmethod
    def arguments(self) -> dict[str, Argument]:
        """The value of each of `density.parameters`, in that order."""

    def describe(self) -> str:
        """For people: Normal(0, 1)."""
        values = (_shown(getattr(self, field.name)) for field in dataclasses.fields(self) if not field.kw_only)
        return f"{type(self).__name__}({', '.join(values)})"

    def __eq__(self, other: object) -> bool:
        """Equal class and fields; tensors are compared entry by entry, which a dataclass would not do."""
        if not isinstance(other, Prior) or type(other) is not type(self):
            return NotImplemented
        names = [field.name for field in dataclasses.fields(self)]
        return all(_same(getattr(self, name), getattr(other, name)) for name in names)

    def __hash__(self) -> int:
        values = (getattr(self, field.name) for field in dataclasses.fields(self))
        return hash((type(self), *(tuple(v.shape) if isinstance(v, Tensor) else v for v in values)))


def _same(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, Tensor) and isinstance(theirs, Tensor):
        return mine.dtype == theirs.dtype and torch.equal(mine, theirs)
    return not isinstance(mine, Tensor) and not isinstance(theirs, Tensor) and bool(mine == theirs)


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"tensor{list(value.shape)}"
    return f"{value:g}" if isinstance(value, float) else value.describe()
