"""What Gaussian dropout and sparse variational dropout share: q(w) = N(theta, alpha theta^2) for the weights of layers.

The noise is drawn in the outputs of a layer where each example meets a weight once (local reparameterisation), and in
the weights elsewhere: that is the estimator's business. Biases, norm layers and a noise scale have no noise; they are
points under the model's own prior, which weights do not have here: theirs is uniform in log |w|.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesprop.inference.dropout.descent import AbstractDropout, DropoutState, noisy_log_likelihood
from bayesprop.inference.dropout.layers import droppable, number_of_column
from bayesprop.inference.dropout.log_uniform import check_prior, of_the_rest
from bayesprop.inference.oracle import prior_score
from bayesprop.model import Batch, Model
from bayesprop.posteriors import MultiplicativeGaussian
from bayesprop.random_weights import Estimator, Inputs, LocalReparameterization, NoiseSource, randomize
from bayesprop.rng import Rng

__all__ = ["AbstractMultiplicative"]


@dataclass(frozen=True)
class AbstractMultiplicative(AbstractDropout):
    """A subclass says how wide the noise is, and what it costs; arguments as in `AbstractDropout`, and

    estimator: `LocalReparameterization(samples)`, `Flipout(samples)` or `SharedWeights(samples)`.
    """

    estimator: Estimator = LocalReparameterization()

    @property
    def noises(self) -> int:
        """The number of noises for each step."""
        return self.estimator.samples

    @abstractmethod
    def scales(self, model: Model, weights: dict[str, Tensor], strength: Tensor) -> dict[str, Tensor]:
        """Standard deviations of the weights of all layers by name, for one network: strength (A,)."""

    @abstractmethod
    def divergence(self, model: Model, mean: Tensor, strength: Tensor) -> Tensor:
        """KL of the weights from the log-uniform prior, (particles,)."""

    @abstractmethod
    def std(self, model: Model, mean: Tensor, strength: Tensor) -> tuple[Tensor, Tensor]:
        """Means and standard deviations (particles, columns with a distribution) to predict with."""

    def layers(self, model: Model) -> dict[str, Inputs]:
        """The layers whose weights have noise."""
        return droppable(model, type(self).__name__)

    def init(self, model: Model, rng: Rng) -> DropoutState:
        check_prior(model, type(self).__name__)
        return super().init(model, rng)

    def log_likelihood(
        self, model: Model, mean: Tensor, strength: Tensor, buffers: dict[str, Tensor], batch: Batch, rng: Rng
    ) -> Tensor:
        plan = model.plan(self.estimator)

        def noisy(weights: dict[str, Tensor], own: Tensor, source: NoiseSource) -> dict[str, Tensor]:
            scales = self.scales(model, weights, own)
            means = {name: weights[name] for name in scales}
            return {**weights, **randomize(plan, self.estimator, means, scales, {}, source)}

        return noisy_log_likelihood(model, mean, strength, buffers, batch, rng, samples=self.noises, noisy=noisy)

    def has_noise(self, model: Model, device: torch.device) -> Tensor:
        """Which random columns have noise, (random,)."""
        return number_of_column(model, "layer", device) < len(self.layers(model))

    def penalty(self, model: Model, mean: Tensor, strength: Tensor) -> Tensor:
        rest = of_the_rest(model, mean, self.has_noise(model, mean.device))
        return self.divergence(model, mean, strength) - rest

    def penalty_gradients(self, model: Model, mean: Tensor, strength: Tensor) -> dict[str, Tensor]:
        layout = model.layout
        rest = prior_score(model, mean[:, : layout.latent]).neg_()
        for name in self.layers(model):
            rest[:, layout.by_name[name].columns] = 0.0
        found = {"mean": torch.nn.functional.pad(rest, (0, layout.size - layout.latent))}
        if self.learns:
            leaves = (mean.detach().requires_grad_(True), strength.detach().requires_grad_(True))
            with torch.enable_grad():
                value = self.divergence(model, *leaves)
                by_mean, found["strength"] = torch.autograd.grad(
                    value.sum(), leaves, allow_unused=True, materialize_grads=True
                )
            found["mean"] += by_mean
        return found

    def posterior(self, model: Model, state: DropoutState) -> MultiplicativeGaussian:
        location, std = self.std(model, state.mean, state.strength)
        buffers = {name: buffer.clone() for name, buffer in state.buffers.items()}
        mean = torch.cat((location, state.mean[:, location.shape[1] :]), dim=1)
        return MultiplicativeGaussian(model, mean, std, buffers)
