"""The contract of a method: how beliefs change with data.

A method is a frozen dataclass of hyper-parameters that inherits from `Method`. `init` makes a state: tensors with a
leading particle axis. `update` takes one step and consumes the state it is given (its tensors may be overwritten); it
never waits for the device, so that a step can be captured. `finish`, for methods that have to look at the data once
more, comes after the last step. `posterior` turns a state into beliefs, at any time. State holds what the next step
needs, `Info` what a person wants to see.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from torch import Tensor

from bayesprop.errors import CheckpointError, ConfigurationError
from bayesprop.model import Batch, Model, Place
from bayesprop.posteriors import Posterior
from bayesprop.rng import Rng

__all__ = ["About", "Info", "Method", "check_particles", "load_tensors", "state_tensors"]

State = TypeVar("State")


@dataclasses.dataclass(frozen=True)
class Info:
    """What one step saw. `log_likelihood` is that of the full data as this minibatch estimates it, one number a
    particle."""

    log_likelihood: Tensor
    gradient_norm: Tensor | None = None


@dataclasses.dataclass(frozen=True)
class About:
    """What `bp.methods()` says of a method: what it approximates, what it costs (relative to a maximum a posteriori
    estimate by Adam) and when to choose it."""

    approximates: str
    cost: str
    choose: str


@runtime_checkable
class Method(Protocol[State]):
    """See the module's docstring. `memory` tells the bytes that training will need before they are spent.

    What a method may say of itself, as a class attribute, a field or a property:
    `about`, a line of the table of all methods;
    `population`, the number of particles that it trains together and keeps (members, chains);
    `needs_all_rows`, that each step takes the whole data; `bootstrap`, that each particle trains on N rows drawn with
    replacement; `steps`, how many steps a whole run has (None: the loop decides);
    `per_particle`, the fields of which each particle may have its own: a tensor of numbers (particles,), or a function
    that returns one (see `inference.population`);
    `looks_at_host`, why its steps need the host and so cannot be captured in a graph ("": they do not).
    """

    about: ClassVar[About | None] = None
    population: int = 1
    needs_all_rows: bool = False
    bootstrap: bool = False
    steps: int | None = None
    per_particle: frozenset[str] = frozenset()
    looks_at_host: str = ""

    def resolved(self) -> Method[State]:
        """The same method with objects in the place of the names of its parts ("adam", "warmup")."""
        return self

    def init(self, model: Model, rng: Rng) -> State: ...

    def numbers(self, place: Place, step: int) -> tuple[float | Tensor, ...]:
        """What a step needs that depends on its place in the training alone: step sizes, weights of terms.

        Each is one number, or one for each particle. A captured step finds them in `batch.numbers`, and the number of
        the step in `rng.step` as a tensor on the device.
        """
        return ()

    def update(self, model: Model, state: State, batch: Batch, rng: Rng) -> tuple[State, Info]: ...

    def run(self, model: Model, state: State, places: Iterable[tuple[Batch, Rng]]) -> Iterator[tuple[State, Info]]:
        """`update` for steps in a row; a method whose step can prepare the next one does so here.

        Nothing else touches the state in between. The batches are made as they are asked for, one for each step.
        """
        for batch, rng in places:
            state, info = self.update(model, state, batch, rng)
            yield state, info

    def finish(self, model: Model, state: State, epoch: Callable[[], Iterator[Batch]], rng: Rng) -> State:
        """The state that `posterior` is made of in the end; `epoch()` gives all batches once more."""
        return state

    def posterior(self, model: Model, state: State) -> Posterior: ...

    def memory(self, model: Model, particles: int, rows: int) -> int: ...


def check_particles(method: Method[Any], particles: int) -> None:
    """Refuse tensors of `per_particle` that have another number for so many particles."""
    for name in sorted(method.per_particle):
        value = getattr(method, name)
        if isinstance(value, Tensor) and tuple(value.shape) not in ((), (particles,)):
            raise ConfigurationError(
                f"{name}: a tensor holds one number for each particle",
                received=f"a tensor of shape {list(value.shape)}",
                expected=f"a number, or a tensor of shape [{particles}]",
                write=f"fit(..., starts={value.numel()})  # or {name}=1e-3",
            )


def state_tensors(state: Any) -> dict[str, Tensor]:
    """All tensors of a state under names like "moments/mean.first", for a checkpoint."""
    found: dict[str, Tensor] = {}

    def visit(value: Any, path: str) -> None:
        if isinstance(value, Tensor):
            found[path] = value
        elif isinstance(value, Mapping | tuple | list):
            for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
                visit(item, f"{path}/{key}" if path else str(key))
        elif dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                visit(getattr(value, field.name), f"{path}/{field.name}" if path else field.name)

    visit(state, "")
    return found


def load_tensors(state: Any, tensors: Mapping[str, Tensor], *, source: str) -> None:
    """Copy stored tensors into a freshly made state of the same shape, in place; all of them or none."""
    mine = state_tensors(state)
    if mine.keys() != tensors.keys():
        raise CheckpointError(
            f"{source} holds the state of another method or network",
            received=", ".join(sorted(tensors.keys() - mine.keys())) or "fewer tensors",
            expected=", ".join(sorted(mine.keys() - tensors.keys())) or "fewer tensors",
        )
    for name, tensor in mine.items():
        if tensor.shape != tensors[name].shape:
            raise CheckpointError(
                f"{source}: {name} has another shape",
                received=f"{list(tensors[name].shape)}",
                expected=f"{list(tensor.shape)}",
            )
    for name, tensor in mine.items():
        tensor.copy_(tensors[name])
