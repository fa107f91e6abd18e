"""The step sizes of ADVI's paper: an adaptive sequence that falls as Robbins and Monro ask.

    s_1 = g_1^2,    s_k = a g_k^2 + (1 - a) s_(k-1)                                                                 (1)
    x <- x - r k^(-1/2 + e) g_k / (tau + sqrt(s_k))                                                                 (2)

with the gradient g of step k, a = 0.1, tau = 1 and e = 1e-16. Choose it to repeat what was published; Adam with rates
that fall along a cosine arrives sooner. tau is measured against gradients of the sum over all rows, which is what
`ADVI` then takes.

Map to Kucukelbir et al. (2017), equations 10 and 11: r is eta, a is alpha, e is epsilon.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError

__all__ = ["StepSequence"]


@dataclass(frozen=True)
class StepSequence:
    """Equations (1) and (2), as an optimiser of columns.

    >>> StepSequence().tau
    1.0
    """

    alpha: float = 0.1
    tau: float = 1.0
    epsilon: float = 1e-16

    def __post_init__(self) -> None:
        if not (0.0 < self.alpha <= 1.0 and self.tau > 0.0 and 0.0 <= self.epsilon < 0.5):
            raise ConfigurationError(
                "StepSequence: alpha lies in (0, 1], tau is positive, epsilon lies in [0, 0.5)",
                received=f"{self}",
                write="StepSequence(alpha=0.1, tau=1.0)",
            )

    def init(self, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {f"{name}.squares": torch.zeros_like(tensor) for name, tensor in parameters.items()}

    def step(
        self,
        parameters: Mapping[str, Tensor],
        gradients: Mapping[str, Tensor],
        state: dict[str, Tensor],
        rates: Mapping[str, float | Tensor],
        step: int | Tensor,
    ) -> None:
        count = step + 1.0
        fall = count ** (self.epsilon - 0.5)
        # As a captured step knows it, the number of the step is a tensor.
        first = torch.where(step == 0, 1.0, self.alpha) if isinstance(step, Tensor) else None
        share = (1.0 if step == 0 else self.alpha) if first is None else first
        for name, parameter in parameters.items():
            gradient, rate = gradients[name], rates[name]
            squares = state[f"{name}.squares"]
            squares += share * (gradient.square() - squares)
            if isinstance(rate, Tensor) and rate.dim() == 1:
                rate = rate.to(parameter).reshape(-1, *[1] * (parameter.dim() - 1))
            parameter.sub_(rate * fall * gradient / (self.tau + squares.sqrt()))
