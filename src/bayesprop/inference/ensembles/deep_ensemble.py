"""Deep ensembles: several fits from different starts, mixed equally.

    p(y | x) = (1 / M) sum_m p(y | x, theta_m),      theta_m a fit of the base method with its own seed          (1)

Members are particles: all of them take a step at once, in one batch of the device, and a member is the fit that it
would be alone. What makes them differ besides start and order of the batches is a choice:

*bootstrap*: each member trains on N rows drawn with replacement (Breiman 1996). It costs each of them a third of the
data, and rarely helps networks.

*adversarial* e: half of every batch are rows x' = x + e sign(grad_x of the loss) with the same targets, which makes
members smooth along the directions that change their answers most; the paper takes e = 0.01 times the range of an
input. The loss is (L(x) + L(x')) / 2.

*random prior functions*: `PriorFunction(network)` in the place of the network, which makes members disagree where there
are no data.

An ensemble is no posterior in any limit; it is a mixture over modes, which is what most methods lack.

References: Lakshminarayanan, Pritzel, Blundell, "Simple and Scalable Predictive Uncertainty Estimation using Deep
Ensembles", NeurIPS 2017. Osband et al. 2018 (prior functions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.inference.ensembles.prior_function import PriorFunction
from bayesprop.inference.method import About, Info, Method
from bayesprop.model import Batch, Model, Place
from bayesprop.posteriors import Posterior
from bayesprop.rng import Rng, Stream

__all__ = ["DeepEnsemble"]


@dataclass(frozen=True)
class DeepEnsemble(Method[Any]):
    """See the module's docstring for the options.

    Args:
        base: the method of every member, e.g. `MAP()`; any one that trains single particles.
        members: M.
        bootstrap: whether each member has rows of its own.
        adversarial: e, in the units in which the network sees its inputs; 0 for none.

    >>> from bayesprop.inference import MAP
    >>> DeepEnsemble(MAP(), members=8).population
    8
    """

    about: ClassVar[About | None] = About(
        approximates="a mixture over modes; no posterior",
        cost="M steps and copies of the base method, side by side",
        choose="strong predictions with uncertainty, when several fits are affordable",
    )
    base: Method[Any]
    members: int = 5
    bootstrap: bool = False
    adversarial: float = 0.0

    def __post_init__(self) -> None:
        write = "DeepEnsemble(MAP(), members=5)"
        if isinstance(self.base, type) or not isinstance(self.base, Method):
            received = f"the class {self.base.__name__}" if isinstance(self.base, type) else repr(self.base)
            raise ConfigurationError("DeepEnsemble needs a base method", received=received, write=write)
        if self.base.population > 1:
            name = type(self.base).__name__
            raise ConfigurationError(
                "members of an ensemble are single fits",
                received=f"{name} with a population of {self.base.population}",
                expected="a base method for one particle; its own population is an ensemble already",
                write=f"{name}(...)  # or DeepEnsemble({name}(), members={self.base.population})",
            )
        faults = [] if self.members >= 1 else [f"members must be at least 1, got {self.members}"]
        faults += [] if self.adversarial >= 0.0 else [f"adversarial must not be negative, got {self.adversarial}"]
        if faults:
            raise ConfigurationError("DeepEnsemble cannot work like this: " + "; ".join(faults), write=write)

    @property
    def population(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number of members."""
        return self.members

    @property
    def needs_all_rows(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the base method says."""
        return self.base.needs_all_rows

    @property
    def steps(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the base method says."""
        return self.base.steps

    def resolved(self) -> DeepEnsemble:
        return replace(self, base=self.base.resolved())

    # -- the functions of a method ------------------------------------------------------------------------------------

    def init(self, model: Model, rng: Rng) -> Any:
        state = self.base.init(model, rng)
        first = 0
        for path, module in model.network.named_modules():
            if not isinstance(module, PriorFunction):
                continue
            sizes = {f"{path}.prior.{key}".removeprefix("."): spread for key, spread in module.spreads.items()}
            total = first + sum(model.buffers[name].numel() for name in sizes)
            noise = rng.normal(total, Stream.PRIOR_FUNCTION, dtype=torch.float64)[:, 0]
            for name, spread in sizes.items():
                buffer = state.buffers[name]
                drawn = noise[:, first : first + buffer[0].numel()]
                buffer.copy_(spread * drawn.reshape(buffer.shape))
                first += buffer[0].numel()
        return state

    def numbers(self, place: Place, step: int) -> tuple[Any, ...]:
        """Those of the base method."""
        return self.base.numbers(place, step)

    def update(self, model: Model, state: Any, batch: Batch, rng: Rng) -> tuple[Any, Info]:
        if self.adversarial > 0.0:
            batch = self._with_adversaries(model, state, batch)
        return self.base.update(model, state, batch, rng)

    def _with_adversaries(self, model: Model, state: Any, batch: Batch) -> Batch:
        """The batch and its rows moved against the member's own answers: twice the rows."""
        inputs = batch.inputs
        if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
            kind = f"inputs of dtype {inputs.dtype}" if isinstance(inputs, Tensor) else f"a {type(inputs).__name__}"
            raise ConfigurationError(
                "adversarial training moves inputs along a gradient",
                received=kind,
                expected="one tensor of real numbers",
                write="DeepEnsemble(MAP(), adversarial=0.0)",
            )
        centre = self.base.posterior(model, state).moments()[0]
        buffers = {name: buffer.clone() for name, buffer in state.buffers.items()}
        leaf = inputs.detach().clone().requires_grad_(True)
        with torch.enable_grad():
            value = model.log_likelihood(centre[:, None], buffers, replace(batch, inputs=leaf))
            (gradient,) = torch.autograd.grad(value.sum(), leaf)
        moved = inputs - self.adversarial * gradient.sign()
        targets = torch.cat((batch.targets, batch.targets), dim=1)
        return replace(batch, inputs=torch.cat((inputs, moved), dim=1), targets=targets)

    def finish(self, model: Model, state: Any, epoch: Callable[[], Iterator[Batch]], rng: Rng) -> Any:
        return self.base.finish(model, state, epoch, rng)

    def posterior(self, model: Model, state: Any) -> Posterior:
        return self.base.posterior(model, state)

    def memory(self, model: Model, particles: int, rows: int) -> int:
        """That of the base method for all members."""
        return self.base.memory(model, particles, rows)
