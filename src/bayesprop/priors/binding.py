"""From what a user wrote to a bound prior: patterns to parameters, parameters to groups, hyperpriors to columns."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NoReturn

import torch
from torch import Tensor

from bayesprop.distributions.elementwise import Number
from bayesprop.distributions.hyperpriors import Hyperprior, Product
from bayesprop.errors import ConfigurationError, did_you_mean
from bayesprop.latents import Latent
from bayesprop.layout import Block, match
from bayesprop.priors.bound import BoundPrior, Group
from bayesprop.priors.constants import Vector
from bayesprop.priors.hierarchical import Piece, Spread, place
from bayesprop.priors.prior import Prior

__all__ = ["bind"]


@dataclass(frozen=True)
class _Part:
    """One parameter: its prior's numbers, the hyperpriors of its scale, and for each of those where its latents are."""

    block: Block
    prior: Prior
    numbers: Mapping[str, Number]
    factors: tuple[Hyperprior, ...]
    pieces: list[Piece]


def bind(prior: Prior | Mapping[str, Prior], blocks: Sequence[Block], others: Collection[str] = ()) -> BoundPrior:
    """The prior over the random parameters `blocks`, whose columns are 0, 1, ...; its latents take the columns behind.

    `others` are further names that the network knows (fixed parameters, point estimates, buffers): a key of the mapping
    that is exactly such a name is passed over, where any other key without a random parameter is refused.
    """
    entries = _entries(prior, blocks, others)
    random = start = sum(block.size for block in blocks)
    modules = Counter(block.module for block in blocks)
    parts: dict[str, _Part] = {}
    for one, covered in entries.values():
        numbers, factors = _split(one)
        for block in covered:
            fitted = {name: _fit(one, name, value, block) for name, value in numbers.items()}
            parts[block.name] = _Part(block, one, fitted, factors, [])
    latents: list[Latent] = []
    hyperpriors: list[tuple[slice, Latent, Hyperprior]] = []
    # First factors of all entries first: equal hyperpriors become neighbours, and one formula.
    for position in range(max(len(part.factors) for part in parts.values())):
        for pattern, (_, covered) in entries.items():
            factors = parts[covered[0].name].factors
            if position < len(factors):
                name = "prior.scale" if len(factors) == 1 else f"prior.scale{position + 1}"
                label = "" if isinstance(prior, Prior) else pattern
                found, pieces = place(factors[position], covered, modules, name, label, start)
                stop = start + sum(latent.size for latent in found)
                _append(hyperpriors, slice(start, stop), factors[position])
                latents += found
                start = stop
                for block, piece in zip(covered, pieces, strict=True):
                    parts[block.name].pieces.append(piece)
    groups, order = _groups([parts[block.name] for block in blocks])
    return BoundPrior(
        random=random,
        latents=tuple(latents),
        groups=groups,
        hyperpriors=tuple(hyperpriors),
        order=order,
        descriptions={name: part.prior.describe() for name, part in parts.items()},
    )


def _entries(prior: Any, blocks: Sequence[Block], others: Collection[str]) -> dict[str, tuple[Prior, list[Block]]]:
    """pattern -> (its prior, the parameters whose first matching pattern it is)."""
    if not blocks:
        raise ConfigurationError("a prior needs a random parameter", write='bp.Model(network, random="*", ...)')
    if isinstance(prior, Prior):
        return {"*": (prior, list(blocks))}
    if not isinstance(prior, Mapping):
        _refuse("prior=...", prior, "prior={example}")
    for pattern, one in prior.items():
        if not isinstance(one, Prior):
            _refuse(f"prior[{pattern!r}]", one, f'prior={{"{pattern}": {{example}}}}')
    owner = {name: block for block in blocks for name in (block.name, *block.aliases)}  # tied: all of its names
    hits: dict[str, set[str]] = {}
    taken: dict[str, str] = {}
    for pattern in prior:
        if pattern in others and pattern not in owner:
            continue
        hits[pattern] = {owner[name].name for name in _matching(pattern, list(owner))}
        _refuse_shadowed(pattern, hits, taken)
        for name in hits[pattern]:
            taken.setdefault(name, pattern)
    missing = [block.name for block in blocks if block.name not in taken]
    if missing:
        named = ", ".join(missing[:10]) + (", ..." if len(missing) > 10 else "")
        raise ConfigurationError(
            f"{len(missing)} random parameter{'s have' if len(missing) > 1 else ' has'} no prior: {named}",
            received="patterns " + (", ".join(repr(pattern) for pattern in list(prior)[:10]) or "of an empty mapping"),
            expected="a pattern for every random parameter",
            write='prior={..., "*": priors.Normal(scale=1.0)}  # "*" last: the first match wins',
        )
    covered = {pattern: [block for block in blocks if taken[block.name] == pattern] for pattern in hits}
    return {pattern: (prior[pattern], found) for pattern, found in covered.items() if found}


def _matching(pattern: str, names: list[str]) -> Collection[str]:
    try:
        return match([pattern], names, argument="prior")
    except ConfigurationError as error:  # the same refusal, with the line that a mapping needs
        raise ConfigurationError(
            f"prior: the pattern {pattern!r} matches no random parameter.{did_you_mean(pattern, names)}",
            expected="a name or a wildcard over " + ", ".join(names[:20]) + (", ..." if len(names) > 20 else ""),
            write=f'prior={{"{names[0]}": priors.Normal(scale=1.0), ...}}',
        ) from error


