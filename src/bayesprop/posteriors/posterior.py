"""What beliefs are after the data: something to draw functions from, plus declared capabilities.

Every method ends in a `Posterior` and every consumer starts from one. A subclass says which tensors it holds and how
to draw rows of theta; predicting, saving and moments by name are the same for all of them and live here. A capability
that is missing is refused by `needs`, which names the posteriors that have it.
"""

from __future__ import annotations

import copy
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bayesprop.assembly import copy_network
from bayesprop.data import Data, as_inputs
from bayesprop.errors import CapabilityError, ConfigurationError
from bayesprop.model import Model
from bayesprop.posteriors.outputs import check_features, checked_draws, outputs
from bayesprop.prediction import Prediction
from bayesprop.prediction.chunks import Source
from bayesprop.rng import Rng

__all__ = ["Context", "Posterior", "posterior_classes"]


@dataclass
class Context:
    """Where a posterior comes from: what it must know to predict on the original scale and to say how it was made.

    `engine` says in one sentence how the steps of its training were taken, `tf32` whether matrices were multiplied in
    TF32 on GPUs; predictions do it likewise.
    """

    num_data: int = 0
    scaling: Any = None
    classes: Any = None
    seed: int = 0
    method: Any = None
    history: list[dict[str, Any]] = field(default_factory=list)
    engine: str = ""
    tf32: bool = False


