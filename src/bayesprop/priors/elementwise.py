"""The priors whose weights are independent given their scale: what a user writes.

| prior                              | density                                             | closed-form KL |
| ---------------------------------- | --------------------------------------------------- | -------------- |
| Normal(loc, scale)                 | weight decay; the default                           | yes            |
| Laplace(loc, scale)                | many small weights, few large ones                  | yes            |
| Cauchy(loc, scale), StudentT(df)   | heavy tails                                         | no             |
| ScaleMixture(pi, scale1, scale2)   | a wide and a narrow normal, Blundell et al. (2015)  | no             |
| Flat()                             | no belief (improper)                                | minus entropy  |

`loc` and `scale` are numbers, or tensors of the shape of the parameter they belong to; `scale` may also be a
hyperprior, which makes it a quantity to learn: `Normal(scale=HalfNormal(1.0))`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from bayesprop.distributions import arguments, flat, laplace, normal, scale_mixture, student_t
from bayesprop.distributions.elementwise import Elementwise, Number
from bayesprop.distributions.hyperpriors import Hyperprior, Product
from bayesprop.errors import ConfigurationError
from bayesprop.priors.prior import Argument, Prior, Scale

__all__ = ["Cauchy", "Flat", "Laplace", "Normal", "ScaleMixture", "StudentT"]


def _check_location(prior: Any, write: str) -> None:
    object.__setattr__(prior, "loc", arguments.finite(type(prior).__name__, "loc", prior.loc, write=write))


def _check_scale(prior: Any, write: str) -> None:
    """A positive number or tensor, or a hyperprior; what comes from elsewhere is answered with the name meant here."""
    owner, scale = type(prior).__name__, prior.scale
    if isinstance(scale, Hyperprior | Product):
        return
    if isinstance(scale, Prior | torch.distributions.Distribution | type):
        name = scale.__name__ if isinstance(scale, type) else type(scale).__name__
        known = {"HalfNormal", "HalfCauchy", "InverseGamma", "Gamma"}
        meant = name if name in known else f"Half{name}" if f"Half{name}" in known else "HalfNormal"
        values = "concentration=2.0, rate=1.0" if "Gamma" in meant else "scale=1.0"
        raise ConfigurationError(
            f"{owner}(scale=...): a scale is positive, so its density must be one over the positive numbers",
            received=f"the class {name}" if isinstance(scale, type) else f"a {type(scale).__module__}.{name}",
            expected="one of bayesprop's hyperpriors HalfNormal, HalfCauchy, InverseGamma, Gamma, or a product of them",
            write=f"priors.{owner}(scale=priors.{meant}({values}))",
        )
    object.__setattr__(prior, "scale", arguments.positive(owner, "scale", scale, write=write, tensors=True))


@dataclass(frozen=True, eq=False)
class Normal(Prior):
    """The normal prior: weight decay with precision 1 / scale^2, on the scale of the log joint summed over the data."""

    loc: Number = 0.0
    scale: Scale = 1.0
    density: ClassVar[Elementwise] = normal.DENSITY

    def __post_init__(self) -> None:
        _check_location(self, "priors.Normal(loc=0.0)")
        _check_scale(self, "priors.Normal(scale=1.0)")

    def arguments(self) -> dict[str, Argument]:
        return {"loc": self.loc, "scale": self.scale}


@dataclass(frozen=True, eq=False)
class Laplace(Prior):
    """The double exponential prior; its standard deviation is sqrt(2) scale. Its mode is sparse, its draws are not."""

    loc: Number = 0.0
    scale: Scale = 1.0
    density: ClassVar[Elementwise] = laplace.DENSITY

    def __post_init__(self) -> None:
        _check_location(self, "priors.Laplace(loc=0.0)")
        _check_scale(self, "priors.Laplace(scale=1.0)")

    def arguments(self) -> dict[str, Argument]:
        return {"loc": self.loc, "scale": self.scale}


@dataclass(frozen=True, eq=False)
class Cauchy(Prior):
    """Student's t with one degree of freedom: half of the weights beyond `scale`, and no moments at all."""

    loc: Number = 0.0
    scale: Scale = 1.0
    density: ClassVar[Elementwise] = student_t.DENSITY

    def __post_init__(self) -> None:
        _check_location(self, "priors.Cauchy(loc=0.0)")
        _check_scale(self, "priors.Cauchy(scale=1.0)")

    def arguments(self) -> dict[str, Argument]:
        return {"df": 1.0, "loc": self.loc, "scale": self.scale}


@dataclass(frozen=True, eq=False)
class StudentT(Prior):
    """Heavy tails of a chosen weight: df = 1 is Cauchy, large df is Normal. The variance is finite for df > 2."""

    df: float = 4.0
    loc: Number = 0.0
    scale: Scale = 1.0
    density: ClassVar[Elementwise] = student_t.DENSITY

    def __post_init__(self) -> None:
        df = arguments.positive("StudentT", "df", self.df, write="priors.StudentT(df=4.0)")
        object.__setattr__(self, "df", df)
        _check_location(self, "priors.StudentT(df=4.0, loc=0.0)")
        _check_scale(self, "priors.StudentT(df=4.0, scale=1.0)")

    def arguments(self) -> dict[str, Argument]:
        return {"df": self.df, "loc": self.loc, "scale": self.scale}


@dataclass(frozen=True, eq=False)
class ScaleMixture(Prior):
    """pi N(0, scale1^2) + (1 - pi) N(0, scale2^2): the prior of Blundell et al. (2015), equation (7).

    The paper searches pi in {1/4, 1/2, 3/4}, -log scale1 in {0, 1, 2} and -log scale2 in {6, 7, 8}.
    """

    pi: float = 0.5
    scale1: float = 1.0
    scale2: float = math.exp(-6.0)
    density: ClassVar[Elementwise] = scale_mixture.DENSITY

    def __post_init__(self) -> None:
        example = "priors.ScaleMixture(pi=0.5, scale1=1.0, scale2=math.exp(-6))"
        for name in ("scale1", "scale2"):
            value = arguments.positive("ScaleMixture", name, getattr(self, name), write=example)
            object.__setattr__(self, name, value)
        expected = "a number between 0 and 1, both excluded: the weight of the component with scale1"
        asked = "ScaleMixture(pi=...) is a probability"
        pi = arguments.number(self.pi, asked=asked, expected=expected, write=example, tensors=False)
        if not 0.0 < pi < 1.0:
            alone = {0.0: self.scale2, 1.0: self.scale1}.get(float(pi))
            write = example if alone is None else f"priors.Normal(scale={alone!r})  # one component has all the weight"
            raise ConfigurationError(asked, received=f"pi={self.pi!r}", expected=expected, write=write)
        if self.scale1 == self.scale2:
            raise ConfigurationError(
                "ScaleMixture needs two different scales",
                received=f"scale1 = scale2 = {self.scale1!r}, which is a single normal",
                write=f"priors.Normal(scale={self.scale1!r})",
            )
        object.__setattr__(self, "pi", pi)

    def arguments(self) -> dict[str, Argument]:
        return {"pi": self.pi, "scale1": self.scale1, "scale2": self.scale2}


@dataclass(frozen=True, eq=False)
class Flat(Prior):
    """No belief about the weights: an improper density of 1, which makes maximum a posteriori maximum likelihood."""

    density: ClassVar[Elementwise] = flat.DENSITY

    def arguments(self) -> dict[str, Argument]:
        return {}
