"""The numbers of a bound prior that are not one float: a row over the columns, or a row for each particle."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError

__all__ = ["PerParticle", "Vector"]


class Vector:
    """A constant tensor that follows theta: moved to its device (and, for numbers, its dtype) once, then remembered."""

    def __init__(self, values: Tensor) -> None:
        self.values = values
        self._copies: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def like(self, theta: Tensor) -> Tensor:
        dtype = theta.dtype if self.values.is_floating_point() else self.values.dtype
        found = self._copies.get((theta.device, dtype))
        if found is None:
            found = self.values.to(theta.device, dtype)
            if torch.compiler.is_compiling():
                return found
            # Inside torch.func a fresh tensor is wrapped for that transform, and useless after it: keep what it wraps.
            found = torch.func.debug_unwrap(found)
            self._copies[theta.device, dtype] = found
        return found


class PerParticle(Vector):
    """Numbers that differ between particles: `values` (particles, columns), or (particles, 1) where columns agree.

    They meet theta along its first axis, whatever lies between that one and the columns: samples, draws, or nothing.
    """

    def like(self, theta: Tensor) -> Tensor:
        found = super().like(theta)
        if theta.dim() < 2:
            raise ConfigurationError(
                "this prior has other numbers for each particle, so it takes rows of theta with their particles",
                received=f"a tensor of shape {list(theta.shape)}",
                expected=f"({found.shape[0]}, ..., columns)",
            )
        return found.reshape(found.shape[0], *[1] * (theta.dim() - 2), found.shape[1])
