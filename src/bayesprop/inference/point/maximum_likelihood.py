"""Maximum likelihood: ordinary training. The prior is not looked at.

    loss = -(1 / n) sum_rows log p(y | x, theta)                                                               (1)

is minimised by a column optimiser; with a Gaussian likelihood that is least squares, with a Categorical one the cross
entropy. A learnt noise scale is estimated with the weights. Weight decay, if wanted, is the optimiser's ("adamw").
Dropout in the network regularises the training and is off in predictions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.inference.method import About
from bayesprop.inference.oracle import likelihood_gradient
from bayesprop.inference.point.descent import AbstractDescent, PointState
from bayesprop.model import Batch, Model
from bayesprop.rng import Rng

__all__ = ["MLE"]


@dataclass(frozen=True)
class MLE(AbstractDescent):
    """Equation (1) of the module's docstring; arguments as in `AbstractDescent`.

    >>> MLE(optimizer="adamw").learning_rate
    0.003
    """

    about: ClassVar[About | None] = About(
        approximates="nothing: the weights that fit the data best",
        cost="1",
        choose="the baseline that everybody else trains",
    )

    def init(self, model: Model, rng: Rng) -> PointState:
        if model.bound_prior.latents:
            raise ConfigurationError(
                "MLE does not look at the prior, and this one has scales that only it can estimate",
                received=", ".join(latent.name for latent in model.bound_prior.latents[:4]),
                expected="a prior with numbers as scales, or MAP, which estimates them",
                write="bp.inference.MAP()  # or bp.Model(..., prior=bp.priors.Flat())",
            )
        return super().init(model, rng)

    def gradient(self, model: Model, state: PointState, batch: Batch) -> tuple[Tensor, Tensor]:
        return likelihood_gradient(model, state.mean, state.buffers, batch)
