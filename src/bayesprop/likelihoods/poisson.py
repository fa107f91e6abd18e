"""Counts.

    y ~ Poisson(exp(f)),   log p(y | f) = y f - exp(f) - log(y!)                                            (1)

The network returns the logarithm of the rate, so that every output is a rate and effects multiply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesprop.errors import DataError
from bayesprop.likelihoods.categorical import whole_numbers
from bayesprop.likelihoods.likelihood import Likelihood, Task, compact, first_row, first_value, sum_targets, widen
from bayesprop.likelihoods.regression import check_shapes, finite_targets

__all__ = ["Poisson"]

_LARGEST_FLOAT32 = 2**24


@dataclass(frozen=True)
class Poisson(Likelihood):
    """Counts 0, 1, 2, ...; outputs are log rates, (n,) or (n, 1) for targets (n,), or (n, T) for (n, T)."""

    task: ClassVar[Task] = "count"

    @property
    def has_cdf(self) -> bool:
        return True

    def encode(self, targets: Any) -> Tensor:
        values = finite_targets(targets, self)
        fraction = values != values.round()
        if bool(fraction.any()):
            raise DataError(
                "Poisson() needs counts",
                received=f"{first_value(values, fraction):g} in row {first_row(fraction)}",
                expected="whole numbers from 0 upwards",
                write="likelihoods.Gaussian() for quantities; and no standardize=True for counts",
            )
        counts = whole_numbers(values, "Poisson()")
        exact = not counts.numel() or int(counts.max()) <= _LARGEST_FLOAT32
        return counts.to(torch.float32 if exact else torch.float64)

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        check_shapes(self, outputs, targets)

    def log_prob(self, outputs: Tensor, targets: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        log_rate = compact(widen(outputs))
        counts = compact(targets).to(log_rate.dtype)
        return sum_targets(counts * log_rate - log_rate.exp() - torch.lgamma(counts + 1))

    def mean(self, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        return compact(widen(outputs)).exp()

    def variance(self, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        return compact(widen(outputs)).exp()

    def cdf(self, outputs: Tensor, values: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        """P(y <= v) = Q(floor(v) + 1, rate), the regularised upper incomplete gamma function; 0 below 0."""
        rate = compact(widen(outputs)).exp()
        counts = values.floor().to(rate.dtype)
        return torch.where(counts < 0, 0.0, torch.special.gammaincc(counts.clamp(min=0) + 1, rate))

    def sample(self, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        return torch.poisson(compact(widen(outputs)).exp())
