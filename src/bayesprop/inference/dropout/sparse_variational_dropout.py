"""Sparse variational dropout: weights whose noise grows beyond their size are dropped for good.

    q(w) = N(theta, sigma^2),    log alpha = log sigma^2 - log theta^2                                              (1)

for each weight, under a prior that is uniform in log |w|, with the divergence approximated for all alpha
(`log_uniform.sigmoid`). It falls to 0 as alpha grows, so that weights that the data do not need drift to pure noise
around nothing: what has log alpha above `threshold` is zero in the posterior, and `posterior.sparsity()` tells how much
that is. Moving log sigma^2 in the place of alpha leaves the gradient of theta without the noise that alpha theta^2
brings (Molchanov, Ashukha and Vetrov 2017).

Choose it to make a network small: most weights of a wide network vanish. Do not for calibrated uncertainty: the prior
is no density, and what is left is a point with noise.

Map to the paper: theta, sigma and alpha are theirs, and so are the start log sigma^2 = -10, the threshold 3 and the
divergence that comes in slowly; the prior on what has no noise is ours.

Reference: Molchanov, Ashukha, Vetrov, "Variational Dropout Sparsifies Deep Neural Networks", ICML 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from bayesprop.inference.dropout.layers import counts_of, of_columns
from bayesprop.inference.dropout.log_uniform import sigmoid
from bayesprop.inference.dropout.multiplicative import AbstractMultiplicative
from bayesprop.inference.method import About
from bayesprop.model import Model
from bayesprop.rng import Rng

__all__ = ["SparseVariationalDropout"]

TINY = 1e-20  # added to theta^2 under the logarithm


@dataclass(frozen=True)
class SparseVariationalDropout(AbstractMultiplicative):
    """Equation (1) of the module's docstring; other arguments as in `AbstractMultiplicative`.

    Args:
        initial_log_variance: log sigma^2 to start from.
        threshold: weights with a greater log alpha are zero in the posterior; infinite for none. 3 is a rate of 0.95.
        warmup: share of the training over which the divergence comes in.

    >>> SparseVariationalDropout().threshold
    3.0
    """

    about: ClassVar[About | None] = About(
        approximates="the posterior by noise for each weight under a log-uniform prior; most weights end at zero",
        cost="3 to 4 times the step, 2 times the memory",
        choose="a small network: weights that the data do not need are dropped for good",
    )
    warmup: float = 0.5
    initial_log_variance: float | Tensor = -10.0
    threshold: float = 3.0

    per_particle = AbstractMultiplicative.per_particle | {"initial_log_variance"}

    def starting_strength(self, model: Model, rng: Rng) -> Tensor:
        """log sigma^2 (particles, weights of layers)."""
        count = sum(counts_of(self.layers(model), "weight"))
        start = torch.as_tensor(self.initial_log_variance, dtype=torch.float64).reshape(-1, 1)
        return start.expand(rng.particles, count).clone().to(model.device)

    def scales(self, model: Model, weights: dict[str, Tensor], strength: Tensor) -> dict[str, Tensor]:
        layers = self.layers(model)
        pieces = torch.split(torch.exp(0.5 * strength), counts_of(layers, "weight"))
        return {
            name: piece.reshape(layer.shape).to(weights[name].dtype)
            for (name, layer), piece in zip(layers.items(), pieces, strict=True)
        }

    def log_alpha(self, model: Model, mean: Tensor, strength: Tensor) -> Tensor:
        """(particles, weights of layers)."""
        columns = torch.cat([mean[:, model.layout.by_name[name].columns] for name in self.layers(model)], dim=1)
        return strength - torch.log(columns.square() + TINY)

    def divergence(self, model: Model, mean: Tensor, strength: Tensor) -> Tensor:
        return sigmoid(self.log_alpha(model, mean, strength)).sum(1)

    def std(self, model: Model, mean: Tensor, strength: Tensor) -> tuple[Tensor, Tensor]:
        layout = model.layout
        gone = (self.log_alpha(model, mean, strength) > self.threshold).to(mean.dtype)
        location, spread = mean[:, : layout.latent].clone(), torch.zeros_like(mean[:, : layout.latent])
        spread[:, : layout.random] = of_columns(torch.exp(0.5 * strength) * (1.0 - gone), model, 0.0, "weight")
        location[:, : layout.random] *= 1.0 - of_columns(gone, model, 0.0, "weight")
        return location, spread
