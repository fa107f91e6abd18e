"""Records, and the cells and tables that are made of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "load", "made_by", "score", "table"]

ROOT = Path(__file__).resolve().parent.parent


def load(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "results" / f"{name}.json").read_text())


def score(value: dict[str, Any], form: str = ".3f", unit: float = 1.0) -> str:
    """Mean ± standard error, or the mean alone where there was one run."""
    mean = f"{value['mean'] * unit:{form}}"
    return mean if value["standard_error"] is None else f"{mean} ± {value['standard_error'] * unit:{form}}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *rows)]
    return "\n".join(lines) + "\n"


def made_by(*names: str) -> str:
    """Where the numbers come from."""
    records = [load(name) for name in names]
    commands = "; ".join(f"`{record['command']}`" for record in records)
    counts = {1: "1 thread"}
    places = (f"{r['device']}, {counts.get(r['threads'], str(r['threads']) + ' threads')}" for r in records)
    devices = "; ".join(dict.fromkeys(places))
    return f"\n{commands} ({devices}; records in `results/`)\n"
