"""A mixture of independent Gaussians: q(theta) = sum_k w_k prod_i N(theta_i | mean_ki, std_ki^2).

Several components can stand in several modes, or lean on one another along a correlation that none of them has. There
is no closed form of its entropy, so that the divergence from the prior is sampled, both terms at the same draws:

    KL(q || p) = E_q[log q(theta) - log p(theta)]                                                                   (1)

A draw takes its component by the inverse of the cumulative weights at one uniform number, and then its noise. Point
estimates and statistics of BatchNorm belong to the component.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.kernels import noise
from bayesprop.model import Model
from bayesprop.posteriors.outputs import checked_draws
from bayesprop.posteriors.posterior import Context, Posterior
from bayesprop.rng import Rng, Stream

__all__ = ["GaussianMixture", "mixture_log_density"]

_BUFFER = "buffer/"  # how the buffers of components are named among the tensors
DRAWN = 16_000_000  # numbers that are drawn at a time for (1)


def mixture_log_density(theta: Tensor, log_weights: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """log q of theta (particles, draws, W): (particles, draws), for log_weights (particles, K), mean and std
    (particles, K, W)."""
    found = []
    for k in range(mean.shape[1]):  # one component at a time: (particles, draws, K, W) would be large
        standardised = (theta - mean[:, k, None]) / std[:, k, None]
        found.append(log_weights[:, k, None] - 0.5 * standardised.square().sum(-1) - std[:, k].log().sum(-1)[:, None])
    return torch.logsumexp(torch.stack(found), 0) - 0.5 * mean.shape[-1] * math.log(2.0 * math.pi)


class GaussianMixture(Posterior):
    """weights (particles, K), which sum to 1; mean (particles, K, columns); std (particles, K, W) for the W columns
    that have a distribution.

    `component_buffers` (particles, K, ...) are buffers of the network that belong to components.
    """

    capabilities: ClassVar[frozenset[str]] = frozenset({"weights", "moments", "log_density"})

    def __init__(
        self,
        model: Model,
        weights: Tensor,
        mean: Tensor,
        std: Tensor,
        buffers: Mapping[str, Tensor],
        context: Context | None = None,
        *,
        component_buffers: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__(model, buffers, context)
        if mean.dim() != 3 or mean.shape[:2] != weights.shape or std.shape[:2] != weights.shape:
            raise ConfigurationError(
                "a mixture has a weight, means and deviations for each component",
                received=f"weights {list(weights.shape)}, mean {list(mean.shape)}, std {list(std.shape)}",
                expected="(particles, K), (particles, K, columns) and (particles, K, W)",
            )
        self._weights, self._mean, self._std = weights, mean, std
        self.component_buffers = dict(component_buffers or {})

    def tensors(self) -> dict[str, Tensor]:
        own = {_BUFFER + name: buffer for name, buffer in self.component_buffers.items()}
        return {"weights": self._weights, "mean": self._mean, "std": self._std} | own

    @classmethod
    def from_tensors(
        cls, model: Model, tensors: Mapping[str, Tensor], buffers: Mapping[str, Tensor], context: Context
    ) -> GaussianMixture:
        own = {n.removeprefix(_BUFFER): t for n, t in tensors.items() if n.startswith(_BUFFER)}
        weights, mean, std = (tensors[name] for name in ("weights", "mean", "std"))
        return cls(model, weights, mean, std, buffers, context, component_buffers=own)

    @property
    def weights(self) -> Tensor:
        """(particles, K)."""
        return self._weights

    @property
    def components(self) -> int:
        """K."""
        return self._weights.shape[1]

    # -- draws --------------------------------------------------------------------------------------------------------

    def _noise(self, rng: Rng, draws: int, first: int) -> tuple[Tensor, Tensor]:
        """Which component each draw comes from (particles, draws), and its noise (particles, draws, W)."""
        width = self._std.shape[2]
        drawn = noise.normal(rng.keys(draws, first), rng.step, int(Stream.PREDICTION), width + 1)
        height = torch.special.ndtr(drawn[..., width].double())
        steps = self._weights.double().cumsum(1)[:, :-1].contiguous()
        return torch.searchsorted(steps, height, right=True), drawn[..., :width].to(self._mean.dtype)

    @staticmethod
    def _take(stack: Tensor, chosen: Tensor) -> Tensor:
        return stack[torch.arange(stack.shape[0], device=stack.device)[:, None], chosen]

    def draw(self, rng: Rng, draws: int, first: int = 0) -> Tensor:
        chosen, epsilon = self._noise(rng, draws, first)
        theta = self._take(self._mean, chosen)
        theta[..., : epsilon.shape[2]] += self._take(self._std, chosen) * epsilon
        return theta

    def draw_buffers(self, rng: Rng, draws: int, first: int = 0) -> dict[str, Tensor]:
        found = super().draw_buffers(rng, draws, first)
        if self.component_buffers:
            chosen, _ = self._noise(rng, draws, first)
            found |= {name: self._take(stack, chosen) for name, stack in self.component_buffers.items()}
        return found

    # -- densities ----------------------------------------------------------------------------------------------------

    def moments(self) -> tuple[Tensor, Tensor]:
        weights, width = self._weights[..., None], self._std.shape[2]
        mean = (weights * self._mean).sum(1)
        variance = (weights * (self._mean - mean[:, None]).square()).sum(1)
        variance[:, :width] += (weights * self._std.square()).sum(1)
        variance[:, width:] = 0.0  # points, which are one value for each component
        return mean, variance.sqrt()

    def log_density(self, theta: Tensor) -> Tensor:
        """log q of rows of theta (particles, ..., columns), over the columns that have a distribution."""
        width = self._std.shape[2]
        rows = theta[..., :width].reshape(self.particles, -1, width)
        log_weights = self._weights.clamp_min(1e-38).log()
        found = mixture_log_density(rows, log_weights, self._mean[..., :width], self._std)
        return found.reshape(theta.shape[:-1])

    @torch.no_grad()
    def kl(self, draws: int = 32, *, seed: int = 0) -> Tensor:
        """KL(q || prior) in nats by equation (1), one number a particle, float64."""
        draws, rng = checked_draws(draws, "posterior.kl(draws=32)"), self.rng(seed)
        total = torch.zeros(self.particles, dtype=torch.float64, device=self.model.device)
        step = max(1, DRAWN // (self.particles * self.model.layout.size))
        for first in range(0, draws, step):
            theta = self.draw(rng, min(step, draws - first), first)
            total += (self.log_density(theta) - self.model.log_prior(theta)).double().sum(1)
        return total / draws
