"""A small sweep with everything named: three epochs of three minibatches, validation on 20 rows of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import bayesprop as bp
from bayesprop.training.sweeping.addresses import Setup, apply
from bayesprop.training.sweeping.members import Member


@pytest.fixture
def held_out(pair) -> tuple:
    """Validation rows from where the training rows come from."""
    return pair(rows=20, seed=2)


@pytest.fixture
def sweep(model, pair, method, held_out) -> Callable[..., bp.training.Sweep]:
    """A sweep over a grid; nothing is dropped and all settings win unless something else is said."""

    def run(grid: Any, made: bp.Model | None = None, how: Any = None, data: Any = None, **changes: Any) -> Any:
        made = model() if made is None else made
        settings: dict[str, Any] = {
            "epochs": 3,
            "batch_size": 8,
            "seed": 0,
            "rungs": (),
            "validation": held_out,
            "progress": False,
            "draws": 4,
        }
        if "winners" not in changes and "rungs" not in changes:
            count = 1
            for values in grid.values() if isinstance(grid, dict) else [range(len(grid))]:
                count *= len(values)
            settings["winners"] = count
        return bp.sweep(
            made, pair() if data is None else data, method() if how is None else how, grid, **{**settings, **changes}
        )

    return run


@pytest.fixture
def members(model, method) -> Callable[..., list[Member]]:
    """Settings that nobody has trained."""

    def make(settings: list[dict[str, Any]], made: bp.Model | None = None, how: Any = None) -> list[Member]:
        made = model() if made is None else made
        base = Setup(method() if how is None else how, made.prior, made.likelihood, batch_size=8, epochs=3)
        return [Member(number, values, apply(base, values)) for number, values in enumerate(settings)]

    return make
