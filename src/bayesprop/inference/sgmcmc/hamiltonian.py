"""Stochastic gradient Hamiltonian Monte Carlo: SGLD with momentum, in the form of SGD with momentum.

    v <- (1 - alpha) v - r grad(U / N) + N(0, 2 (alpha - beta) r T / N)
    theta <- theta + v                                                                     (paper's equation 15)

with friction alpha (1 minus the usual momentum), learning rate r (the paper's eta is r / N) and beta, the paper's
estimate of the noise that the minibatches bring already. With friction 1 it is SGLD with the same r. For all rows and a
Gaussian target the pair (theta, v) is a linear recursion whose covariance solves the discrete Lyapunov equation
S = A S A^T + Q; it approaches the target's as r falls.

Reference: Chen, Fox, Guestrin, "Stochastic Gradient Hamiltonian Monte Carlo", ICML 2014.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from bayesprop.inference.method import About
from bayesprop.inference.sgmcmc.sampler import AbstractSampler, ChainState, Step, add_scaled

__all__ = ["SGHMC"]


@dataclass(frozen=True)
class SGHMC(AbstractSampler):
    """Equations of the module's docstring; further arguments as in `AbstractSampler`.

    Args:
        friction: alpha, between 0 (not included) and 1.
        gradient_noise: beta, at most alpha.

    >>> SGHMC(friction=0.05).learning_rate
    0.001
    """

    about: ClassVar[About | None] = About(
        approximates="the posterior by samples of a chain; exact as steps go to 0",
        cost="1 step; a copy of the weights for each sample",
        choose="samples of a larger network: momentum carries it further than SGLD",
    )
    learning_rate: float | Tensor = 1e-3
    friction: float = 0.1
    gradient_noise: float = 0.0

    def faults(self) -> list[str]:
        found = []
        if not 0.0 < self.friction <= 1.0:
            found.append(f"friction must lie in (0, 1], got {self.friction}")
        if not 0.0 <= self.gradient_noise <= self.friction:
            found.append(f"gradient_noise must lie between 0 and the friction, got {self.gradient_noise}")
        return found

    def remembered(self, theta: Tensor) -> dict[str, Tensor]:
        """v, which starts at rest."""
        return {"velocity": torch.zeros_like(theta)}

    def move(self, state: ChainState, step: Step) -> None:
        deviation = (2.0 * (self.friction - self.gradient_noise) * step.rate * step.heat) ** 0.5
        velocity = state.memory["velocity"].mul_(1.0 - self.friction)
        add_scaled(velocity, step.gradient, -step.rate)
        add_scaled(velocity, step.noise, deviation)
        state.theta.add_(velocity)
