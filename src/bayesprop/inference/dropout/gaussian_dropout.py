"""Gaussian dropout: each weight has noise in proportion to its size.

    q(w) = N(theta, alpha theta^2)                                                                                  (1)

With alpha = p / (1 - p) its first two moments are those of dropout at rate p (Srivastava et al. 2014), here with
independent noise for each weight. Under a prior that is uniform in log |w| the divergence depends on alpha only
(`log_uniform`): for a given alpha the expected log-likelihood is all there is, and alpha itself can be learnt, one for
each layer, each input of a layer or each weight (Kingma, Salimans and Welling 2015, their variational dropout B). alpha
stays at or below 1, where their approximation holds; `SparseVariationalDropout` has no such bound.

Choose it for dropout with little noise in the gradients. Do not where weights need the prior that you have: the
log-uniform prior shrinks nothing, is no density, and rewards noise: on small data an alpha that is learnt for a layer
can end far above the one that predicts best, which is why it is given unless you ask.

Map to the paper: theta, alpha and the constants c1, c2, c3 are theirs; the prior on what has no noise is ours.

Reference: Kingma, Salimans, Welling, "Variational Dropout and the Local Reparameterization Trick", NIPS 2015.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from bayesprop.inference.dropout.descent import DropoutState
from bayesprop.inference.dropout.layers import KINDS, counts_of, for_each_layer, of_columns
from bayesprop.inference.dropout.log_uniform import cubic
from bayesprop.inference.dropout.multiplicative import AbstractMultiplicative
from bayesprop.inference.method import About, Info
from bayesprop.model import Batch, Model
from bayesprop.rng import Rng

__all__ = ["GaussianDropout"]


@dataclass(frozen=True)
class GaussianDropout(AbstractMultiplicative):
    """Equation (1) of the module's docstring; other arguments as in `AbstractMultiplicative`.

    Args:
        alpha: variance of the noise relative to a squared weight, where it starts if it is learnt: a number in (0, 1],
            one for each particle, or one for each pattern of names of weights.
        learn: what has an alpha of its own to learn: "layer", "unit" (an input of a layer), "weight", or None.

    >>> GaussianDropout(alpha=0.25).alpha  # what dropout at rate 0.2 has
    0.25
    """

    about: ClassVar[About | None] = About(
        approximates="the posterior by noise in proportion to each weight, under a log-uniform prior",
        cost="2 times the step",
        choose="dropout with little noise in its gradients, whose size is given or learnt",
    )
    alpha: float | Tensor | Mapping[str, float] = 0.05
    learn: Literal["layer", "unit", "weight"] | None = None

    per_particle = AbstractMultiplicative.per_particle | {"alpha"}

    @property
    def learns(self) -> bool:  # type: ignore[override]
        """Whether alpha is learnt."""
        return self.learn is not None

    def faults(self) -> list[str]:
        values = list(self.alpha.values()) if isinstance(self.alpha, Mapping) else [self.alpha]
        inside = [bool(torch.as_tensor((value > 0) & (value <= 1)).all()) for value in map(torch.as_tensor, values)]
        wrong = [f"alpha lies in (0, 1], got {value}" for value, right in zip(values, inside, strict=True) if not right]
        if self.learn not in (*KINDS, None):
            wrong.append(f'learn is one of "layer", "unit", "weight" and None, got {self.learn!r}')
        return [*super().faults(), *wrong]

    @property
    def kind(self) -> str:
        """What has an alpha of its own."""
        return self.learn or "layer"

    def starting_strength(self, model: Model, rng: Rng) -> Tensor:
        """log alpha (particles, A)."""
        layers = self.layers(model)
        each = for_each_layer(self.alpha, list(layers), rng.particles, "alpha", 0.05).log()
        counts = torch.tensor(counts_of(layers, self.kind))
        return torch.repeat_interleave(each, counts, dim=1).to(model.device)

    def scales(self, model: Model, weights: dict[str, Tensor], strength: Tensor) -> dict[str, Tensor]:
        layers, found = self.layers(model), {}
        pieces = torch.split(strength, counts_of(layers, self.kind))
        for (name, layer), log_alpha in zip(layers.items(), pieces, strict=True):
            root = torch.exp(0.5 * log_alpha)
            if self.kind == "unit":
                root = layer.along(root)
            elif self.kind == "weight":
                root = root.reshape(layer.shape)
            found[name] = root.to(weights[name].dtype) * weights[name].abs()
        return found

    def divergence(self, model: Model, mean: Tensor, strength: Tensor) -> Tensor:
        """Each weight counts once, those that share an alpha included."""
        sizes = counts_of(self.layers(model), "weight")
        counts = counts_of(self.layers(model), self.kind)
        share = [size / count for size, count in zip(sizes, counts, strict=True)]
        pieces = torch.split(cubic(strength), counts, dim=1)
        return torch.stack([s * piece.sum(1) for s, piece in zip(share, pieces, strict=True)]).sum(0)

    def update(self, model: Model, state: DropoutState, batch: Batch, rng: Rng) -> tuple[DropoutState, Info]:
        """A step, after which no alpha is above 1."""
        state, info = super().update(model, state, batch, rng)
        state.strength.clamp_(max=0.0)
        return state, info

    def std(self, model: Model, mean: Tensor, strength: Tensor) -> tuple[Tensor, Tensor]:
        layout, weights = model.layout, mean[:, : model.layout.random]
        root = of_columns(torch.exp(0.5 * strength), model, 0.0, self.kind)
        spread = torch.zeros_like(mean[:, : layout.latent])
        spread[:, : layout.random] = root * weights.abs()
        return mean[:, : layout.latent].clone(), spread

    def rate_of(self, alpha: float) -> float:
        """The rate of dropout with the same variance: alpha / (1 + alpha)."""
        return alpha / (1.0 + alpha) if math.isfinite(alpha) else 1.0
