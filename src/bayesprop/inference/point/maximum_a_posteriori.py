"""Maximum a posteriori: the weights with the highest posterior density, ordinary training with the prior as a penalty.

Minimised is, for a minibatch of n out of N rows,

    loss = -[ (N / n) sum_rows log p(y | x, theta) + log p(theta) ] / N                                        (1)

by a column optimiser. A Normal(0, s) prior is the weight decay 1 / (N s^2) of this loss. A learnt noise scale and the
scales of hierarchical priors are maximised too, as the unconstrained columns that they are: the density includes the
Jacobian, so that the estimate is the mode of log scale and not of scale. Of a non-centred prior it is the mode of the
standardised weights; a centred one has no finite mode (scale and weights shrink to zero together).

A point has no epistemic uncertainty: all that its predictions spread by is the likelihood's noise. Dropout in the
network regularises the training and is off in predictions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from bayesprop.inference.method import About
from bayesprop.inference.oracle import joint_gradient
from bayesprop.inference.point.descent import AbstractDescent, PointState
from bayesprop.model import Batch, Model

__all__ = ["MAP"]


@dataclass(frozen=True)
class MAP(AbstractDescent):
    """Equation (1) of the module's docstring; arguments as in `AbstractDescent`.

    >>> MAP(optimizer="momentum").learning_rate
    0.003
    """

    about: ClassVar[About | None] = About(
        approximates="nothing: the one most probable setting of the weights",
        cost="1",
        choose="a baseline, a start for other methods, or the member of an ensemble",
    )

    def gradient(self, model: Model, state: PointState, batch: Batch) -> tuple[Tensor, Tensor]:
        return joint_gradient(model, state.mean, state.buffers, batch)
