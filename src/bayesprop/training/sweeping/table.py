"""What a sweep returns: every setting with its scores and its fate, and the posteriors of the best."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from bayesprop.errors import ConfigurationError
from bayesprop.posteriors import Posterior
from bayesprop.training.sweeping.addresses import shown
from bayesprop.training.sweeping.halving import ranked
from bayesprop.training.sweeping.members import Member, Score

__all__ = ["Row", "Sweep"]

SHOWN = 20  # rows of the printed table


@dataclass(frozen=True)
class Row:
    """One setting: its values, its score at each rung, how long it was trained, and why it is where it is."""

    number: int
    values: dict[str, Any]
    scores: tuple[Score, ...]
    steps: int
    fate: str


@dataclass(frozen=True)
class Sweep:
    """Settings from best to worst, those of the last rung first; and the winners' posteriors, best first.

    `by` is the score that chose. A posterior is what `fit` would have returned for the setting, and can be saved.
    """

    rows: tuple[Row, ...]
    posteriors: tuple[Posterior, ...]
    by: str
    task: str
    plan: str
    seconds: float
    interrupted: bool = False

    @classmethod
    def of(cls, members: Sequence[Member], winners: Sequence[Member], by: str, **more: Any) -> Sweep:
        order = ranked_by_progress(members, by)
        rows = [Row(m.number, dict(m.values), tuple(m.scores), m.steps, m.fate) for m in order]
        posteriors = [winner.posterior for winner in winners if winner.posterior is not None]
        return cls(tuple(rows), tuple(posteriors), by, **more)

    @property
    def best(self) -> Posterior:
        """The posterior of the best setting."""
        if not self.posteriors:
            raise ConfigurationError(
                "this sweep has no posterior",
                received="it was interrupted before a setting had been trained" if self.interrupted else "no winner",
                write='bp.sweep(..., checkpoint="sweep.ckpt", resume=True)',
            )
        return self.posteriors[0]

    @property
    def best_values(self) -> dict[str, Any]:
        """The values of the best setting."""
        return self.rows[0].values

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def error_name(self) -> str:
        return "error" if self.task == "classification" else "RMSE"

    def to_dicts(self) -> list[dict[str, Any]]:
        """One flat dict for each setting: its values, and "nll@3" for the score after three epochs."""
        found = []
        for row in self.rows:
            flat: dict[str, Any] = {"number": row.number, **row.values}
            for score in row.scores:
                flat |= {f"nll@{score.epoch}": score.nll, f"{self.error_name.lower()}@{score.epoch}": score.error}
            found.append({**flat, "steps": row.steps, "fate": row.fate})
        return found

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """The same as a file; values that are no numbers are written as they are shown."""
        rows = self.to_dicts()
        names = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in ("steps", "fate")]
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [*names, "steps", "fate"])
            writer.writeheader()
            for row in rows:
                plain = {
                    n: v if isinstance(v, int | float | str) and not isinstance(v, bool) else shown(v)
                    for n, v in row.items()
                }
                writer.writerow(plain)

    def table(self, rows: int | None = SHOWN) -> Table:
        """For `rich`: the best rows; None for all of them."""
        names = list(dict.fromkeys(name for row in self.rows for name in row.values))
        epochs = sorted({score.epoch for row in self.rows for score in row.scores})
        made = Table(title=self.summary())
        for name in ("", *names):
            made.add_column(name, justify="right")
        for epoch in epochs:
            made.add_column(f"NLL\nepoch {epoch}", justify="right")
            made.add_column(f"{self.error_name}\nepoch {epoch}", justify="right")
        made.add_column("steps", justify="right")
        made.add_column("fate")
        for row in self.rows[:rows]:
            at = {score.epoch: score for score in row.scores}
            cells = [shown(row.values[name]) if name in row.values else "" for name in names]
            for epoch in epochs:
                cells += [f"{at[epoch].nll:.4g}", self._error(at[epoch].error)] if epoch in at else ["", ""]
            made.add_row(str(row.number), *cells, f"{row.steps:,}", row.fate)
        if rows is not None and len(self.rows) > rows:
            made.caption = f"and {len(self.rows) - rows} more: sweep.to_dicts(), sweep.to_csv(path)"
        return made

    def _error(self, value: float) -> str:
        return f"{value:.2%}" if self.task == "classification" else f"{value:.4g}"

    def summary(self) -> str:
        """In one line: how many settings, what was chosen by, how long it took."""
        dropped = sum(row.fate.startswith("dropped") for row in self.rows)
        diverged = sum(row.fate.startswith("diverged") for row in self.rows)
        by = "validation NLL" if self.by == "nll" else f"validation {self.error_name}"
        end = ", interrupted" if self.interrupted else ""
        return (
            f"{len(self.rows)} settings by {by}: {dropped} dropped, {diverged} diverged, "
            f"{sum(row.steps for row in self.rows):,} steps in {self.seconds:.1f} s{end}"
        )

    def __rich__(self) -> Table:
        return self.table()

    def __str__(self) -> str:
        console = Console(width=200, color_system=None)
        with console.capture() as captured:
            console.print(self.table())
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    def __repr__(self) -> str:
        return f"Sweep({self.summary()})"


def ranked_by_progress(members: Sequence[Member], by: str) -> list[Member]:
    """Those that came furthest first, and the best first among them; diverged ones behind those that finished well."""
    order = {member.number: place for place, member in enumerate(ranked(members, by))}
    return sorted(
        members,
        key=lambda m: (m.fate.startswith("diverged"), -len(m.scores), order[m.number]),
    )
