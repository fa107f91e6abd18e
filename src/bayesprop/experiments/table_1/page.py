"""The page: our table beside the published one, learning curves, what tempering costs, what was chosen."""

from __future__ import annotations

from bayesprop.experiments.record import Record
from bayesprop.experiments.table_1.parts import ROWS
from bayesprop.experiments.table_1.published import OTHERS, TABLE
from bayesprop.experiments.values import Comparison, Measured, comparison_table
from bayesprop.report import Section

__all__ = ["page"]


def page(record: Record) -> list[Section]:
    """All sections."""
    lines = []
    for row, title in ROWS.items():
        for width in record.settings["widths"]:
            key = (row.removesuffix("-full"), width)
            result = record.result(f"{row}-{width}")
            published = [TABLE[key], *OTHERS.get(key, ())] if key in TABLE else []
            measured = Measured.of(result["test"]["error"], 100.0) if result else None
            lines.append(Comparison((title, f"{width}"), published, measured))
    table = comparison_table("Test error", ("method", "units"), lines, unit="%")
    return [Section("MNIST test error", [table])]
