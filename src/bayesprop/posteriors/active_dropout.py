"""A point for the weights, and the network's own dropout layers at work: what Monte-Carlo dropout believes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor
from torch.utils import _pytree as pytree

from bayesprop.model import Model
from bayesprop.posteriors.delta import Delta
from bayesprop.posteriors.posterior import Context, Posterior
from bayesprop.random_weights import NoiseSource, dropout_modules, seeded
from bayesprop.rng import Rng

__all__ = ["ActiveDropout"]


class ActiveDropout(Posterior):
    """location (particles, columns). A draw is one set of masks for all dropout layers, the same for all inputs: each
    draw is a function, and two rows that are equal are told the same. `at_mean()` has dropout off, as usual.

    Layers that came in evaluation mode (a pretrained trunk) stay silent. Where no dimension counts examples by itself
    (attention that folds heads into the batch) rows have masks of their own.
    """

    capabilities: ClassVar[frozenset[str]] = frozenset({"weights"})

    def __init__(
        self, model: Model, location: Tensor, buffers: Mapping[str, Tensor], context: Context | None = None
    ) -> None:
        super().__init__(model, buffers, context)
        self.location = location

    def tensors(self) -> dict[str, Tensor]:
        return {"location": self.location}

    @classmethod
    def from_tensors(
        cls, model: Model, tensors: Mapping[str, Tensor], buffers: Mapping[str, Tensor], context: Context
    ) -> ActiveDropout:
        return cls(model, tensors["location"], buffers, context)

    def draw(self, rng: Rng, draws: int, first: int = 0) -> Tensor:
        """The weights, which are the same in all draws: what differs are masks between the layers."""
        return self.location.unsqueeze(1).expand(-1, draws, -1)

    def evaluate(self, rng: Rng, theta: Tensor, buffers: Mapping[str, Tensor], inputs: Any, first: int) -> Tensor:
        model, draws = self.model, theta.shape[1]
        modules = [m for m in dropout_modules(model.network) if not any(m is other for other in model._always_eval)]
        rows = pytree.tree_leaves(inputs)[0].shape[0]

        def lane(weights: dict[str, Tensor], own: dict[str, Tensor], key: Tensor, some: Any) -> Tensor:
            with seeded(modules, NoiseSource(key, rng.step), rows):
                return model.forward(weights, own, some)

        arguments = (model.weights(theta), dict(buffers), rng.keys(draws, first), inputs)
        return model.over_lanes(lane, arguments, ("PS", "PS", "PS", ""), self.particles, draws)

    def at_mean(self) -> Delta:
        """The network with dropout off."""
        return Delta(self.model, self.location, self.buffers, self.context)
