"""What a key of a grid means: the place in method, prior, likelihood or training that it sets.

    learning_rate, temperature, ...     a field of the method; kl_weight is short for temperature
    optimizer.beta1, estimator.samples  a field of one of its parts; samples is short for the latter
    method, prior, likelihood           the whole object
    prior.scale, likelihood.scale       a field of it, and of its parts: prior.scale.scale of a hyperprior
    prior[head.*].scale                 of one prior of a mapping, by its pattern
    seed, batch_size, epochs            what `fit` calls so

A key that means nothing is refused with those that would.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bayesprop.errors import BayespropError, ConfigurationError, did_you_mean
from bayesprop.inference.method import Method
from bayesprop.likelihoods import Likelihood
from bayesprop.priors import Prior

__all__ = ["Setup", "addresses", "apply", "shown"]

SHORT = {"samples": "estimator.samples", "kl_weight": "temperature"}
ROOTS = ("method", "prior", "likelihood", "seed", "batch_size", "epochs")
STEP = re.compile(r"\[(?P<pattern>[^\]]+)\]|(?:^|\.)(?P<name>\w+)")


@dataclass(frozen=True)
class Setup:
    """What one setting is trained with. `batch_size` and `epochs` are as `fit` takes them."""

    method: Method
    prior: Any
    likelihood: Likelihood
    seed: int = 0
    batch_size: Any = "auto"
    epochs: int | None = None


class _Unknown(Exception):
    """A step of a path that leads nowhere."""


def apply(base: Setup, values: Mapping[str, Any]) -> Setup:
    """The setup with these values in their places; whole objects are put before their parts."""
    found = base
    for key in sorted(values, key=lambda key: len(_path(base, key))):
        found = _put(found, key, values[key])
    return found


def _put(setup: Setup, key: str, value: Any) -> Setup:
    root, *steps = _path(setup, key)
    owner = getattr(setup, root, None) if root in ROOTS else None
    if root == "method" and len(steps) > 1:
        owner = setup.method.resolved()
    try:
        if root not in ROOTS:
            raise _Unknown
        made = replace(setup, **{root: _replaced(owner, steps, value)})
        _check(made, root)
    except _Unknown:
        known = addresses(setup)
        raise ConfigurationError(
            f"sweep: nothing is called {key!r}.{did_you_mean(_translated(key), known)}",
            expected="one of " + ", ".join(known),
            write=f'{{"{known[0]}": [...]}}',
        ) from None
    except (TypeError, ValueError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise ConfigurationError(
            f"sweep: {key} cannot be {shown(value)}: {lines[0]}",
            received=f"{key} = {value!r}",
            expected=next((line.strip().removeprefix("expected: ") for line in lines if "expected: " in line), ""),
            write=next((line.strip().removeprefix("write: ") for line in lines if "write: " in line), ""),
        ) from error
    return made


def _translated(key: str) -> str:
    """A key in this library's words, for the guess at what was meant."""
    return {"lr": "learning_rate"}.get(key, key.replace("sigma_", "scale").replace("sigma", "scale"))


def _path(setup: Setup, key: str) -> list[str]:
    """A key as steps, the first of which is one of ROOTS."""
    key = SHORT.get(key, key)
    steps, end = [], 0
    for found in STEP.finditer(key):
        if found.start() != end:
            break
        steps.append(found["pattern"] or found["name"])
        end = found.end()
    if end != len(key) or not steps:
        return [key]
    own = {field.name for field in dataclasses.fields(setup.method)}  # type: ignore[arg-type]
    return ["method", *steps] if steps[0] in own else steps


def _replaced(owner: Any, steps: list[str], value: Any) -> Any:
    if not steps:
        return value
    first, rest = steps[0], steps[1:]
    if isinstance(owner, Mapping):
        if first not in owner:
            raise _Unknown
        return {name: _replaced(item, rest, value) if name == first else item for name, item in owner.items()}
    if isinstance(owner, tuple):
        if not first.isdigit() or int(first) >= len(owner):
            raise _Unknown
        return tuple(_replaced(item, rest, value) if i == int(first) else item for i, item in enumerate(owner))
    if not dataclasses.is_dataclass(owner) or isinstance(owner, type) or first not in _fields(owner):
        raise _Unknown
    changed = _replaced(getattr(owner, first), rest, value)
    return replace(owner, **{first: changed})


def _fields(owner: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(owner) if field.init]


def _check(setup: Setup, root: str) -> None:
    """What no class checks for itself: the kinds of whole objects, and numbers of the training."""
    value = getattr(setup, root)
    kinds: dict[str, Any] = {"method": Method, "prior": (Prior, Mapping), "likelihood": Likelihood}
    if root in kinds:
        if isinstance(value, type) or not isinstance(value, kinds[root]):
            raise TypeError(f"it must be an object that is a {root}")
        return
    whole = isinstance(value, int) and not isinstance(value, bool) and (root == "seed" or value >= 1)
    if not whole and not (value is None and root != "seed") and not (value == "auto" and root == "batch_size"):
        raise TypeError("it must be a whole number")


def addresses(setup: Setup) -> list[str]:
    """Every key that means something for this setup."""
    method = setup.method.resolved()
    own = list(_inside(method, ""))
    rest = [
        name for root in ROOTS for name in (root, *(_inside(getattr(setup, root), root) if root in ROOTS[1:3] else ()))
    ]
    return [*own, *(short for short, long in SHORT.items() if long in own), *rest]


def _inside(owner: Any, path: str) -> Iterator[str]:
    """The fields of an object and of the objects in them."""
    if isinstance(owner, Mapping):
        parts = [(f"{path}[{name}]", item) for name, item in owner.items()]
    elif isinstance(owner, tuple) and any(map(dataclasses.is_dataclass, owner)):
        parts = [(f"{path}.{i}", item) for i, item in enumerate(owner)]
    elif dataclasses.is_dataclass(owner) and not isinstance(owner, type):
        parts = [(f"{path}.{name}" if path else name, getattr(owner, name)) for name in _fields(owner)]
    else:
        return
    for name, item in parts:
        yield name
        yield from _inside(item, name)


def shown(value: Any) -> str:
    """A value of a setting in a few characters, for tables and messages."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Prior):
        return value.describe()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "(" + ", ".join(map(shown, value)) + ")"
    if isinstance(value, str | int):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = [
            f"{field.name}={shown(getattr(value, field.name))}"
            for field in dataclasses.fields(value)
            if field.init and not _is_default(field, getattr(value, field.name))
        ]
        return f"{type(value).__name__}({', '.join(changed)})"
    return getattr(value, "__name__", type(value).__name__)


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    try:
        return bool(value == field.default)
    except (BayespropError, RuntimeError, ValueError):  # tensors do not compare to one answer
        return False
