"""Dropout as a random weight: W diag(m) with one multiplier m for each input unit of a layer.

    whole weight      W * m                                one mask for all examples                                 (1)
    rule              operation(x * m', W)                 one mask m' for each example                              (2)

Both have the same law for one example; (2) costs a product with the input and has a gradient whose variance falls with
the batch. It is used where a weight is met once in a forward pass by an operation that is linear in its input (dense
layers, convolutions, `x @ w`); positions of an example share its mask, so that the example sees one network. Everything
else (recurrent layers, attention, embeddings, weights that are used twice) takes (1), which is always right.

A *law* turns standard normal noise into multipliers of mean 1; a Bernoulli mask that keeps a unit with probability
1 - p is

    m = [noise > ndtri(p)] / (1 - p)                                                                                 (3)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesprop.random_weights import operations
from bayesprop.random_weights.draw import Draw, NoiseSource
from bayesprop.random_weights.estimators import RuleName
from bayesprop.random_weights.operations import Operation, mean_of
from bayesprop.random_weights.plan import Evaluation
from bayesprop.random_weights.random_weight import Function, RandomWeight, Rule
from bayesprop.random_weights.units import Inputs

__all__ = ["Law", "Masks", "UnitDraw", "bernoulli", "mask"]

Law = Callable[[Tensor], Tensor]


def bernoulli(noise: Tensor, rate: Tensor) -> Tensor:
    """Equation (3), in the dtype of the rate."""
    threshold = torch.special.ndtri(rate.double()).to(noise.dtype)
    return (noise > threshold).to(rate.dtype) / (1.0 - rate)


class UnitDraw(Draw):
    """A weight whose input units are multiplied by a law: as a sample, weight + weight * (m - 1)."""

    def __init__(self, weight: Tensor, inputs: Inputs, law: Law, source: NoiseSource) -> None:
        super().__init__(weight, weight, None, source)
        self.inputs, self.law = inputs, law

    def viewed(self, view: Callable[[Tensor], Tensor]) -> UnitDraw:
        """The same draw through a transposition; a rule asks it for multipliers of the input, which stay what they
        are."""
        seen = UnitDraw(view(self.mean), self.inputs, self.law, self.source)
        seen._origin, seen._view = self, view
        return seen

    @property
    def noise(self) -> Tensor:
        """m - 1 for each weight."""
        if self._noise is None:
            if self._origin is not None:
                self._noise = self._view(self._origin.noise)
            else:
                units = self.law(self.source.normal((self.inputs.count,), self.mean.dtype))
                self._noise = (self.inputs.along(units) - 1.0).expand(self.mean.shape)
        return self._noise

    def multiplier(self, shape: Sequence[int]) -> Tensor:
        """Independent multipliers of that shape, the same ones for ever."""
        return self.law(self.source.normal(shape, self.mean.dtype, self.request("mask of the input")))


def evaluate(operation: Operation, example_dim: int) -> Tensor:
    """Equation (2)."""
    draw, channel = operation.draw, operation.input_channel
    assert isinstance(draw, UnitDraw)
    assert channel is not None  # embeddings have no rule
    multiplier = draw.multiplier(operation.along(operation.input, channel, example_dim))
    return operation.apply(operation.input * multiplier, mean_of(operation.weight), operation.bias)


RULES: Mapping[Function, Rule] = MappingProxyType(
    {function: rule for function, rule in operations.rules(evaluate).items() if function is not F.embedding}
)


@dataclass(frozen=True)
class Masks:
    """The estimator of dropout: equation (2) where there is a rule, (1) elsewhere."""

    samples: int = 1
    rule: ClassVar[RuleName] = "masked"
    rule_of_positions: ClassVar[RuleName] = "masked"

    @property
    def rules(self) -> Mapping[Function, Rule]:
        return RULES


def mask(
    weights: Mapping[str, Tensor],
    plan: Mapping[str, Evaluation],
    inputs: Mapping[str, Inputs],
    laws: Mapping[str, Law],
    source: NoiseSource,
) -> dict[str, Tensor]:
    """What `functional_call` gets for one forward pass: weights with a law are masked, the others stay as they are."""
    found = dict(weights)
    for name, law in laws.items():
        draw = UnitDraw(weights[name], inputs[name], law, source)
        if plan[name].rule == "shared":
            found[name] = draw.sample
        else:
            found[name] = RandomWeight.of(draw, RULES.get, example_dim=plan[name].example_dim, label=name)
    return found
