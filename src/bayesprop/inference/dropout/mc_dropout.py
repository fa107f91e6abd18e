"""Monte-Carlo dropout: train with dropout, and leave it on when predicting.

Training with dropout maximises a bound on the evidence of a Bayesian network whose posterior drops the inputs of layers
(Gal and Ghahramani 2016). With keep probability k = 1 - p, weights w = theta m / k and a Normal(0, s) prior the loss is

    loss = -(1 / n) sum_rows log p(y | x, w) + (1 / N) sum_i theta_i^2 / (2 k s^2),                                 (1)

and for other priors their expectation in the place of the square (`bernoulli_prior`). Choose it for a network that
trains with dropout anyway: it costs little more. Its spread is that of the masks: it does not shrink where data are
plenty, as that of a posterior does; the rate is a choice, or learnt by `ConcreteDropout`.

In which networks dropout happens:

    MCDropout()             the network's own dropout layers, of any kind; the prior's penalty is then plain (k = 1)
    MCDropout(rate=0.1)     before every layer with weights, also where a network has none: masks for the inputs of
                            dense layers, the channels of convolutions, rows of embeddings, inputs and states of
                            recurrent layers (one mask for all times, Gal and Ghahramani 2016b) and the projections of
                            attention; dropout layers of the network are off
    MCDropout(rate={...})   a rate for each pattern of names of weights, e.g. {"0.*": 0.0, "*": 0.2}

The Gaussian process behind it: a prior length scale l is `priors.Normal(scale=1 / l)`, a precision tau of the data is
`likelihoods.Gaussian(scale=tau ** -0.5)`, learnt unless it is given. The papers write the same loss with an explicit
weight decay lambda on squared errors / 2, which holds if lambda = k l^2 / (2 N tau) (`weight_decay`, `precision`).

Map to the papers: their p_i is k here, the probability to keep; their M is theta / k, their lambda multiplies |M|^2.

References: Gal, Ghahramani, "Dropout as a Bayesian Approximation", ICML 2016; "A Theoretically Grounded Application of
Dropout in Recurrent Neural Networks", NIPS 2016.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.inference.dropout.bernoulli_prior import expected_log_prior, penalty_gradients
from bayesprop.inference.dropout.descent import AbstractDropout, DropoutState, check_samples, noisy_log_likelihood
from bayesprop.inference.dropout.layers import droppable, for_each_layer, inputs_of, of_columns
from bayesprop.inference.method import About
from bayesprop.model import Batch, Model
from bayesprop.posteriors import ActiveDropout, BernoulliDropout
from bayesprop.random_weights import (
    Estimator,
    Masks,
    NoiseSource,
    SharedWeights,
    bernoulli,
    dropout_modules,
    elsewhere,
    mask,
    seeded,
)
from bayesprop.rng import Rng

__all__ = ["MCDropout"]


@dataclass(frozen=True)
class MCDropout(AbstractDropout):
    """See the module's docstring for the equations and for what `rate` means; `samples` masks for each step; other
    arguments as in `AbstractDropout`.

    >>> MCDropout(rate=0.2).weight_decay(length_scale=1.0, num_data=100, precision=4.0)
    0.001
    """

    about: ClassVar[About | None] = About(
        approximates="the posterior by dropping inputs of layers at random, at a rate that is given",
        cost="1.2 to 2 times the step",
        choose="a network that is trained with dropout anyway",
    )
    rate: float | Tensor | Mapping[str, float] | None = None
    samples: int = 1

    learns: ClassVar[bool] = False
    per_particle = AbstractDropout.per_particle | {"rate"}

    def faults(self) -> list[str]:
        rates = list(self.rate.values()) if isinstance(self.rate, Mapping) else [] if self.rate is None else [self.rate]
        inside = [bool(torch.as_tensor((rate >= 0) & (rate < 1)).all()) for rate in map(torch.as_tensor, rates)]
        wrong = [f"a rate lies in [0, 1), got {rate}" for rate, right in zip(rates, inside, strict=True) if not right]
        return [*super().faults(), *wrong, *check_samples(self.samples)]

    @property
    def noises(self) -> int:
        """The number of masks for each step."""
        return self.samples

    @property
    def estimator(self) -> Estimator:
        """How weights are evaluated: with masks of their inputs, or as they are."""
        return SharedWeights(self.samples) if self.rate is None else Masks(self.samples)

    # -- the Gaussian process behind it -------------------------------------------------------------------------------

    def weight_decay(self, *, length_scale: float, num_data: int, precision: float) -> float:
        """lambda = k l^2 / (2 N tau): what the papers' loss, mean squared error / 2 + lambda |M|^2, takes."""
        return (1.0 - self._single_rate()) * length_scale**2 / (2.0 * num_data * precision)

    def precision(self, *, length_scale: float, num_data: int, weight_decay: float) -> float:
        """tau = k l^2 / (2 N lambda): the precision of the data that a weight decay stands for."""
        return (1.0 - self._single_rate()) * length_scale**2 / (2.0 * num_data * weight_decay)

    def _single_rate(self) -> float:
        if not isinstance(self.rate, int | float):
            raise ConfigurationError(
                "weight decay and precision are those of one rate", received=f"rate={self.rate!r}", write="rate=0.1"
            )
        return float(self.rate)

    # -- what the family asks -----------------------------------------------------------------------------------------

    def starting_strength(self, model: Model, rng: Rng) -> Tensor:
        """The rates of all layers; none where dropout is that of the network."""
        if self.rate is None:
            return torch.zeros(rng.particles, 0, device=model.device)
        names = list(droppable(model, "MCDropout(rate=...)"))
        return for_each_layer(self.rate, names, rng.particles, "rate", 0.0).to(model.device)

    def init(self, model: Model, rng: Rng) -> DropoutState:
        if self.rate is None:
            self._check_own(model)
        return super().init(model, rng)

    def _check_own(self, model: Model) -> None:
        inside = elsewhere(model.network)
        if inside:
            raise ConfigurationError(
                "MCDropout() leaves the network's own dropout layers on, and some dropout of this network is inside of "
                "operations of torch, where no mask of ours reaches",
                received=", ".join(inside),
                expected="dropout=0 there, or dropout before every layer with weights",
                write="MCDropout(rate=0.1)",
            )
        if not dropout_modules(model.network):
            raise ConfigurationError(
                "MCDropout() leaves the network's own dropout layers on, and this network has none",
                received=type(model.network).__name__,
                expected="torch.nn.Dropout or its relatives with p > 0, or a rate at which to drop",
                write="MCDropout(rate=0.1)",
            )

    def log_likelihood(
        self, model: Model, mean: Tensor, strength: Tensor, buffers: dict[str, Tensor], batch: Batch, rng: Rng
    ) -> Tensor:
        arguments = (model, mean, strength, buffers, batch, rng)
        if self.rate is None:
            modules = [m for m in dropout_modules(model.network) if not any(m is o for o in model._always_eval)]
            own = partial(seeded, modules)
            return noisy_log_likelihood(
                *arguments, samples=self.samples, noisy=lambda weights, *_: weights, surroundings=own
            )
        inputs, plan = droppable(model, "MCDropout(rate=...)"), model.plan(self.estimator)

        def noisy(weights: dict[str, Tensor], rates: Tensor, source: NoiseSource) -> dict[str, Tensor]:
            laws = {name: partial(bernoulli, rate=rates[number]) for number, name in enumerate(inputs)}
            return mask(weights, plan, inputs, laws, source)

        return noisy_log_likelihood(*arguments, samples=self.samples, noisy=noisy)

    def penalty(self, model: Model, mean: Tensor, strength: Tensor) -> Tensor:
        keep = mean.new_ones(mean.shape[0], model.layout.random)
        if self.rate is not None:
            keep = of_columns(1.0 - strength, model, 1.0)
        return -expected_log_prior(model, mean, keep)

    def penalty_gradients(self, model: Model, mean: Tensor, strength: Tensor) -> dict[str, Tensor]:
        layers = len(inputs_of(model))
        keep = mean.new_ones(mean.shape[0], layers) if self.rate is None else 1.0 - strength
        found = penalty_gradients(model, mean, keep, learns=False)
        return super().penalty_gradients(model, mean, strength) if found is None else found

    def posterior(self, model: Model, state: DropoutState) -> ActiveDropout | BernoulliDropout:
        mean, buffers = state.mean.clone(), {name: buffer.clone() for name, buffer in state.buffers.items()}
        if self.rate is None:
            return ActiveDropout(model, mean, buffers)
        return BernoulliDropout(model, mean, state.strength.clone(), buffers)
