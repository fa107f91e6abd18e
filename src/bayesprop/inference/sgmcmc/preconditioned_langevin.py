"""Preconditioned SGLD: a step of its own for each weight, from the size of its gradients.

    V <- a V + (1 - a) g^2,     G = 1 / (e + sqrt(V / (1 - a^t))),          g = grad(U / N)        (paper's 4 and 5)
    theta <- theta - r G g + N(0, 2 r T G / N)                                                                 (1)

While V moves, (1) lacks a term Gamma, the divergence of G, and its law is a little off. So V moves during the burn-in
only (and while a cyclical schedule explores) and is held while samples are taken: then G is constant, Gamma is zero,
and the law is that of SGLD in coordinates that are scaled by sqrt(G). `adapt="always"` is the paper's algorithm without
Gamma. The moving average is corrected for its start at zero, which the paper leaves out.

Reference: Li, Chen, Carlson, Carin, "Preconditioned Stochastic Gradient Langevin Dynamics for Deep Neural Networks",
AAAI 2016 (their alpha is a, their lambda is e, their epsilon is 2 r / N).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesprop.inference.method import About
from bayesprop.inference.sgmcmc.cyclical import Cyclical
from bayesprop.inference.sgmcmc.sampler import AbstractSampler, ChainState, Step, add_product
from bayesprop.model import Place

__all__ = ["PSGLD"]


@dataclass(frozen=True)
class PSGLD(AbstractSampler):
    """Equations of the module's docstring; further arguments as in `AbstractSampler`.

    Args:
        averaging: a, the weight of the past in V.
        stabilizer: e, in units of a gradient of U / N: gradients that are smaller are not scaled up.
        adapt: "burn_in" or "always".

    >>> PSGLD(averaging=0.999).adapt
    'burn_in'
    """

    about: ClassVar[About | None] = About(
        approximates="the posterior by samples of a chain; exact as steps go to 0",
        cost="1 step; a copy of the weights for each sample",
        choose="layers of very different scales, where SGLD crawls",
    )
    learning_rate: float | Tensor = 1e-3
    averaging: float = 0.99
    stabilizer: float = 1e-4
    adapt: str = "burn_in"

    def faults(self) -> list[str]:
        found = []
        if not 0.0 <= self.averaging < 1.0:
            found.append(f"averaging must lie in [0, 1), got {self.averaging}")
        if not self.stabilizer > 0.0:
            found.append(f"stabilizer must be positive, got {self.stabilizer}")
        if self.adapt not in ("burn_in", "always"):
            found.append(f'adapt must be "burn_in" or "always", got {self.adapt!r}')
        elif (
            self.adapt == "burn_in"
            and (self.schedule.exploration if isinstance(self.schedule, Cyclical) else self.burn_in) <= 0.0
        ):
            found.append('without a burn-in there is nothing to adapt to: burn_in=0.5, or adapt="always"')
        return found

    def remembered(self, theta: Tensor) -> dict[str, Tensor]:
        """V; 1 - a^t, the weight that all gradients so far have in it; and sqrt(G), which both give."""
        zero = torch.zeros_like(theta)
        return {"square": zero, "weight": zero[:, :1].clone(), "root": zero.clone()}

    def more_numbers(self, place: Place) -> tuple[Any, ...]:
        """The weight of this gradient in V. The first step always counts: there is no scale without it."""
        adapts = self.adapt == "always" or not self.sampling(place.progress) or place.progress == 0.0
        return ((1.0 - self.averaging) if adapts else 0.0,)

    def move(self, state: ChainState, step: Step) -> None:
        square, weight, root = (state.memory[name] for name in ("square", "weight", "root"))
        (share,) = step.more
        if isinstance(share, Tensor) or share > 0.0:
            square.mul_(1.0 - share)
            add_product(square, step.gradient, step.gradient, share)
            weight.mul_(1.0 - share).add_(share)
            root.copy_(square).div_(weight).sqrt_().add_(self.stabilizer).rsqrt_()
        # theta - r G g + sqrt(2 r T G / N) noise is theta + sqrt(G) (sqrt(2 r T / N) noise - r sqrt(G) g).
        moved = step.noise * (2.0 * step.rate * step.heat) ** 0.5
        add_product(moved, root, step.gradient, -step.rate)
        state.theta.addcmul_(root, moved)
