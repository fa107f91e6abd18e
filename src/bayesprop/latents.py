"""A latent: a positive (or otherwise constrained) quantity that is learnt together with the weights.

The scale of a hierarchical prior and a learnt noise scale are latents. Each is stored *unconstrained*, as ordinary
columns of the matrix theta, and mapped to its support by the bijection that `torch.distributions.biject_to` registers
for its constraint. The log-Jacobian of that bijection is added here and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import biject_to, constraints

__all__ = ["Latent"]


@dataclass(frozen=True)
class Latent:
    """One named group of hyper-parameters.

    `log_density` is the hyperprior's density in the constrained value, elementwise. `initial` is a constrained value,
    or one for each particle of a population.
    `score`, where it is known, is the derivative of the *unconstrained* density, Jacobian included, elementwise.
    """

    name: str
    shape: tuple[int, ...]
    log_density: Callable[[Tensor], Tensor]
    initial: float | Tensor = 1.0
    score: Callable[[Tensor], Tensor] | None = None
    constraint: constraints.Constraint = constraints.positive

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def transform(self) -> Any:
        """A `torch.distributions` transform, whose annotations would let it return None."""
        return biject_to(self.constraint)

    def constrain(self, columns: Tensor) -> Tensor:
        """Columns of shape (..., size) to values of shape (..., *shape)."""
        return self.transform(columns).reshape((*columns.shape[:-1], *self.shape))

    def unconstrained_log_density(self, columns: Tensor) -> Tensor:
        """Log-density of the unconstrained columns, Jacobian included: (..., size) to (...)."""
        transform = self.transform
        value = transform(columns)
        return (self.log_density(value) + transform.log_abs_det_jacobian(columns, value)).sum(-1)

    def unconstrained_score(self, columns: Tensor) -> Tensor:
        """The gradient of `unconstrained_log_density`: (..., size)."""
        if self.score is not None:
            return self.score(columns)
        return torch.func.grad(lambda leaf: self.unconstrained_log_density(leaf).sum())(columns.detach())

    def initial_column(self, particle: int = 0) -> float:
        """The unconstrained number at which this latent starts."""
        initial = self.initial[particle] if isinstance(self.initial, Tensor) else self.initial
        return float(self.transform.inv(torch.as_tensor(initial, dtype=torch.float64)))
