"""One function for one network, evaluated for all particles and all draws at once.

A *lane* is one (particle, draw). `run` takes a function of one lane and arguments that carry leading axes, told by a
tag: "PS" (particle, draw, ...), "P" (particle, ...), "S" (draw, ...) or "" (shared by all). It returns the function's
outputs with leading axes (particles, draws). An axis of length one is taken off, never vmapped: a single network is
called exactly as its author would call it. Networks that vmap cannot batch run in a loop over the lanes; the model's
description says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

__all__ = ["run"]


def _pick(tree: Any, index: int) -> Any:
    return pytree.tree_map(lambda t: t[index], tree)


def _stack(trees: Sequence[Any]) -> Any:
    leaves, spec = zip(*(pytree.tree_flatten(tree) for tree in trees), strict=True)
    return pytree.tree_unflatten([torch.stack(column) for column in zip(*leaves, strict=True)], spec[0])


def _axis(function: Callable, arguments: Sequence[Any], carried: Sequence[bool], length: int, vectorised: bool) -> Any:
    """Map `function` over the first axis of those arguments that carry it."""
    if length > 1 and vectorised:
        dims = tuple(0 if has else None for has in carried)
        return torch.func.vmap(function, in_dims=dims, randomness="different")(*arguments)
    rows = [
        function(*(_pick(a, i) if has else a for a, has in zip(arguments, carried, strict=True))) for i in range(length)
    ]
    if length == 1:
        return pytree.tree_map(lambda t: t.unsqueeze(0), rows[0])
    return _stack(rows)


def run(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    tags: Sequence[str],
    *,
    particles: int,
    draws: int,
    vectorised: bool = True,
) -> Any:
    """Evaluate `function` in every lane; see the module's docstring for the tags."""

    def over_draws(*row: Any) -> Any:
        return _axis(function, row, ["S" in tag for tag in tags], draws, vectorised)

    return _axis(over_draws, arguments, ["P" in tag for tag in tags], particles, vectorised)
