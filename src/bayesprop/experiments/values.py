"""Values that somebody published and values that we measured: two types that never mix.

A published value carries its source and a mark that says how it was read; a measured one holds one number for each
seed, so that a reader always sees how many there are and how far they spread.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bayesprop.errors import ConfigurationError
from bayesprop.report import Table

__all__ = ["MARKS", "Comparison", "Measured", "Published", "comparison_table", "difference_table"]

MARKS = {
    "P": "read in the primary paper",
    "R": "read in the repository that is named",
    "S": "quoted by a later source",
    "C": "computed from stored raw result files",
    "F": "read off a figure",
    "M": "from memory, no source found",
}


@dataclass(frozen=True)
class Published:
    """A number of somebody else: in the unit of its table, where it stands, and how it was read (see `MARKS`)."""

    value: float
    source: str
    mark: str
    note: str = ""

    def __post_init__(self) -> None:
        if self.mark not in MARKS:
            raise ConfigurationError(
                "a published value says how it was read",
                received=f"mark={self.mark!r}",
                expected=", ".join(f"{mark} ({meaning})" for mark, meaning in MARKS.items()),
            )

    def shown(self, digits: int = 2) -> str:
        """1.36 [P]"""
        return f"{self.value:.{digits}f} [{self.mark}]"


@dataclass(frozen=True)
class Measured:
    """Numbers of ours: one for each seed."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.values or not all(math.isfinite(value) for value in self.values):
            raise ConfigurationError(
                "a measured value is one finite number for each seed", received=repr(list(self.values))
            )

    @classmethod
    def of(cls, values: Iterable[Any], scale: float = 1.0) -> Measured:
        """From the numbers of a record; `scale` 100 makes percentages of shares."""
        return cls(tuple(scale * float(value) for value in values))

    @property
    def seeds(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def standard_error(self) -> float | None:
        """Of the mean; None for a single seed, of which nobody knows the spread."""
        return statistics.stdev(self.values) / math.sqrt(self.seeds) if self.seeds > 1 else None

    def shown(self, digits: int = 2) -> str:
        """1.25 ± 0.02, and for a single seed the number alone."""
        spread = self.standard_error
        return f"{self.mean:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")


@dataclass(frozen=True)
class Comparison:
    """One line of a table: what it is of, what was published (nothing, one or several), and what we got or None."""

    labels: tuple[str, ...]
    published: Sequence[Published]
    measured: Measured | None
    note: str = ""


def comparison_table(
    title: str, names: Sequence[str], lines: Sequence[Comparison], *, unit: str, caption: str = "", digits: int = 2
) -> Table:
    """Published beside ours, with the number of seeds and the difference to the first published value.

    What was not measured says "not run"; what nobody published has a dash.
    """
    rows = []
    for line in lines:
        ours = line.measured
        first = line.published[0].value if line.published else None
        gap = round(ours.mean - first, digits) + 0.0 if ours and first is not None else None  # and never -0.00
        difference = "–" if gap is None else f"{gap:+.{digits}f}".replace("-", "−")
        rows.append(
            (
                *line.labels,
                ", ".join(value.shown(digits) for value in line.published) or "–",
                ours.shown(digits) if ours else "not run",
                str(ours.seeds) if ours else "–",
                difference,
                line.note,
            )
        )
    header = (*names, f"published, {unit}", f"here, {unit} ± standard error", "seeds", "difference", "")
    if not any(row[-1] for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    count = len(names)
    sources = dict.fromkeys(f"{value.source} [{value.mark}]" for line in lines for value in line.published)
    marks = dict.fromkeys(value.mark for line in lines for value in line.published)
    told = [caption] if caption else []
    if sources:
        told.append("Published: " + "; ".join(sources) + ".")
        told.append("Marks: " + ", ".join(f"[{mark}] {MARKS[mark]}" for mark in marks) + ".")
    return Table(header, rows, title=title, caption=" ".join(told), numeric=tuple(range(count, count + 4)))


def difference_table(names: Sequence[str], lines: Sequence[Comparison], *, rows: int) -> tuple[Table | None, int]:
    """Lines whose error in percent is elsewhere than the first published one by more than two deviations; and how many
    were compared.

    A published error is taken for that of one network, judged by so many `rows`: its deviation is the binomial one,
    which says nothing of how networks differ. Ours adds its standard error, or the binomial one for a single seed.
    """
    said, compared = [], 0
    for line in lines:
        if line.measured is None or not line.published:
            continue
        compared += 1
        theirs = line.published[0].value
        single = math.sqrt(max(theirs * (100.0 - theirs), 0.0) / rows)
        ours = line.measured.standard_error
        limit = 2.0 * math.hypot(single, single if ours is None else ours)
        gap = line.measured.mean - theirs
        if abs(gap) > limit:
            word = "lower" if gap < 0 else "higher"
            said.append((*line.labels, f"{abs(gap):.2f} points {word}", f"{limit:.2f}"))
    header = (*names, "ours is", "two deviations, points")
    return (Table(header, said, numeric=(len(names) + 1,)) if said else None), compared
