"""What the command line does with experiments, without the libraries of the command line.

`bayesprop reproduce` and `python -m bayesprop.experiments` both end here. The latter needs torch, numpy, rich and
safetensors only, for machines that have nothing else: with `--no-page` the record is written, and a page is made from
it somewhere else.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bayesprop.errors import CheckpointError, ConfigurationError
from bayesprop.experiments.listing import find, table
from bayesprop.experiments.pages import write_page
from bayesprop.experiments.record import Record, stored_path
from bayesprop.experiments.running import run
from bayesprop.report.extras import require

__all__ = ["changes_of", "list_experiments", "reproduce", "show", "unfinished"]


def list_experiments(console: Console | None = None) -> None:
    """Print what there is to reproduce."""
    (console or Console()).print(table())


def default_folder(name: str, scale: str) -> Path:
    """Where a run is kept if nobody says where."""
    return Path("runs") / "reproduce" / f"{name}-{scale}"


def reproduce(
    name: str,
    scale: str,
    *,
    folder: Path | None = None,
    device: str | None = None,
    seeds: int | None = None,
    changes: Sequence[str] = (),
    minutes: float | None = None,
    parts: str = "*",
    page: bool = True,
    console: Console | None = None,
) -> Record:
    """Run an experiment, or what is missing of it; write `record.json` and, if wanted, `page.html` into its folder.

    `changes` are words such as "epochs=100", for settings other than those of the scale.
    """
    console = console or Console(stderr=True, highlight=False)
    experiment = find(name)
    if page:  # nobody should compute first and be refused afterwards
        require("the page of an experiment", "jinja2", "matplotlib", extra="report")
    folder = folder or default_folder(name, scale)
    record = run(
        experiment,
        scale,
        folder,
        seeds=seeds,
        changes=changes_of(changes),
        device=device,
        minutes=minutes,
        parts=parts,
        console=console,
    )
    written = [record.save(folder / "record.json")]
    if page and record.parts:
        written.append(write_page(record, folder / "page.html"))
    for path in written:
        console.print(f"{path}", soft_wrap=True)
    return record


def unfinished(record: Record, parts: str) -> list[str]:
    """Parts that match the pattern and are not done."""
    words = [word.strip() for word in parts.split(",")]
    return [name for name in record.missing if any(fnmatch.fnmatchcase(name, word) for word in words)]


def changes_of(words: Sequence[str]) -> dict[str, Any]:
    """{"epochs": 100} from "epochs=100"; what is no JSON is a text."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ConfigurationError("a setting has a value", received=word, write="--set epochs=100")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def show(place: Path | str, *, scale: str | None = None, page: Path | None = None, figures: Path | None = None) -> Path:
    """The page of a run's folder or of a record's file; of a name, that of the records that are kept.

    `figures` is a folder for its figures as files of their own.
    """
    named = not Path(place).exists()
    path = _kept(str(place), scale) if named else Path(place)
    record = Record.load(path)
    beside = path / "page.html" if path.is_dir() else path.with_suffix(".html")
    if named:  # not among the records of the repository
        beside = default_folder(record.name, record.scale) / "page.html"
    return write_page(record, page or beside, figures)


def _kept(name: str, scale: str | None) -> Path:
    """The record of an experiment: of the scale, or of the largest one that was run; here or in the repository."""
    experiment = find(name)
    scales = [scale] if scale else list(experiment.scales)[::-1]
    places = [place for found in scales for place in (default_folder(name, found), stored_path(name, found))]
    for place in places:
        if place.is_file() or (place / "settings.json").is_file():  # a folder may hold a page and no run
            return place
    raise CheckpointError(
        f"there is no record of {name}" + (f" at scale {scale}" if scale else ""),
        expected=f"one of {', '.join(map(str, places))}",
        write=f"bayesprop reproduce {name} --scale {scale or 'smoke'}",
    )
