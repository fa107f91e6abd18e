"""Names and shapes on one side, columns of the matrix theta on the other.

All quantities that training may move live, unconstrained, in one row of a dense matrix theta of shape (particles,
columns). The order of the columns is fixed: random parameters of the network first, then the latents (scales of
hierarchical priors, a learnt noise scale), then the parameters that are point estimates. So `[:, :random]` are the
network's random weights, `[:, :latent]` everything that has a distribution, and the rest is optimised only.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError, did_you_mean

__all__ = ["Block", "Kind", "Layout", "match"]

Kind = Literal["random", "latent", "point"]


@dataclass(frozen=True)
class Block:
    """One tensor: its name, shape and columns. `aliases` are further names under which a tied tensor appears."""

    name: str
    shape: tuple[int, ...]
    start: int
    kind: Kind = "random"
    dtype: torch.dtype = torch.float32
    module: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def stop(self) -> int:
        return self.start + self.size

    @property
    def columns(self) -> slice:
        return slice(self.start, self.stop)


@dataclass(frozen=True)
class Layout:
    """All blocks in the order of their columns."""

    blocks: tuple[Block, ...]

    @cached_property
    def size(self) -> int:
        """D: all columns."""
        return self.blocks[-1].stop if self.blocks else 0

    @cached_property
    def random(self) -> int:
        """Number of columns that hold random weights of the network (they come first)."""
        return sum(block.size for block in self.blocks if block.kind == "random")

    @cached_property
    def latent(self) -> int:
        """Number of columns that have a distribution: random weights and latents."""
        return sum(block.size for block in self.blocks if block.kind != "point")

    @cached_property
    def by_name(self) -> Mapping[str, Block]:
        return {block.name: block for block in self.blocks}

    def of_kind(self, *kinds: Kind) -> tuple[Block, ...]:
        return tuple(block for block in self.blocks if block.kind in kinds)

    def block(self, name: str) -> Block:
        """The block of that name; aliases of tied parameters count."""
        for candidate in self.blocks:
            if name == candidate.name or name in candidate.aliases:
                return candidate
        raise ConfigurationError(
            f"no parameter is called {name!r}.{did_you_mean(name, self.by_name)}",
            expected="one of " + ", ".join(list(self.by_name)[:20]),
        )

    def unflatten(self, theta: Tensor, kinds: Sequence[Kind] = ("random", "latent", "point")) -> dict[str, Tensor]:
        """Views of theta (..., columns): name -> (..., *shape), cast to each parameter's own dtype."""
        pieces = torch.split(theta, [block.size for block in self.blocks], dim=-1)
        lead = theta.shape[:-1]
        return {
            block.name: piece.reshape((*lead, *block.shape)).to(block.dtype)
            for block, piece in zip(self.blocks, pieces, strict=True)
            if block.kind in kinds
        }

    def flatten(self, named: Mapping[str, Tensor], dtype: torch.dtype | None = None) -> Tensor:
        """The inverse of `unflatten`: tensors of shape (..., *shape) to (..., columns)."""
        rows = []
        for block in self.blocks:
            tensor = named[block.name]
            lead = tensor.shape[: tensor.dim() - len(block.shape)]
            rows.append(tensor.reshape(*lead, block.size).to(dtype or tensor.dtype))
        return torch.cat(rows, dim=-1)

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {"name": b.name, "shape": list(b.shape), "kind": b.kind, "dtype": str(b.dtype).removeprefix("torch.")}
            for b in self.blocks
        ]

    def differences(self, other: Sequence[Mapping[str, Any]]) -> list[str]:
        """What differs between this layout and one that was stored with `to_json`, in words."""
        mine = {b.name: (tuple(b.shape), b.kind) for b in self.blocks}
        theirs = {str(row["name"]): (tuple(row["shape"]), str(row["kind"])) for row in other}
        lines = [f"{name} is in the file, not in the network" for name in theirs if name not in mine]
        lines += [f"{name} is in the network, not in the file" for name in mine if name not in theirs]
        for name in mine.keys() & theirs.keys():
            if mine[name] != theirs[name]:
                (shape, kind), (their_shape, their_kind) = mine[name], theirs[name]
                lines.append(
                    f"{name}: {kind} {list(shape)} in the network, {their_kind} {list(their_shape)} in the file"
                )
        if not lines and list(mine) != list(theirs):
            lines.append("the same parameters in another order")
        return sorted(lines)


def match(patterns: str | Iterable[str], names: Sequence[str], *, argument: str) -> dict[str, str]:
    """Map each name to the first pattern that it matches. A pattern that matches nothing is refused.

    A pattern is a parameter's full name or a shell-style wildcard such as "head.*". Names are compared
    case-sensitively.
    """
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    found: dict[str, str] = {}
    for pattern in patterns:
        hits = [name for name in names if name == pattern or fnmatch.fnmatchcase(name, pattern)]
        if not hits:
            module, dot, _ = names[0].partition(".") if names else ("", "", "")
            listing = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            raise ConfigurationError(
                f"{argument}: the pattern {pattern!r} matches no parameter.{did_you_mean(pattern, names)}",
                expected=f"a name or a wildcard over {listing or 'no parameters at all'}",
                write=f'{argument}="{module}.*"' if dot else f'{argument}="{module}"' if module else "",
            )
        for name in hits:
            found.setdefault(name, pattern)
    return found
