"""The page of a record: what the experiment's own sections say, and below them how it was made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayesprop.experiments.experiment import Experiment
from bayesprop.experiments.listing import find
from bayesprop.experiments.record import Record
from bayesprop.report import Section, Table, save, save_figures
from bayesprop.report.blocks import Block

__all__ = ["duration", "provenance_section", "write_page"]


def write_page(record: Record, path: Path, figures: Path | None = None) -> Path:
    """One file that needs nothing else; and, if a folder is given, its figures as SVG and PNG files."""
    experiment = find(record.name)
    sections = [*experiment.page(record), provenance_section(experiment, record)]
    if figures is not None:
        save_figures(sections, figures)
    return save(sections, path, title=experiment.title, subtitle=_subtitle(experiment, record))


def duration(seconds: float) -> str:
    """Seconds for people: 4.2 s, 12 min, 3.1 h."""
    if seconds < 100.0:
        return f"{seconds:.1f} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 6000.0 else f"{seconds / 3600.0:.1f} h"


def provenance_section(experiment: Experiment, record: Record) -> Section:
    """Settings, parts with their seconds, device and commit, and the command that makes all this again."""
    parts = [
        (name, part["what"], duration(part["seconds"]), part["device"], part["torch"], _commit(part), part["date"])
        for name, part in record.parts.items()
    ]
    header = ("part", "what", "time", "device", "torch", "commit", "date")
    blocks: list[Block] = [
        Table(("setting", "value"), [(name, _shown(value)) for name, value in record.settings.items()], "Settings"),
        Table(header, parts, f"Parts: {duration(record.seconds)} in all", numeric=(2,)),
    ]
    engines = _engines(record)
    if engines:
        blocks.append(Table(("parts", "how their steps were taken"), engines))
    missing = f" Not run: {', '.join(record.missing)}." if record.missing else ""
    command = f"bayesprop reproduce {record.name} --scale {record.scale}"
    return Section("How this was made", blocks, f"{command}. {experiment.shows}{missing}")


def _engines(record: Record) -> list[tuple[str, str]]:
    """What the engine said of the trainings, with the parts of which it said so."""
    found: dict[str, list[str]] = {}
    for name, result in record.results():
        if result.get("engine"):
            found.setdefault(str(result["engine"]), []).append(name)
    return [(", ".join(names), engine) for engine, names in found.items()]


def _subtitle(experiment: Experiment, record: Record) -> str:
    smaller = (
        "" if record.scale == "paper" else " It is smaller than what was published: see whether it runs, not who wins."
    )
    return f"{experiment.shows} Scale {record.scale}; compared with {'; '.join(experiment.sources)}.{smaller}"


def _commit(part: Mapping[str, Any]) -> str:
    """The first letters of the commit, with a star if something in the library was different from it."""
    return (part["commit"][:8] or "unknown") + ("*" if part["uncommitted"] else "")


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
