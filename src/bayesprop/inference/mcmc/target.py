"""The log joint of all rows as a function of theta alone, with its gradient: what a corrected chain samples.

    log p(theta, D) = sum_i log p(y_i | f(x_i; theta)) + log p(theta)                                           (1)

The sums over rows and columns are taken in float64, whatever the network computes in: a Metropolis test looks at
differences of order 1 between sums that may be of order 10^6, where float32 would round to 0.1. The gradient has
theta's own dtype; an error in it costs acceptance, not correctness.

A density must not change from one evaluation to the next. A network that draws random numbers while it trains
(dropout) is therefore evaluated as for predictions, without them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.model import Batch, Model

__all__ = ["Point", "Target"]


@dataclass
class Point:
    """theta (particles, columns); equation (1) there and its data term, float64 (particles,); the gradient; buffers."""

    theta: Tensor
    value: Tensor
    log_likelihood: Tensor
    gradient: Tensor
    buffers: dict[str, Tensor]

    def where(self, taken: Tensor, other: Point) -> Point:
        """This point for the particles that `taken` (particles,) names, the other one for the rest."""

        def pick(mine: Tensor, theirs: Tensor) -> Tensor:
            return torch.where(taken.view(-1, *[1] * (mine.dim() - 1)), mine, theirs)

        return Point(
            pick(self.theta, other.theta),
            pick(self.value, other.value),
            pick(self.log_likelihood, other.log_likelihood),
            pick(self.gradient, other.gradient),
            {name: pick(buffer, other.buffers[name]) for name, buffer in self.buffers.items()},
        )


@dataclass(frozen=True)
class Target:
    """Equation (1) for one model and all of its rows."""

    model: Model
    batch: Batch

    def __post_init__(self) -> None:
        if self.batch.rows != self.batch.num_data:
            raise ConfigurationError(
                "HMC looks at all rows in each step",
                received=f"a minibatch of {self.batch.rows} out of {self.batch.num_data} rows",
                expected="all rows at once, or a method for minibatches such as SGHMC",
                write="bp.fit(model, (inputs, targets), HMC(), batch_size=None)",
            )

    @contextlib.contextmanager
    def steady(self) -> Iterator[None]:
        """Evaluate the network as for predictions, if it draws random numbers while it trains."""
        before = self.model.network.training
        if self.model.draws_globally:
            self.model.set_mode(False)
        try:
            yield
        finally:
            self.model.set_mode(before)

    def __call__(self, theta: Tensor, buffers: Mapping[str, Tensor]) -> Point:
        """The point at theta; buffers are copied, and those of the point are what the network makes of them."""
        model, particles = self.model, theta.shape[0]
        own = {name: buffer.clone() for name, buffer in buffers.items()}
        leaf = theta.detach()[:, None].requires_grad_(True)
        with torch.enable_grad():
            spread = model.spread_buffers(own, 1)
            arguments = (model.weights(leaf), model.latent_values(leaf), spread, self.batch.inputs, self.batch.targets)
            tags = ("PS", "PS", "PS", "P", "P")
            likelihood = model.over_lanes(self._rows, arguments, tags, particles, 1)[:, 0]
            value = likelihood + model.log_prior(leaf[:, 0].double())
            (gradient,) = torch.autograd.grad(value.sum(), leaf, materialize_grads=True)
        model.gather_buffers(own, spread)
        return Point(theta, value.detach(), likelihood.detach(), gradient[:, 0], own)

    def _rows(
        self,
        weights: Mapping[str, Tensor],
        latents: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
        inputs: Any,
        targets: Tensor,
    ) -> Tensor:
        """The log-likelihood of one lane, its rows summed in float64."""
        outputs = self.model.forward(weights, buffers, inputs)
        return self.model.likelihood.log_prob(outputs, targets, latents).double().sum()

    def check_steady(self, point: Point, buffers: Mapping[str, Tensor]) -> None:
        """Refuse a network whose output is random even as it predicts; `buffers` are those the point came from."""
        if self.model.draws_globally and not torch.equal(self(point.theta, buffers).value, point.value):
            raise ConfigurationError(
                "HMC needs a log joint that is a function of the weights",
                received="a network that draws random numbers, also in evaluation mode",
                expected="a network without noise of its own, or a method that takes noisy gradients",
                write="SGHMC()",
            )