def _refuse_shadowed(pattern: str, hits: Mapping[str, set[str]], taken: Mapping[str, str]) -> None:
    """A pattern without effect is a mistake if a more general one stands before it; a last resort at the end is not."""
    if not all(name in taken for name in hits[pattern]):
        return
    general = next((earlier for earlier, found in hits.items() if found > hits[pattern]), None)
    if general is not None:
        raise ConfigurationError(
            f"prior[{pattern!r}] would never be used: the first match wins, and {general!r} stands before it",
            expected="special patterns before general ones",
            write=f'prior={{"{pattern}": ..., "{general}": ...}}',
        )


def _refuse(asked: str, received: Any, write: str) -> NoReturn:
    known = isinstance(received, type) and issubclass(received, Prior)
    raise ConfigurationError(
        f"{asked} must be a prior" + ("" if "[" in asked else " or a mapping from patterns to priors"),
        received=f"the class {received.__name__}" if isinstance(received, type) else repr(received),
        expected="an object such as priors.Normal(scale=1.0)",
        write=write.replace("{example}", f"priors.{received.__name__}()" if known else "priors.Normal(scale=1.0)"),
    )


def _split(prior: Prior) -> tuple[dict[str, Number], tuple[Hyperprior, ...]]:
    """The numbers of a prior and the hyperpriors of its scale; with hyperpriors the scale that is left is 1."""
    numbers: dict[str, Number] = {}
    factors: tuple[Hyperprior, ...] = ()
    for name, value in prior.arguments().items():
        if isinstance(value, Hyperprior | Product):
            factors = value.factors if isinstance(value, Product) else (value,)
            numbers[name] = 1.0
        else:
            numbers[name] = value
    return numbers, factors


def _fit(prior: Prior, argument: str, value: Number, block: Block) -> Number:
    """A number as a float, a tensor as a flat vector: it must have the parameter's shape."""
    if not isinstance(value, Tensor):
        return float(value)
    if value.dim() == 0:
        return float(value)
    if tuple(value.shape) == block.shape:
        return value.reshape(-1).cpu()
    try:
        fits = tuple(torch.broadcast_shapes(value.shape, block.shape)) == block.shape
    except RuntimeError:
        fits = False
    inside = f"{argument}.expand{block.shape}" if fits else f"torch.ones{block.shape}"
    raise ConfigurationError(
        f"the prior of {block.name}: {argument} has another shape than the parameter",
        received=f"a tensor of shape {list(value.shape)}",
        expected=f"a number, or a tensor of shape {list(block.shape)}",
        write=f'prior={{"{block.name}": priors.{type(prior).__name__}({argument}={inside}), ...}}',
    )


def _append(hyperpriors: list[tuple[slice, Latent, Hyperprior]], columns: slice, factor: Hyperprior) -> None:
    """Columns of latents as one vectorised density; neighbours with the same hyperprior are joined."""

    def plain(hyperprior: Hyperprior) -> Hyperprior:  # which weights share it does not change the density
        return dataclasses.replace(hyperprior, shared="layer", centred=False)

    if hyperpriors and plain(hyperpriors[-1][2]) == plain(factor):
        columns = slice(hyperpriors.pop()[0].start, columns.stop)
    latent = Latent(
        "prior", (columns.stop - columns.start,), factor.log_density_of_scale, factor.initial, factor.score_of_log_scale
    )
    hyperpriors.append((columns, latent, factor))


def _groups(parts: Sequence[_Part]) -> tuple[tuple[Group, ...], Vector | None]:
    """Parameters by family, and by how many centred and non-centred factors their scale has; and the way back."""
    members: dict[tuple[Any, ...], list[_Part]] = {}
    for part in parts:
        members.setdefault((part.prior.density, *(factor.centred for factor in part.factors)), []).append(part)
    groups, orders = [], []
    for (density, *flags), group in members.items():
        columns = torch.cat([torch.arange(part.block.start, part.block.stop) for part in group])
        numbers = {n: _joined([(p.block.size, p.numbers[n]) for p in group]) for n in density.parameters}
        size, low, high = len(columns), group[0].block.start, group[-1].block.stop
        groups.append(
            Group(
                density=density,
                columns=slice(low, high) if high - low == size else Vector(columns),
                size=size,
                arguments=numbers,
                factors=tuple(Spread.of([p.pieces[i] for p in group], flag) for i, flag in enumerate(flags)),
            )
        )
        orders.append(columns)
    order = torch.cat(orders)
    in_order = bool((order == torch.arange(len(order))).all())
    return tuple(groups), None if in_order else Vector(torch.argsort(order))


def _joined(values: Sequence[tuple[int, Number]]) -> float | Vector:
    """One float where all parameters agree, otherwise one flat vector."""
    floats = {value for _, value in values if not isinstance(value, Tensor)}
    tensors = [value for _, value in values if isinstance(value, Tensor)]
    if not tensors and len(floats) == 1:
        return floats.pop()
    dtypes = [torch.float32, *(tensor.dtype for tensor in tensors), *([torch.float64] if floats else [])]
    dtype = reduce(torch.promote_types, dtypes)
    rows = [v.to(dtype) if isinstance(v, Tensor) else torch.full((n,), v, dtype=dtype) for n, v in values]
    return Vector(torch.cat(rows))
