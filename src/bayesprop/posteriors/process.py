"""Beliefs about functions that are not beliefs about weights: posteriors that are Gaussian processes.

A process says, for any rows, the joint Gaussian of the K outputs there:

    f_k(X*) ~ N(m_k(X*), S_k(X*)),  independent over k                                                            (1)

Predictions draw from it like from any posterior: `Prediction` gets S functions at all rows. Draws come in pairs m + e
and m - e, so that with an even number of them their mean is m to rounding. Rows are joint in blocks of 512; blocks are
independent given the data. Weights, their moments and their densities do not exist, and asking for them is refused.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesprop.data import as_inputs
from bayesprop.errors import CapabilityError
from bayesprop.kernels import noise
from bayesprop.posteriors.outputs import ACTIVATION_BUDGET, check_features
from bayesprop.posteriors.posterior import Posterior
from bayesprop.prediction.chunks import Source
from bayesprop.rng import Rng, Stream

__all__ = ["Process", "factor_of"]

JOINT = 512  # rows whose covariance is factorised at once


def factor_of(matrix: Tensor) -> Tensor:
    """Lower Cholesky factors (..., n, n), with the least of 0, 1e-12, 1e-11, ... 1e-4 of the mean diagonal added that
    makes the matrices positive definite to rounding."""
    size = matrix.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(1e-30) if matrix.shape[-1] else matrix.sum((-2, -1))
    one = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    lower = matrix
    for power in (0.0, *(10.0**-k for k in range(12, 3, -1))):
        lower, info = torch.linalg.cholesky_ex(matrix + (power * size)[..., None, None] * one)
        if not bool(info.any()):
            return lower
    raise CapabilityError(
        "the covariance of these rows is not positive definite",
        received=f"a matrix of {matrix.shape[-1]} rows with a diagonal of {float(size.max()):.3g}",
        expected="finite inputs on a scale near 1",
        write="bp.Data(X, y, standardize=True)",
    )


class Process(Posterior):
    """Equation (1); a subclass says `joint`, and how many outputs there are."""

    capabilities: ClassVar[frozenset[str]] = frozenset({"functions"})

    # -- what a subclass says -----------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def hyper(self) -> Tensor:
        """The unconstrained columns behind the weights, (particles, H): scales of the prior and of the likelihood."""

    @property
    @abstractmethod
    def output_shape(self) -> tuple[int, ...]:
        """The shape of the network's output for one row: (K,)."""

    @abstractmethod
    def joint(self, inputs: Any) -> tuple[Tensor, Tensor]:
        """Mean (particles, K, n) and covariance (particles, K or 1, n, n), float64, at prepared inputs (n, ...)."""

    # -- functions ----------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def process(self, inputs: Any) -> tuple[Tensor, Tensor]:
        """Mean (particles, K, n) and covariance (particles, K, n, n) of f at new inputs, without the noise, on the
        scale on which the model sees its targets."""
        raw, scaling = as_inputs(inputs), self.context.scaling
        if scaling is not None:
            check_features(raw, scaling)
            raw = scaling.scale_inputs(raw)
        mean, covariance = self.joint(self.model.prepare_inputs(raw))
        return mean, covariance.expand(-1, mean.shape[1], -1, -1)

    def latent_values(self, draws: int) -> dict[str, Tensor]:
        """Values of the likelihood's latents, the same for every draw: name -> (particles * draws, *shape)."""
        layout, found = self.model.layout, {}
        for latent in self.model.likelihood.latents:
            block = layout.by_name[latent.name]
            value = latent.constrain(self.hyper[:, block.start - layout.random : block.stop - layout.random])
            found[latent.name] = value[:, None].expand(-1, draws, *value.shape[1:]).flatten(0, 1)
        return found

    def outputs(self, inputs: Any, draws: int, *, seed: int = 0) -> Source:
        """Draws of f at prepared inputs; see the module's docstring."""
        rng, length = self.rng(seed), pytree.tree_leaves(inputs)[0].shape[0]
        each = ACTIVATION_BUDGET // max(1, self.particles * draws * max(1, self.output_shape[-1]))
        rows, latents = max(1, min(JOINT, each, length)), self.latent_values(draws)

        def source() -> Iterator[tuple[slice, Tensor, dict[str, Tensor]]]:
            for start in range(0, length, rows):
                part = slice(start, min(start + rows, length))
                piece = pytree.tree_map(lambda t, part=part: t[part], inputs)
                with torch.no_grad():
                    found = self._drawn(piece, draws, rng.at(start))
                yield part, found, latents
                del found

        return source

    def _drawn(self, inputs: Any, draws: int, rng: Rng) -> Tensor:
        """(particles * draws, n, K) in the model's dtype."""
        mean, covariance = self.joint(inputs)
        particles, outputs, count = mean.shape
        pairs = -(-draws // 2)
        drawn = noise.normal(rng.keys(pairs), rng.step, int(Stream.PREDICTION), outputs * count)
        epsilon = drawn.to(mean).reshape(particles, pairs, outputs, count)
        apart = torch.einsum("pkij,pskj->pski", factor_of(covariance).expand(-1, outputs, -1, -1), epsilon)
        both = torch.stack((apart, -apart), dim=2).flatten(1, 2)[:, :draws]
        return (mean[:, None] + both).transpose(2, 3).flatten(0, 1).to(self.model.dtype)

    # -- what does not exist ------------------------------------------------------------------------------------------

    def draw(self, rng: Rng, draws: int, first: int = 0) -> Tensor:
        """Always refused: there are functions, and no weights."""
        raise CapabilityError(
            f"a {type(self).__name__} posterior is a distribution over functions and has no weights",
            expected="posterior.predict(inputs), posterior.process(inputs)",
            write="mean, covariance = posterior.process(inputs)",
        )