class Posterior(ABC):
    """Beliefs about theta for one or many particles; a population predicts as an equally weighted mixture."""

    capabilities: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, model: Model, buffers: Mapping[str, Tensor], context: Context | None = None) -> None:
        self.model = model
        self.buffers = dict(buffers)
        self.context = context or Context()

    # -- what a subclass says -----------------------------------------------------------------------------------------

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """The tensors that define it, each with a leading particle axis; `from_tensors` takes them back."""

    @classmethod
    @abstractmethod
    def from_tensors(
        cls, model: Model, tensors: Mapping[str, Tensor], buffers: Mapping[str, Tensor], context: Context
    ) -> Posterior:
        """The inverse of `tensors`."""

    @abstractmethod
    def draw(self, rng: Rng, draws: int, first: int = 0) -> Tensor:
        """Rows of theta, (particles, draws, columns): draw number `first` + s is the same number whatever `draws`
        is."""

    def draw_buffers(self, rng: Rng, draws: int, first: int = 0) -> dict[str, Tensor]:
        """The network's buffers for the same draws, (particles, draws, ...): those of the particle, unless a draw has
        its own."""
        return self.model.spread_buffers(self.buffers, draws)

    def evaluate(self, rng: Rng, theta: Tensor, buffers: Mapping[str, Tensor], inputs: Any, first: int) -> Tensor:
        """Outputs (particles, draws, rows, ...) for draws number `first` and up, with their buffers, on shared inputs:
        those of the network, unless a draw is more than its weights."""
        return self.model.outputs(theta, buffers, inputs, buffers_of_draws=True)

    @property
    def distinct(self) -> int | None:
        """How many different draws there are of one particle; None for as many as you like."""
        return None

    @property
    def particles(self) -> int:
        return next(iter(self.tensors().values())).shape[0]

    # -- capabilities -------------------------------------------------------------------------------------------------

    def needs(self, capability: str, purpose: str) -> None:
        """Refuse `purpose` if this posterior lacks the capability."""
        if capability not in self.capabilities:
            able = sorted(c.__name__ for c in _family(Posterior) if capability in c.capabilities)
            raise CapabilityError(
                f"{purpose} needs {capability}, which a {type(self).__name__} posterior does not have",
                received=f"capabilities {sorted(self.capabilities)}",
                expected=f"one of {', '.join(able)}",
            )

    def mean(self, name: str | None = None) -> Tensor:
        """Posterior mean of a parameter by name (a scale of a prior by its own name), or the matrix (particles,
        columns)."""
        return self._moment(0, name)

    def std(self, name: str | None = None) -> Tensor:
        """Posterior standard deviation, as `mean`."""
        return self._moment(1, name)

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the unconstrained columns, (particles, columns) each."""
        self.needs("moments", "mean and std")
        raise AssertionError("a posterior that declares moments must define them")

    def _moment(self, which: int, name: str | None) -> Tensor:
        mean, std = self.moments()
        if name is None:
            return (mean, std)[which]
        layout = self.model.layout
        block = layout.block(name)
        if block.kind == "latent":
            # A positive latent is log-normal: E = exp(m + s^2 / 2), Var = E^2 (exp(s^2) - 1).
            m, s = mean[:, block.columns], std[:, block.columns]
            value = torch.exp(m + s.square() / 2)
            found = value if which == 0 else value * torch.sqrt(torch.expm1(s.square()))
        elif block.kind == "random" and not self.model.bound_prior.centred:
            weights = self.model.bound_prior.weight_moments(mean[:, : layout.latent], std[:, : layout.latent])
            found = weights[which][:, block.columns]
        else:
            found = (mean, std)[which][:, block.columns]
        found = found.reshape(-1, *block.shape)
        found = self.model.hold_padding({block.name: found}, spread=which == 1)[block.name]
        return found[0] if self.particles == 1 else found

    # -- draws, by name and as functions ------------------------------------------------------------------------------

    def rng(self, seed: int) -> Rng:
        """Noise for predictions: one stream for each particle, apart from all training noise."""
        if isinstance(seed, bool) or not hasattr(seed, "__index__"):
            raise ConfigurationError(
                "a seed is a whole number", received=repr(seed), write="posterior.predict(inputs, seed=0)"
            )
        return Rng.create(operator.index(seed), self.particles, self.model.device)

    def sample(self, draws: int = 1, *, seed: int = 0) -> dict[str, Tensor]:
        """Draws of all parameters by name, (particles * draws, *shape); latents on their own scale."""
        theta = self.draw(self.rng(seed), checked_draws(draws, "posterior.sample(draws=100)")).flatten(0, 1)
        named = self.model.weights(theta)
        for latent in self.model.latents:
            named[latent.name] = latent.constrain(theta[:, self.model.layout.by_name[latent.name].columns])
        return named

    def predict(self, inputs: Any, draws: int = 100, *, seed: int = 0, original_scale: bool = True) -> Prediction:
        """What the posterior says about new inputs: a `Prediction`, on the scale of the data that it was fitted to.

        Outputs are computed in pieces over rows and draws, when they are asked for; the same seed gives the same draws.
        With `original_scale=False` inputs, targets and labels are those that the network sees: standardised, and
        numbered from 0.
        """
        context, draws = self.context, checked_draws(draws, "posterior.predict(x, draws=100)")
        if isinstance(inputs, Data):
            inputs = inputs.original()[0] if original_scale else inputs.inputs
        raw = as_inputs(inputs)
        scaling = context.scaling if original_scale else None
        if scaling is not None:
            check_features(raw, scaling)
            raw = scaling.scale_inputs(raw)
        ready = self.model.prepare_inputs(raw)
        each = -(-draws // self.particles)
        if self.distinct is not None and not self.model.draws_predicting:
            each = min(each, self.distinct)  # more would be the same ones again
        return Prediction(
            self.outputs(ready, each, seed=seed),
            self.model.likelihood,
            scaling=scaling,
            classes=context.classes if original_scale else None,
            seed=seed,
            inputs_length=pytree.tree_leaves(ready)[0].shape[0],
            draws=each * self.particles,
        )

    def outputs(self, inputs: Any, draws: int, *, seed: int = 0) -> Source:
        """Outputs of the network for prepared inputs and all draws, as `posteriors.outputs` says."""
        return outputs(self, inputs, draws, seed)

    def at_mean(self) -> Posterior:
        """Deterministic mode: all mass where every weight and every scale has its posterior mean."""
        from bayesprop.posteriors.delta import Delta

        self.needs("moments", "at_mean()")
        return Delta(self.model, self._centre(), self.buffers, copy.copy(self.context))

    def mean_network(self, particle: int = 0) -> nn.Module:
        """A copy of the user's network with the posterior means as weights: an ordinary module, to export or to
        compile."""
        self.needs("moments", "mean_network()")
        return self.network_with(self._centre()[self._member(particle)], particle)

    def _centre(self) -> Tensor:
        """The rows of theta that stand for the means.

        A scale's mean is exp(m + s^2 / 2) in its column's m and s. A weight with a non-centred prior, loc + scale * z,
        then has its mean where z has its own.
        """
        mean, std = self.moments()
        centre = mean.clone()
        for block in self.model.layout.of_kind("latent"):
            centre[:, block.columns] += 0.5 * std[:, block.columns].square()
        return centre

    def network_with(self, theta: Tensor, particle: int = 0) -> nn.Module:
        """A copy of the user's network with the weights of one row of theta, in evaluation mode."""
        network = copy_network(self.model.network).eval()
        weights = self.model.weights(theta)
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                if name in weights:
                    parameter.copy_(weights[name])
            for name, buffer in network.named_buffers():
                buffer.copy_(self.buffers[name][particle])
        return network

    def _member(self, particle: int) -> int:
        if not 0 <= particle < self.particles:
            raise ConfigurationError(
                "this posterior has no such particle",
                received=f"{particle}",
                expected=f"0 to {self.particles - 1}",
            )
        return particle

    def member(self, particle: int) -> Posterior:
        """One particle of a population as a posterior of its own."""
        self._member(particle)
        keep = {n: t[particle : particle + 1] for n, t in self.tensors().items()}
        buffers = {n: b[particle : particle + 1] for n, b in self.buffers.items()}
        return self.from_tensors(self.model, keep, buffers, copy.copy(self.context))

    def save(self, path: Any) -> None:
        """Write one file (safetensors with a JSON header) that `bayesprop.load` reads; see `posteriors.files`."""
        from bayesprop.posteriors.files import save

        save(self, path)

    def __repr__(self) -> str:
        layout = self.model.layout
        return (
            f"{type(self).__name__}({layout.random:,} random weights"
            + (f", {layout.latent - layout.random} latents" if layout.latent > layout.random else "")
            + (f", {layout.size - layout.latent:,} point estimates" if layout.size > layout.latent else "")
            + (f", {self.particles} particles" if self.particles > 1 else "")
            + f"; fitted to {self.context.num_data:,} examples)"
        )


def posterior_classes() -> dict[str, type[Posterior]]:
    """Every kind of posterior by the name under which a file refers to it."""
    return {cls.__name__: cls for cls in _family(Posterior)}


def _family(cls: type[Posterior]) -> Iterator[type[Posterior]]:
    for child in cls.__subclasses__():
        yield child
        yield from _family(child)
