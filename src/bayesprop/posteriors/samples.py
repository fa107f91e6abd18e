"""A finite set of weights, each as likely as the others: what chains leave behind.

Nothing is fitted to the set. Draw number s of a particle is one of its S samples, in an order that the seed decides,
so that S draws are all samples once, and fewer are a random part of them. There is no density: a finite set has none,
and one that is smoothed would say more about the smoothing than about the samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesprop.data import as_inputs
from bayesprop.errors import CapabilityError, ConfigurationError
from bayesprop.model import Model
from bayesprop.posteriors.outputs import WEIGHT_BUDGET, check_features
from bayesprop.posteriors.posterior import Context, Posterior
from bayesprop.rng import Rng, Stream

__all__ = ["Samples"]

_BUFFER = "buffer/"  # how the buffers of samples are named among the tensors


class Samples(Posterior):
    """Rows of theta (particles, samples, columns); one particle is one chain.

    `sample_buffers` (particles, samples, ...) are buffers of the network, such as the statistics of BatchNorm, that
    belong to single samples; those that are not named there are the particle's own.
    """

    capabilities: ClassVar[frozenset[str]] = frozenset({"weights", "moments", "samples"})

    def __init__(
        self,
        model: Model,
        theta: Tensor,
        buffers: Mapping[str, Tensor],
        context: Context | None = None,
        *,
        sample_buffers: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__(model, buffers, context)
        if theta.dim() != 3 or theta.shape[1] < 1 or theta.shape[2] != model.layout.size:
            raise ConfigurationError(
                "samples are rows of theta for each particle",
                received=f"a tensor of shape {list(theta.shape)}",
                expected=f"(particles, samples, {model.layout.size}) with at least one sample",
            )
        self.theta = theta
        self.sample_buffers = dict(sample_buffers or {})

    def tensors(self) -> dict[str, Tensor]:
        return {"theta": self.theta, **{_BUFFER + name: buffer for name, buffer in self.sample_buffers.items()}}

    @classmethod
    def from_tensors(
        cls, model: Model, tensors: Mapping[str, Tensor], buffers: Mapping[str, Tensor], context: Context
    ) -> Samples:
        own = {n.removeprefix(_BUFFER): t for n, t in tensors.items() if n.startswith(_BUFFER)}
        return cls(model, tensors["theta"], buffers, context, sample_buffers=own)

    @property
    def count(self) -> int:
        """S: samples of each particle."""
        return self.theta.shape[1]

    @property
    def distinct(self) -> int:
        """S: a prediction with more draws has each sample once."""
        return self.count

    # -- draws --------------------------------------------------------------------------------------------------------

    def _chosen(self, rng: Rng, draws: int, first: int) -> Tensor:
        """Which sample each draw is: (particles, draws)."""
        order = rng.permutation(self.count, Stream.PREDICTION)
        numbers = torch.arange(first, first + draws, device=order.device) % self.count
        return order[:, numbers]

    @staticmethod
    def _take(stack: Tensor, chosen: Tensor) -> Tensor:
        return stack[torch.arange(stack.shape[0], device=stack.device)[:, None], chosen]

    def draw(self, rng: Rng, draws: int, first: int = 0) -> Tensor:
        return self._take(self.theta, self._chosen(rng, draws, first))

    def draw_buffers(self, rng: Rng, draws: int, first: int = 0) -> dict[str, Tensor]:
        found = super().draw_buffers(rng, draws, first)
        if self.sample_buffers:
            chosen = self._chosen(rng, draws, first)
            found |= {name: self._take(stack, chosen) for name, stack in self.sample_buffers.items()}
        return found

    @torch.no_grad()
    def trace(self, inputs: Any) -> Tensor:
        """What the network puts out for a few inputs along the chains: (particles, samples, rows, ...), in the order in
        which samples were taken. This is what R-hat and effective sample sizes mean something for.

        Inputs are those of `predict`; outputs are the network's own, before the likelihood.
        """
        model, scaling = self.model, self.context.scaling
        raw = as_inputs(inputs)
        if scaling is not None:
            check_features(raw, scaling)
            raw = scaling.scale_inputs(raw)
        ready, found = model.prepare_inputs(raw), []
        model.set_mode(False)
        step = max(1, WEIGHT_BUDGET // (self.particles * model.layout.size))
        for first in range(0, self.count, step):
            part = slice(first, min(first + step, self.count))
            buffers = model.spread_buffers(self.buffers, part.stop - first)
            buffers |= {name: stack[:, part] for name, stack in self.sample_buffers.items()}
            found.append(model.outputs(self.theta[:, part], buffers, ready, buffers_of_draws=True))
        return torch.cat(found, dim=1)

    # -- moments ------------------------------------------------------------------------------------------------------

    def values(self, name: str | None = None) -> Tensor:
        """All samples of a parameter by name, (particles, samples, *shape), as the network uses it (a scale by its own
        value); or the unconstrained matrix (particles, samples, columns)."""
        if name is None:
            return self.theta
        model, block = self.model, self.model.layout.block(name)
        if block.kind == "latent":
            latent = next(latent for latent in model.latents if latent.name == block.name)
            return latent.constrain(self.theta[..., block.columns])
        if block.kind == "random" and not model.bound_prior.centred:
            columns = model.bound_prior.weights(self.theta[..., : model.layout.latent])[..., block.columns]
        else:
            columns = self.theta[..., block.columns]
        found = columns.reshape(*self.theta.shape[:2], *block.shape)
        return model.hold_padding({block.name: found})[block.name]

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation over the samples themselves (of one sample: 0)."""
        return self.theta.mean(1), self.theta.std(1, correction=0)

    def _moment(self, which: int, name: str | None) -> Tensor:
        if name is None:
            return self.moments()[which]
        values = self.values(name)
        found = values.mean(1) if which == 0 else values.std(1, correction=0)
        return found[0] if self.particles == 1 else found

    def _centre(self) -> Tensor:
        """The rows of theta where every weight and every scale has the mean of its samples."""
        model, layout = self.model, self.model.layout
        centre = self.theta.mean(1)
        for latent in model.latents:
            columns = layout.by_name[latent.name].columns
            centre[:, columns] = latent.transform.inv(latent.transform(self.theta[..., columns]).mean(1))
        if not model.bound_prior.centred:
            weights = model.bound_prior.weights(self.theta[..., : layout.latent]).mean(1)
            centre[:, : layout.random] = model.bound_prior.columns(weights, centre[:, : layout.latent])
        return centre

    def log_density(self, theta: Tensor) -> Tensor:
        """Always refused: a finite set has no density."""
        raise CapabilityError(
            "a finite set of samples has no density",
            received=f"{self.count} samples of {self.theta.shape[2]:,} columns",
            expected="a posterior with a formula, for instance from inference.SWAG() or inference.BayesByBackprop()",
            write="posterior.mean(), posterior.std(), posterior.values(name)  # what samples can say",
        )
