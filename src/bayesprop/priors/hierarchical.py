"""Priors whose scale is itself unknown: which weights share a scale, and in which columns the scales live.

A hyperprior becomes one `Latent` per network, module, unit or parameter. A latent's columns hold the logarithm of the
scale (`biject_to(positive)` is exp), so the log-scale of every weight is a *spread* of latent columns: each is repeated
over the weights that share it. A product of hyperpriors is a sum of spreads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from bayesprop.distributions import arguments, normal
from bayesprop.distributions.elementwise import Elementwise
from bayesprop.distributions.hyperpriors import HalfCauchy, Hyperprior
from bayesprop.latents import Latent
from bayesprop.layout import Block
from bayesprop.priors.prior import Argument, Prior

__all__ = ["Horseshoe", "Piece", "Spread", "place"]


@dataclass(frozen=True, eq=False)
class Horseshoe(Prior):
    """Most weights nearly zero, some free: w ~ N(0, (local * global)^2), Carvalho, Polson and Scott (2010).

        local ~ HalfCauchy(1), one for every weight;   global ~ HalfCauchy(global_scale), one for every layer

    It doubles the columns: every weight brings its local scale. A small `global_scale` says that few weights matter.
    """

    global_scale: float = 1.0
    centred: bool = False
    density: ClassVar[Elementwise] = normal.DENSITY

    def __post_init__(self) -> None:
        example = "priors.Horseshoe(global_scale=1.0)"
        value = arguments.positive("Horseshoe", "global_scale", self.global_scale, write=example)
        object.__setattr__(self, "global_scale", value)

    def arguments(self) -> dict[str, Argument]:
        local = HalfCauchy(1.0, shared="weight", centred=self.centred)
        return {"loc": 0.0, "scale": local * HalfCauchy(self.global_scale, shared="layer", centred=self.centred)}

    def describe(self) -> str:
        return f"Horseshoe({self.global_scale:g})"


@dataclass(frozen=True)
class Piece:
    """`units` columns from `start` on, each of them for `repeat` consecutive weights."""

    start: int
    units: int
    repeat: int

    def joined(self, other: Piece) -> Piece | None:
        """Both in one, where the other continues this one: the same scale again, or more scales of single weights."""
        if self.units == other.units == 1 and self.start == other.start:
            return Piece(self.start, 1, self.repeat + other.repeat)
        if self.repeat == other.repeat == 1 and self.start + self.units == other.start:
            return Piece(self.start, self.units + other.units, 1)
        return None


@dataclass(frozen=True)
class Spread:
    """One factor of the scale of a group of weights.

    The repetition is an `expand`, whose backward pass is a sum: deterministic, and fast where an index would send a
    hundred thousand gradients to one address.
    """

    pieces: tuple[Piece, ...]
    centred: bool

    @classmethod
    def of(cls, pieces: Sequence[Piece], centred: bool) -> Spread:
        merged: list[Piece] = []
        for piece in pieces:
            both = merged[-1].joined(piece) if merged else None
            if both is None:
                merged.append(piece)
            else:
                merged[-1] = both
        return cls(tuple(merged), centred)

    def __call__(self, columns: Tensor) -> Tensor:
        """All columns (..., H) to one value for each weight of the group, or (..., 1) where they all share one."""
        if len(self.pieces) == 1 and self.pieces[0].units == 1:
            return columns[..., self.pieces[0].start : self.pieces[0].start + 1]
        parts = []
        for piece in self.pieces:
            part = columns[..., piece.start : piece.start + piece.units]
            if piece.repeat > 1:
                part = part.unsqueeze(-1).expand(*part.shape, piece.repeat).flatten(-2)
            parts.append(part)
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


def place(
    hyperprior: Hyperprior, blocks: Sequence[Block], modules: dict[str, int], name: str, pattern: str, start: int
) -> tuple[list[Latent], list[Piece]]:
    """The latents of one hyperprior over `blocks`, with columns from `start` on; for each block, where its scale is.

    `modules` counts the random parameters of every module, which decides how a latent is called: by the module where
    it governs all of them, by the parameters otherwise.
    """
    owners: dict[tuple[str, int], list[Block]] = {}
    for block in blocks:
        units = {"unit": block.shape[0] if block.shape else 1, "weight": block.size}.get(hyperprior.shared, 1)
        owner = {"network": "", "weight": block.name}.get(hyperprior.shared, block.module)
        owners.setdefault((owner, units), []).append(block)
    latents: list[Latent] = []
    where: dict[str, Piece] = {}
    for (module, units), governed in owners.items():
        shape = {"unit": (units,), "weight": governed[0].shape}.get(hyperprior.shared, ())
        label = pattern
        if hyperprior.shared != "network":
            whole = hyperprior.shared != "weight" and module and len(governed) == modules[module]
            label = module if whole else "+".join(_local(block.name, i) for i, block in enumerate(governed))
        full_name = f"{name}[{label}]" if label else name
        latents.append(
            Latent(full_name, shape, hyperprior.log_density_of_scale, hyperprior.initial, hyperprior.score_of_log_scale)
        )
        for block in governed:
            where[block.name] = Piece(start, units, block.size // units)
        start += math.prod(shape)
    return latents, [where[block.name] for block in blocks]


def _local(name: str, position: int) -> str:
    """The first name of a list in full, the others without their module."""
    return name if position == 0 else name.rpartition(".")[2]
