"""All mass at one point: a point estimate, or the mean of another posterior."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from bayesprop.model import Model
from bayesprop.posteriors.posterior import Context, Posterior
from bayesprop.rng import Rng

__all__ = ["Delta"]


class Delta(Posterior):
    """theta = location with certainty. Its epistemic uncertainty is zero, unless it holds several particles."""

    capabilities: ClassVar[frozenset[str]] = frozenset({"weights", "moments"})

    def __init__(
        self, model: Model, location: Tensor, buffers: Mapping[str, Tensor], context: Context | None = None
    ) -> None:
        super().__init__(model, buffers, context)
        self.location = location

    def tensors(self) -> dict[str, Tensor]:
        return {"location": self.location}

    @classmethod
    def from_tensors(
        cls, model: Model, tensors: Mapping[str, Tensor], buffers: Mapping[str, Tensor], context: Context
    ) -> Delta:
        return cls(model, tensors["location"], buffers, context)

    @property
    def distinct(self) -> int:
        """One: predictions evaluate the network once for each particle."""
        return 1

    def draw(self, rng: Rng, draws: int, first: int = 0) -> Tensor:
        return self.location.unsqueeze(1).expand(-1, draws, -1)

    def moments(self) -> tuple[Tensor, Tensor]:
        return self.location, torch.zeros_like(self.location)
