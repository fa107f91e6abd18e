"""Concrete dropout: the rate of each layer is learnt from the data.

The posterior is that of Monte-Carlo dropout with a rate p_l for each layer, trained on the bound itself,

    loss = [ -(N / n) sum_rows E log p(y | x, w) - E_q[log p(w)] - sum_l K_l H(p_l) ] / N                           (1)
    H(p) = -p log p - (1 - p) log(1 - p)

with K_l inputs of layer l; the expected log prior is that of `bernoulli_prior`: minus the sum of
theta_i^2 / (2 (1 - p) s^2) for a Normal(0, s) prior. Masks that are 0 or 1 have no gradient by p: while training they
are concrete (Maddison et al. 2017),

    m = (1 - z) / (1 - p),    z = sigmoid([logit p + logit u] / t),    u ~ U(0, 1)                                  (2)

with the temperature t; predictions drop for good. With few data the entropy keeps rates up, with many it does not
count against the fit and they fall: epistemic uncertainty shrinks as it should (Gal, Hron and Kendall 2017).

Choose it where Monte-Carlo dropout would do and nobody knows the rate. Do not expect more than one number for a layer.

Map to the paper: p, t, l = 1 / s and the entropy term are theirs; their weights M are theta / (1 - p), their 1 / N is
in front of equation (1).

Reference: Gal, Hron, Kendall, "Concrete Dropout", NIPS 2017.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from bayesprop.inference.dropout.bernoulli_prior import expected_log_prior, penalty_gradients
from bayesprop.inference.dropout.descent import AbstractDropout, DropoutState, check_samples, noisy_log_likelihood
from bayesprop.inference.dropout.layers import counts_of, droppable, for_each_layer, of_columns
from bayesprop.inference.method import About
from bayesprop.model import Batch, Model
from bayesprop.posteriors import BernoulliDropout
from bayesprop.random_weights import Inputs, Masks, NoiseSource, mask
from bayesprop.rng import Rng

__all__ = ["ConcreteDropout", "concrete", "entropy"]

ROOT_HALF = 0.5**0.5


def concrete(noise: Tensor, logit: Tensor, temperature: float) -> Tensor:
    """Equation (2) for standard normal noise, whose distribution function is u."""
    noise_logit = torch.log(torch.erfc(-ROOT_HALF * noise)) - torch.log(torch.erfc(ROOT_HALF * noise))
    kept = torch.sigmoid(-(logit + noise_logit.to(logit.dtype)) / temperature)
    return kept / torch.sigmoid(-logit)


def entropy(logit: Tensor) -> Tensor:
    """H(p) of a Bernoulli variable in nats, from the logit of p."""
    p, softplus = torch.sigmoid(logit), torch.nn.functional.softplus
    return p * softplus(-logit) + (1.0 - p) * softplus(logit)


@dataclass(frozen=True)
class ConcreteDropout(AbstractDropout):
    """Equation (1) of the module's docstring; other arguments as in `AbstractDropout`.

    Args:
        initial_rate: where p starts: a number, one for each particle, or one for each pattern of names of weights.
        relaxation: the temperature t of equation (2).
        samples: masks for each step.

    >>> ConcreteDropout().relaxation
    0.1
    """

    about: ClassVar[About | None] = About(
        approximates="the posterior by dropping inputs of layers at random, at rates that are learnt",
        cost="2 to 3 times the step",
        choose="dropout whose rate nobody knows: one number for each layer, found with the weights",
    )
    initial_rate: float | Tensor | Mapping[str, float] = 0.1
    relaxation: float = 0.1
    samples: int = 1

    per_particle = AbstractDropout.per_particle | {"initial_rate"}

    def faults(self) -> list[str]:
        rates = list(self.initial_rate.values()) if isinstance(self.initial_rate, Mapping) else [self.initial_rate]
        inside = [bool(torch.as_tensor((rate > 0) & (rate < 1)).all()) for rate in map(torch.as_tensor, rates)]
        wrong = [f"a rate lies in (0, 1), got {rate}" for rate, right in zip(rates, inside, strict=True) if not right]
        if not self.relaxation > 0.0:
            wrong.append(f"relaxation must be positive, got {self.relaxation}")
        return [*super().faults(), *wrong, *check_samples(self.samples)]

    @property
    def noises(self) -> int:
        """The number of masks for each step."""
        return self.samples

    @property
    def estimator(self) -> Masks:
        """How weights are evaluated: with masks of their inputs."""
        return Masks(self.samples)

    def layers(self, model: Model) -> dict[str, Inputs]:
        """The layers whose inputs are dropped."""
        return droppable(model, "ConcreteDropout")

    def starting_strength(self, model: Model, rng: Rng) -> Tensor:
        """The logits of the rates, (particles, layers)."""
        names = list(self.layers(model))
        return for_each_layer(self.initial_rate, names, rng.particles, "initial_rate", 0.1).logit().to(model.device)

    def log_likelihood(
        self, model: Model, mean: Tensor, strength: Tensor, buffers: dict[str, Tensor], batch: Batch, rng: Rng
    ) -> Tensor:
        inputs, plan = self.layers(model), model.plan(self.estimator)

        def noisy(weights: dict[str, Tensor], logits: Tensor, source: NoiseSource) -> dict[str, Tensor]:
            laws = {
                name: partial(concrete, logit=logits[number], temperature=self.relaxation)
                for number, name in enumerate(inputs)
            }
            return mask(weights, plan, inputs, laws, source)

        return noisy_log_likelihood(model, mean, strength, buffers, batch, rng, samples=self.samples, noisy=noisy)

    def penalty(self, model: Model, mean: Tensor, strength: Tensor) -> Tensor:
        keep = of_columns(torch.sigmoid(-strength), model, 1.0)
        counts = counts_of(self.layers(model), "unit")
        each = [count * entropy(strength[:, number]) for number, count in enumerate(counts)]
        return -expected_log_prior(model, mean, keep) - torch.stack(each).sum(0)

    def penalty_gradients(self, model: Model, mean: Tensor, strength: Tensor) -> dict[str, Tensor]:
        keep, rate = torch.sigmoid(-strength), torch.sigmoid(strength)
        found = penalty_gradients(model, mean, keep, learns=True)
        if found is None:
            return super().penalty_gradients(model, mean, strength)
        # dk / d logit = -k p, and dH / d logit = -logit k p.
        counts = counts_of(self.layers(model), "unit")
        of_entropy = torch.stack([count * strength[:, number] for number, count in enumerate(counts)], dim=1)
        return {"mean": found["mean"], "strength": keep * rate * (of_entropy - found["keep"])}

    def posterior(self, model: Model, state: DropoutState) -> BernoulliDropout:
        mean, buffers = state.mean.clone(), {name: buffer.clone() for name, buffer in state.buffers.items()}
        return BernoulliDropout(model, mean, torch.sigmoid(state.strength), buffers)
