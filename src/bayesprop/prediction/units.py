"""From the standardised targets that the model sees back to the user's units.

    y = shift + scale * z,   log p_y(y) = log p_z(z) - sum log(scale)                                       (1)

The sum is over the targets of one row. Everything is computed in float64 and returned in the dtype that came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["HasTargetScale", "Units"]


class HasTargetScale(Protocol):
    """What `data.Scaling` says about targets; a number, or one for each target of a row."""

    @property
    def target_mean(self) -> Tensor: ...

    @property
    def target_std(self) -> Tensor: ...


@dataclass(frozen=True)
class Units:
    """Shift and scale in the shape of one row of predictions: dimensions of size one are dropped there, too."""

    shift: Tensor
    scale: Tensor

    @classmethod
    def of(cls, scaling: HasTargetScale | None) -> Units:
        """The units of a scaling; without one, shift 0 and scale 1."""
        if scaling is None:
            return cls(torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64))
        return cls(_row(scaling.target_mean), _row(scaling.target_std))

    @property
    def identity(self) -> bool:
        """Whether nothing changes."""
        return self.scale.dim() == 0 and bool(self.scale == 1) and bool(self.shift == 0)

    def _on(self, values: Tensor) -> tuple[Tensor, Tensor]:
        return self.shift.to(values.device), self.scale.to(values.device)

    def original(self, values: Tensor) -> Tensor:
        """Places on the line, (..., *row): z to y."""
        shift, scale = self._on(values)
        return (values.double() * scale + shift).to(values.dtype)

    def widths(self, values: Tensor, power: int = 1) -> Tensor:
        """Distances (power=1) or variances (power=2), (..., *row)."""
        return (values.double() * self._on(values)[1] ** power).to(values.dtype)

    def standard(self, values: Tensor) -> Tensor:
        """y to z, in float64: a year such as 2015.25 keeps its fraction."""
        shift, scale = self._on(values)
        return (values.double() - shift) / scale

    def log_scale(self, row: Sequence[int]) -> float:
        """sum log(scale) over the targets of one row of shape `row`."""
        return torch.broadcast_to(self.scale.log(), tuple(row)).sum().item()


def _row(tensor: Tensor) -> Tensor:
    return tensor.detach().double().reshape([size for size in tensor.shape if size != 1])
