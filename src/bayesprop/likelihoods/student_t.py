"""Noise with heavy tails: outliers pull less than under a Gaussian.

    y = f(x) + scale * t,   t ~ Student-t with df degrees of freedom                                        (1)
    log p(y | f) = lgamma((df + 1) / 2) - lgamma(df / 2) - log(df pi) / 2 - log(scale)
                   - (df + 1) / 2 * log(1 + ((y - f) / scale)^2 / df)                                       (2)

`scale` is not the standard deviation: the variance is scale^2 df / (df - 2) for df > 2 and infinite below. The mean
exists for df > 1; `mean` returns the centre f(x) for every df, which is always the median.

For whole df the distribution function is a finite sum. With a = arctan(t / sqrt(df)),

    A(t) = 2/pi (a + sin a (cos a + 2/3 cos^3 a + ... + 2 4 .. (df-3) / (3 5 .. (df-2)) cos^(df-2) a))   df odd   (3)
    A(t) = sin a (1 + 1/2 cos^2 a + ... + 1 3 .. (df-3) / (2 4 .. (df-2)) cos^(df-2) a)                  df even  (4)

and P(T <= t) = (1 + A(t)) / 2 [Abramowitz and Stegun 1964, 26.7.3 and 26.7.4].
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesprop.distributions import student_t
from bayesprop.errors import ConfigurationError
from bayesprop.latents import Latent
from bayesprop.likelihoods.likelihood import Likelihood, Task, compact, sum_targets, widen
from bayesprop.likelihoods.noise_scale import LEARNT, Scale, check_scale, scale_latents, scale_value
from bayesprop.likelihoods.regression import check_shapes, finite_targets

__all__ = ["StudentT"]

# Beyond this the sum has too many terms to be worth it, and the distribution is a Gaussian to three digits.
MOST_TERMS = 200


@dataclass(frozen=True)
class StudentT(Likelihood):
    """Regression that tolerates outliers; shapes as for `Gaussian`.

    Args:
        df: degrees of freedom; 1 is Cauchy, infinity would be Gaussian. A whole number has exact quantiles.
        scale: scale of the noise, or the hyperprior under which it is learnt, on the scale of the targets as the model
            sees them.
    """

    df: float = 4.0
    scale: Scale = LEARNT

    task: ClassVar[Task] = "regression"

    def __post_init__(self) -> None:
        number = isinstance(self.df, int | float) and not isinstance(self.df, bool)
        if not number or not math.isfinite(self.df) or self.df <= 0:
            raise ConfigurationError(
                "StudentT needs positive degrees of freedom",
                received=f"df={self.df!r}",
                expected="a positive number; 3 to 7 tolerate outliers well",
                write="likelihoods.StudentT(df=4.0)  # or likelihoods.Gaussian() for df = infinity",
            )
        check_scale(self.scale, "StudentT")

    @property
    def latents(self) -> tuple[Latent, ...]:
        return scale_latents(self.scale)

    @property
    def has_cdf(self) -> bool:
        return float(self.df).is_integer() and self.df <= MOST_TERMS

    def encode(self, targets: Any) -> Tensor:
        return finite_targets(targets, self)

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        check_shapes(self, outputs, targets)

    def log_prob(self, outputs: Tensor, targets: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        centre = compact(widen(outputs))
        values, scale = compact(targets).to(centre.dtype), scale_value(self.scale, latents, centre)
        return sum_targets(student_t.log_density(values, float(self.df), centre, scale))

    def mean(self, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        return compact(widen(outputs))

    def variance(self, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        centre = compact(widen(outputs))
        factor = self.df / (self.df - 2) if self.df > 2 else math.inf
        return torch.zeros_like(centre) + factor * scale_value(self.scale, latents, centre) ** 2

    def cdf(self, outputs: Tensor, values: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        if not self.has_cdf:
            return super().cdf(outputs, values, latents)
        centre = compact(widen(outputs))
        return _student_t_cdf((values - centre) / scale_value(self.scale, latents, centre), int(self.df))

    def sample(self, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        centre = compact(widen(outputs))
        noise = torch.distributions.StudentT(torch.full_like(centre, float(self.df))).sample()
        return centre + scale_value(self.scale, latents, centre) * noise


def _student_t_cdf(t: Tensor, df: int) -> Tensor:
    """Equations (3) and (4)."""
    angle = torch.atan(t / math.sqrt(df))
    sine, cosine = angle.sin(), angle.cos()
    odd = df % 2 == 1
    power = cosine if odd else torch.ones_like(cosine)
    total = torch.zeros_like(cosine)
    coefficient = 1.0
    # Powers cos^1, cos^3, .., cos^(df-2) for odd df and cos^0, cos^2, .., cos^(df-2) for even df.
    for exponent in range(1 if odd else 0, df - 1, 2):
        total = total + coefficient * power
        coefficient *= (exponent + 1) / (exponent + 2)
        power = power * cosine.square()
    central = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return 0.5 * (1 + central)
