"""Densities of a scale that is itself unknown: of a group of weights, or of the noise.

The literature puts densities on a standard deviation (half-Cauchy), on a variance (inverse gamma) or on a precision
(gamma); `of` says which. Everything downstream works with the scale, so the change of variables happens here: with the
quantity q = scale^k, k = 1, 2, -2 for of = "scale", "variance", "precision",

    log p(scale) = log p_q(scale^k) + log|k| + (k - 1) log scale                                           (1)

and `log_density_of_scale` integrates to one over scale > 0 for every `of`.

A product, `HalfCauchy(shared="weight") * HalfCauchy(shared="layer")`, is the product of independent scales.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from bayesprop.distributions import arguments
from bayesprop.distributions.elementwise import Number, log
from bayesprop.errors import ConfigurationError

__all__ = ["Gamma", "HalfCauchy", "HalfNormal", "Hyperprior", "InverseGamma", "Product", "Quantity", "Shared"]

Quantity = Literal["scale", "variance", "precision"]
Shared = Literal["network", "layer", "unit", "weight"]

_POWER: dict[str, int] = {"scale": 1, "variance": 2, "precision": -2}


@dataclass(frozen=True)
class Hyperprior(ABC):
    """The density of an unknown positive scale.

    Args:
        of: the quantity that has the density: the scale itself, its square or one over its square.
        shared: which weights have one scale in common. "network": all that this prior covers; "layer": weight and bias
            of one module; "unit": one slice along the first dimension of that module's parameters; "weight": every
            weight has its own.
        centred: False (the default) makes the column z in weight = loc + scale * z, which mean-field approximations and
            samplers cope with better when the data say little about single weights; True makes the column the weight.
    """

    of: Quantity = field(default="scale", kw_only=True)
    shared: Shared = field(default="layer", kw_only=True)
    centred: bool = field(default=False, kw_only=True)
    numbers: ClassVar[tuple[str, ...]]  # the names of the positive numbers that define the density
    example: ClassVar[str]  # the line that an error suggests

    def __post_init__(self) -> None:
        owner = type(self).__name__
        arguments.choice(owner, "of", self.of, get_args(Quantity))
        arguments.choice(owner, "shared", self.shared, get_args(Shared))
        for name in self.numbers:
            value = arguments.positive(owner, name, getattr(self, name), write=self.example)
            object.__setattr__(self, name, value)

    @property
    @abstractmethod
    def typical(self) -> Number:
        """A value of the quantity near the middle of its density."""

    @abstractmethod
    def log_density(self, log_quantity: Tensor) -> Tensor:
        """log p_q at q = exp(log_quantity): a density in q, not in log q."""

    @abstractmethod
    def score(self, log_quantity: Tensor) -> Tensor:
        """d log p_q / d log q."""

    @property
    def initial(self) -> Number:
        """The scale at which learning starts."""
        return self.typical ** (1.0 / _POWER[self.of])

    def log_density_of_scale(self, scale: Tensor) -> Tensor:
        """Equation (1), elementwise, for scale > 0."""
        power, log_scale = _POWER[self.of], torch.log(scale)
        value = self.log_density(power * log_scale)
        return value if power == 1 else value + math.log(abs(power)) + (power - 1) * log_scale

    def score_of_log_scale(self, log_scale: Tensor) -> Tensor:
        """The derivative by log scale of log p(scale) + log scale: of the density of the unconstrained column.

        That density is log p_q(log q) + log|k| + k log scale with log q = k log scale, k the power of the quantity.
        """
        power = _POWER[self.of]
        return power * (self.score(power * log_scale) + 1.0)

    def __mul__(self, other: Hyperprior | Product) -> Product:
        if not isinstance(other, Hyperprior | Product):
            return NotImplemented
        return Product((self, *(other.factors if isinstance(other, Product) else (other,))))

    def describe(self) -> str:
        """For people: HalfCauchy(1) per layer, or Gamma(2, 1) on the precision per layer."""
        values = ", ".join(f"{getattr(self, name):g}" for name in self.numbers)
        quantity = "" if self.of == "scale" else f" on the {self.of}"
        return f"{type(self).__name__}({values}){quantity} per {self.shared}"


@dataclass(frozen=True)
class HalfNormal(Hyperprior):
    """p(q) = sqrt(2 / pi) / scale exp(-q^2 / (2 scale^2)): about `scale` or below, hardly above three times that."""

    scale: Number = 1.0
    example: ClassVar[str] = "HalfNormal(scale=1.0)"
    numbers: ClassVar[tuple[str, ...]] = ("scale",)

    @property
    def typical(self) -> Number:
        return 0.6744897501960817 * self.scale  # the median: the upper quartile of a standard normal

    def log_density(self, log_quantity: Tensor) -> Tensor:
        constant = 0.5 * math.log(2.0 / math.pi) - log(self.scale)
        return constant - 0.5 * torch.exp(2.0 * (log_quantity - log(self.scale)))

    def score(self, log_quantity: Tensor) -> Tensor:
        return -torch.exp(2.0 * (log_quantity - log(self.scale)))


@dataclass(frozen=True)
class HalfCauchy(Hyperprior):
    """p(q) = 2 / (pi scale (1 + (q / scale)^2)): near zero or very large; the building block of the horseshoe."""

    scale: Number = 1.0
    example: ClassVar[str] = "HalfCauchy(scale=1.0)"
    numbers: ClassVar[tuple[str, ...]] = ("scale",)

    @property
    def typical(self) -> Number:
        return self.scale  # the median

    def log_density(self, log_quantity: Tensor) -> Tensor:
        doubled = 2.0 * (log_quantity - log(self.scale))
        return math.log(2.0 / math.pi) - log(self.scale) - torch.logaddexp(torch.zeros_like(doubled), doubled)

    def score(self, log_quantity: Tensor) -> Tensor:
        return -2.0 * torch.sigmoid(2.0 * (log_quantity - log(self.scale)))


@dataclass(frozen=True)
class InverseGamma(Hyperprior):
    """p(q) = rate^a / Gamma(a) q^(-a - 1) exp(-rate / q) with a = concentration; by default of the variance."""

    concentration: Number
    rate: Number
    of: Quantity = field(default="variance", kw_only=True)
    example: ClassVar[str] = "InverseGamma(concentration=2.0, rate=1.0)"
    numbers: ClassVar[tuple[str, ...]] = ("concentration", "rate")

    @property
    def typical(self) -> Number:
        return self.rate / self.concentration  # 1 / E[1 / q]: exists where the mean does not

    def log_density(self, log_quantity: Tensor) -> Tensor:
        a, log_rate = self.concentration, log(self.rate)
        return a * log_rate - _log_gamma(a) - (a + 1.0) * log_quantity - torch.exp(log_rate - log_quantity)

    def score(self, log_quantity: Tensor) -> Tensor:
        return torch.exp(log(self.rate) - log_quantity) - (self.concentration + 1.0)


@dataclass(frozen=True)
class Gamma(Hyperprior):
    """p(q) = rate^a / Gamma(a) q^(a - 1) exp(-rate q) with a = concentration; by default of the precision."""

    concentration: Number
    rate: Number
    of: Quantity = field(default="precision", kw_only=True)
    example: ClassVar[str] = "Gamma(concentration=2.0, rate=1.0)"
    numbers: ClassVar[tuple[str, ...]] = ("concentration", "rate")

    @property
    def typical(self) -> Number:
        return self.concentration / self.rate  # the mean

    def log_density(self, log_quantity: Tensor) -> Tensor:
        a, log_rate = self.concentration, log(self.rate)
        return a * log_rate - _log_gamma(a) + (a - 1.0) * log_quantity - torch.exp(log_rate + log_quantity)

    def score(self, log_quantity: Tensor) -> Tensor:
        return (self.concentration - 1.0) - torch.exp(log(self.rate) + log_quantity)


def _log_gamma(number: Number) -> Number:
    return torch.lgamma(number) if isinstance(number, Tensor) else math.lgamma(number)


@dataclass(frozen=True)
class Product:
    """A scale that is the product of independent scales, each with its own hyperprior and its own sharing."""

    factors: tuple[Hyperprior, ...]

    def __post_init__(self) -> None:
        factors = tuple(self.factors)
        if not factors or not all(isinstance(factor, Hyperprior) for factor in factors):
            raise ConfigurationError(
                "a Product multiplies hyperpriors",
                received=repr(self.factors),
                expected="HalfNormal, HalfCauchy, InverseGamma or Gamma objects",
                write='HalfCauchy(shared="weight") * HalfCauchy(shared="layer")',
            )
        object.__setattr__(self, "factors", factors)

    def __mul__(self, other: Hyperprior | Product) -> Product:
        if not isinstance(other, Hyperprior | Product):
            return NotImplemented
        return Product((*self.factors, *(other.factors if isinstance(other, Product) else (other,))))

    def describe(self) -> str:
        """For people: the factors with a sign between them."""
        return " * ".join(factor.describe() for factor in self.factors)
