"""Outputs of the network for all draws, a few rows at a time, and never more of them in memory than agreed.

A source is a function that starts a pass over the rows: an iterator over `(rows, outputs, latents)` with the rows'
slice, outputs (S, rows, ...) of all S draws, and the likelihood's latents, name -> (S, *shape). Noise is counter based,
so every pass yields the same numbers, and throwing outputs away costs time but never consistency.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from bayesprop.errors import DataError

__all__ = ["Chunk", "Chunks", "Source", "by_rows"]

# Numbers that one evaluation for all draws works on: large enough to be fast, small enough for a cache.
WORKING_SET = 1 << 20

Result = TypeVar("Result")


class Chunk(NamedTuple):
    """Outputs (S, rows, ...) of all draws for consecutive rows, and the latents of all draws."""

    rows: slice
    outputs: Tensor
    latents: Mapping[str, Tensor]


Source = Callable[[], Iterator[tuple[slice, Tensor, Mapping[str, Tensor]]]]


class Chunks:
    """The chunks of a source; remembered when all together have at most `budget` numbers."""

    def __init__(self, source: Source, *, rows: int, draws: int, budget: int) -> None:
        self.source, self.rows, self.draws, self.budget = source, rows, draws, budget
        self._kept: list[Chunk] | None = None

    @property
    def kept(self) -> bool:
        """Whether the outputs are in memory, so that another pass is free."""
        return self._kept is not None

    def __iter__(self) -> Iterator[Chunk]:
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[Chunk] = []
        fits, done = True, 0
        for rows, outputs, latents in self.source():
            chunk = self._checked(rows, outputs, latents, done)
            done = chunk.rows.stop
            if fits and self.rows * (outputs.numel() // outputs.shape[1]) <= self.budget:
                kept.append(chunk)
            else:
                fits = False
                kept.clear()
            yield chunk
            del chunk, outputs, latents  # or the old chunk would stay while the source makes the next one
        if done != self.rows:
            raise DataError("a source must yield every row", received=f"{done} rows", expected=f"{self.rows} rows")
        if fits:
            self._kept = kept

    def _checked(self, rows: slice, outputs: Tensor, latents: Mapping[str, Tensor], done: int) -> Chunk:
        count = outputs.shape[1] if outputs.dim() > 1 else 0
        if count == 0 or outputs.shape[0] != self.draws or rows.start != done or rows.stop != done + count:
            raise DataError(
                "a source must yield outputs (draws, rows, ...) in the order of the rows",
                received=f"outputs {tuple(outputs.shape)} for rows {rows.start}..{rows.stop}",
                expected=f"outputs ({self.draws}, rows, ...) from row {done} on",
            )
        if outputs.requires_grad:
            outputs = outputs.detach()
        return Chunk(rows, outputs, {name: value.detach() for name, value in latents.items()})

    def map(self, function: Callable[[Chunk], Result]) -> list[Result]:
        """One pass: function of every chunk, of which only one is alive at a time unless all are kept."""
        results = []
        with torch.no_grad():
            for chunk in self:
                results.append(function(chunk))
                del chunk  # before the source makes the next one
        return results

    def select(self, index: Tensor) -> Source:
        """A source of some rows only, given by increasing row numbers."""

        def source() -> Iterator[tuple[slice, Tensor, Mapping[str, Tensor]]]:
            done = 0
            for chunk in self:
                inside = index[(index >= chunk.rows.start) & (index < chunk.rows.stop)] - chunk.rows.start
                if inside.numel():
                    outputs = chunk.outputs[:, inside.to(chunk.outputs.device)]
                    yield slice(done, done + inside.numel()), outputs, chunk.latents
                    del outputs
                    done += inside.numel()
                del chunk

        return source


def by_rows(chunk: Chunk, function: Callable[[Chunk, slice], Tensor], copies: int = 1) -> Tensor:
    """function(chunk, few of its rows), joined along the rows: work on all draws stays below WORKING_SET numbers.

    `copies` is how many samples of each row the function holds at once, if there are more of them than draws.
    """
    draws, count = chunk.outputs.shape[:2]
    per_row = chunk.outputs[:, 0].numel() * math.ceil(copies / draws)
    step = max(1, WORKING_SET // max(1, per_row))
    return torch.cat([function(chunk, slice(i, min(i + step, count))) for i in range(0, count, step)])
