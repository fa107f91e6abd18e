"""One bound prior for many particles, each of them with numbers of its own.

Priors of the same structure (`structure` says which that are: the same families on the same columns, scales shared in
the same way) differ in numbers only. Those become rows, one for each particle, so that the priors of a whole population
are evaluated by one formula, and a particle has the density that it would have alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from bayesprop.distributions.hyperpriors import Hyperprior
from bayesprop.errors import ConfigurationError
from bayesprop.latents import Latent
from bayesprop.priors.bound import BoundPrior, Group
from bayesprop.priors.constants import PerParticle, Vector

__all__ = ["stack", "structure"]


def structure(bound: BoundPrior) -> Hashable:
    """What two bound priors must have in common for `stack`; equal objects if they do."""
    groups = tuple((g.density.name, _columns(g.columns), g.size, tuple(g.arguments), g.factors) for g in bound.groups)
    hyperpriors = tuple(
        (columns.start, columns.stop, type(h), h.of, h.shared, h.centred) for columns, _, h in bound.hyperpriors
    )
    latents = tuple((latent.name, latent.shape) for latent in bound.latents)
    return bound.random, groups, hyperpriors, latents


def stack(bounds: Sequence[BoundPrior]) -> BoundPrior:
    """The prior of a population whose particle number i has the i-th of these."""
    first = bounds[0]
    if len({structure(bound) for bound in bounds}) > 1:
        raise ConfigurationError(
            "priors of one population differ in numbers only",
            received=f"{len({structure(bound) for bound in bounds})} structures among {len(bounds)} priors",
            expected="the same families on the same parameters, and scales that are shared in the same way",
            write="a population for each of them",
        )
    if len(bounds) == 1:
        return first
    groups = tuple(_group([bound.groups[i] for bound in bounds]) for i in range(len(first.groups)))
    hyperpriors = []
    initial: dict[int, Tensor] = {}  # of each column of a latent, (particles,)
    for i, (columns, latent, hyperprior) in enumerate(first.hyperpriors):
        each = [bound.hyperpriors[i][2] for bound in bounds]
        if any(one != hyperprior for one in each):
            latent = _latent(latent, each)
        start = torch.as_tensor(latent.initial, dtype=torch.float64)
        initial |= dict.fromkeys(range(columns.start, columns.stop), start)
        hyperpriors.append((columns, latent, hyperprior))
    latents, column = [], first.random
    for latent in first.latents:
        start = initial[column]
        latents.append(replace(latent, initial=float(start) if start.dim() == 0 else start))
        column += latent.size
    descriptions = {name: f"{words}, by particle" for name, words in first.descriptions.items()}
    return replace(
        first, groups=groups, hyperpriors=tuple(hyperpriors), latents=tuple(latents), descriptions=descriptions
    )


def _columns(columns: slice | Vector) -> Hashable:
    return (columns.start, columns.stop) if isinstance(columns, slice) else columns.values.numpy().tobytes()


def _group(groups: Sequence[Group]) -> Group:
    first = groups[0]
    arguments = {name: _joined([g.arguments[name] for g in groups], first.size) for name in first.arguments}
    return replace(first, arguments=arguments)


def _joined(values: Sequence[float | Vector], size: int) -> float | Vector:
    """One number where all agree, otherwise a row for each particle."""
    if all(isinstance(value, float) for value in values):
        floats = [value for value in values if isinstance(value, float)]
        if len(set(floats)) == 1:
            return floats[0]
        return PerParticle(torch.tensor(floats, dtype=torch.float64)[:, None])
    rows = [
        value.values.double() if isinstance(value, Vector) else torch.full((size,), value, dtype=torch.float64)
        for value in values
    ]
    if all(torch.equal(row, rows[0]) for row in rows):
        return next(value for value in values if isinstance(value, Vector))
    return PerParticle(torch.stack(rows))


def _latent(latent: Latent, hyperpriors: Sequence[Hyperprior]) -> Latent:
    """A latent whose hyperprior has other numbers for each particle."""
    numbers = {
        name: PerParticle(torch.tensor([float(getattr(h, name)) for h in hyperpriors], dtype=torch.float64)[:, None])
        for name in hyperpriors[0].numbers
    }

    def fitted(like: Tensor) -> Hyperprior:
        """The hyperprior with numbers that meet `like` (particles, ..., columns) along its first axis."""
        twin = copy.copy(hyperpriors[0])
        for name, number in numbers.items():
            object.__setattr__(twin, name, number.like(like))  # checked already, one by one
        return twin

    def along(function: str) -> Callable[[Tensor], Tensor]:
        return lambda value: getattr(fitted(value), function)(value)

    return replace(
        latent,
        log_density=along("log_density_of_scale"),
        score=along("score_of_log_scale"),
        initial=torch.tensor([float(h.initial) for h in hyperpriors], dtype=torch.float64),
    )
