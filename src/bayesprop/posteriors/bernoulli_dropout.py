"""Dropout as a distribution over weights: one Bernoulli mask for the inputs of each layer.

    w = location * m / (1 - p),   m ~ Bernoulli(1 - p) for each input unit of the layer                             (1)

A draw is one network, in which some units are missing, the same ones for all inputs. Biases and all that is no weight
of a layer are points.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from bayesprop.kernels import noise
from bayesprop.model import Model
from bayesprop.posteriors.posterior import Context, Posterior
from bayesprop.random_weights import bernoulli, input_units, unit_of_column
from bayesprop.rng import Rng, Stream

__all__ = ["BernoulliDropout"]


class BernoulliDropout(Posterior):
    """location (particles, columns), the mean of every column; rate (particles, layers), the probability to drop an
    input of each layer, in the order of `layers`."""

    capabilities: ClassVar[frozenset[str]] = frozenset({"weights", "moments"})

    def __init__(
        self,
        model: Model,
        location: Tensor,
        rate: Tensor,
        buffers: Mapping[str, Tensor],
        context: Context | None = None,
    ) -> None:
        super().__init__(model, buffers, context)
        self.location, self.rate = location, rate
        self._inputs = input_units(model.network, model.layout)
        counts = torch.tensor([layer.count for layer in self._inputs.values()])
        self._layer_of_unit = torch.repeat_interleave(torch.arange(len(counts)), counts).to(location.device)
        self._unit_of_column = unit_of_column(self._inputs, model.layout).to(location.device)

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the weights that are masked."""
        return tuple(self._inputs)

    def tensors(self) -> dict[str, Tensor]:
        return {"location": self.location, "rate": self.rate}

    @classmethod
    def from_tensors(
        cls, model: Model, tensors: Mapping[str, Tensor], buffers: Mapping[str, Tensor], context: Context
    ) -> BernoulliDropout:
        return cls(model, tensors["location"], tensors["rate"], buffers, context)

    def masks(self, rng: Rng, draws: int, first: int = 0) -> Tensor:
        """m / (1 - p) of equation (1), (particles, draws, units): those of all layers side by side."""
        units = len(self._layer_of_unit)
        white = noise.normal(rng.keys(draws, first), rng.step, int(Stream.PREDICTION), units)
        return bernoulli(white, self.rate[:, None, self._layer_of_unit])

    def draw(self, rng: Rng, draws: int, first: int = 0) -> Tensor:
        layout, bound = self.model.layout, self.model.bound_prior
        found = self.location[:, None].expand(-1, draws, -1).clone()
        multiplier = torch.nn.functional.pad(self.masks(rng, draws, first), (0, 1), value=1.0)[
            ..., self._unit_of_column
        ]
        weights = bound.weights(found[..., : layout.latent]) * multiplier
        found[..., : layout.random] = bound.columns(weights, found[..., : layout.latent])
        return found

    def moments(self) -> tuple[Tensor, Tensor]:
        layout, bound = self.model.layout, self.model.bound_prior
        odds = torch.nn.functional.pad((self.rate / (1.0 - self.rate)).sqrt()[:, self._layer_of_unit], (0, 1))
        columns = self.location[:, : layout.latent]
        weights = bound.weights(columns)
        spread = weights.abs() * odds[:, self._unit_of_column]
        std = torch.zeros_like(self.location)
        std[:, : layout.random] = bound.columns(weights + spread, columns) - bound.columns(weights, columns)
        return self.location, std
