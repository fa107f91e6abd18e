"""Stochastic gradient Langevin dynamics: descent with just the noise that makes it sample.

    theta <- theta - r grad(U / N) + N(0, 2 r T / N)                                                           (1)

The paper's equation 4 with epsilon_t = 2 r / N. With all rows and a constant step it samples a Gaussian of precision L
with covariance (L - epsilon L^2 / 4)^-1: too wide by a share that falls with the step. With steps that decrease
(`Polynomial`) it finds the posterior. It is slow where some directions are much narrower than others: the step has to
fit the narrowest.

Reference: Welling, Teh, "Bayesian Learning via Stochastic Gradient Langevin Dynamics", ICML 2011.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bayesprop.inference.method import About
from bayesprop.inference.sgmcmc.sampler import AbstractSampler, ChainState, Step, add_scaled

__all__ = ["SGLD"]


@dataclass(frozen=True)
class SGLD(AbstractSampler):
    """Equation (1) of the module's docstring; arguments as in `AbstractSampler`.

    >>> SGLD(samples=50, chains=4).population
    4
    """

    about: ClassVar[About | None] = About(
        approximates="the posterior by samples of a chain; exact as steps go to 0",
        cost="1 step; a copy of the weights for each sample",
        choose="a simple check on other methods, when many steps are affordable",
    )

    def move(self, state: ChainState, step: Step) -> None:
        add_scaled(state.theta, step.gradient, -step.rate)
        add_scaled(state.theta, step.noise, (2.0 * step.rate * step.heat) ** 0.5)
