"""Running an experiment: its parts one after the other, each stored as soon as it is done.

    folder/settings.json       what is run, and the names of its parts
    folder/PART.json           the result of a part that is done, with seconds, device, versions and commit
    folder/PART.tensors        what it leaves to later parts, if anything
    folder/PART/               where a part works: checkpoints, which go when it is done

Parts that are there are not run again. Ctrl-C, or the end of the minutes that were given, ends the run after the step
in flight; the next call with the same folder goes on from there.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from bayesprop import storage
from bayesprop.errors import ConfigurationError
from bayesprop.experiments.experiment import Bench, Experiment, Part, Settings, Unfinished, tensors_path
from bayesprop.experiments.record import Record, provenance, read_json, write_json

__all__ = ["chosen", "run"]


def run(
    experiment: Experiment,
    scale: str,
    folder: Path,
    *,
    seeds: int | None = None,
    changes: Mapping[str, Any] | None = None,
    device: torch.device | str | None = None,
    minutes: float | None = None,
    parts: str = "*",
    console: Console | None = None,
) -> Record:
    """Run what is missing of the parts that match the pattern (and what they need), and return what there is then."""
    console = console or Console(stderr=True, highlight=False)
    settings = experiment.settings(scale, seeds, changes)
    every = list(experiment.parts(settings))
    _check(experiment.name, every)
    wanted = chosen(every, parts, experiment.name)
    _settle(folder, experiment, scale, settings, every)
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    ends = None if minutes is None else time.monotonic() + 60.0 * minutes
    console.print(f"{experiment.title}, scale {scale}, on {where}: {len(wanted)} of {len(every)} parts. {folder}")
    for number, part in enumerate(wanted, 1):
        head = f"{number}/{len(wanted)}  {part.name}"
        if (folder / f"{part.name}.json").exists():
            console.print(f"{head}: done before")
            continue
        bench = Bench(folder / part.name, where, _needed(folder, part), folder, progress=console.is_terminal, ends=ends)
        if bench.late:
            console.print(f"{head}: the time is over; the same command goes on from here")
            break
        console.print(f"{head}: {part.what}")
        try:
            seconds = _take(part, bench, folder)
        except Unfinished as reason:
            console.print(f"{head}: {reason}; the same command goes on from here")
            break
        console.print(f"{head}: {seconds:,.1f} s")
    return Record.gather(folder)


def _take(part: Part, bench: Bench, folder: Path) -> float:
    """Run one part and store its result; seconds, those before an interruption included."""
    bench.folder.mkdir(parents=True, exist_ok=True)
    clock = bench.folder / "seconds.json"
    before = read_json(clock)["seconds"] if clock.exists() else 0.0
    began = time.perf_counter()
    try:
        result = part.run(bench)
    except (Unfinished, KeyboardInterrupt):
        write_json(clock, {"seconds": before + time.perf_counter() - began})
        raise
    seconds = before + time.perf_counter() - began
    if bench.tensors:
        storage.write(tensors_path(folder, part.name), {"kind": "part"}, bench.tensors)
    document = {"what": part.what, "seconds": round(seconds, 3), **provenance(bench.device), "result": result}
    write_json(folder / f"{part.name}.json", document)  # last: a part is done when this file is there
    shutil.rmtree(bench.folder)
    return seconds


def chosen(parts: Sequence[Part], pattern: str, name: str) -> list[Part]:
    """Parts whose names match a pattern such as "mixture-*", or one of several with commas between, and their needs."""
    by_name = {part.name: part for part in parts}
    patterns = [word.strip() for word in pattern.split(",") if word.strip()]
    found = {part.name for part in parts if any(fnmatch.fnmatchcase(part.name, word) for word in patterns)}
    if not found:
        raise ConfigurationError(
            f"no part of {name} is called like that",
            received=f"--parts {pattern!r}",
            expected=", ".join(by_name),
        )
    waiting = list(found)
    while waiting:
        for need in by_name[waiting.pop()].needs:
            if need not in found:
                found.add(need)
                waiting.append(need)
    return [part for part in parts if part.name in found]


def _needed(folder: Path, part: Part) -> dict[str, dict]:
    return {need: read_json(folder / f"{need}.json")["result"] for need in part.needs}


def _check(name: str, parts: Sequence[Part]) -> None:
    """Refuse an experiment whose parts have the same name, or need what does not come before them."""
    before: set[str] = set()
    for part in parts:
        missing = [need for need in part.needs if need not in before]
        if part.name in before or part.name == "settings" or missing:
            raise ConfigurationError(
                f"{name}: the parts of an experiment have names of their own and come in the order of their needs",
                received=f"{part.name}" + (f", which needs {', '.join(missing)}" if missing else ", a second time"),
            )
        before.add(part.name)


def _settle(folder: Path, experiment: Experiment, scale: str, settings: Settings, parts: Sequence[Part]) -> None:
    """Write what is run into the folder, or refuse the folder of another run."""
    path = folder / "settings.json"
    head = {"name": experiment.name, "scale": scale, "settings": dataclasses.asdict(settings)}
    plain = _plain(head | {"parts": [part.name for part in parts]})
    assert isinstance(plain, dict)
    if not path.exists():
        write_json(path, plain)
        return
    there = read_json(path)
    different = [key for key, value in plain.items() if value != there.get(key)]
    if different:
        raise ConfigurationError(
            f"{folder} belongs to another run",
            received=", ".join(f"{key} {there.get(key)}" for key in different)[:600],
            expected=", ".join(f"{key} {plain[key]}" for key in different)[:600],
            write=f"--folder another, or rm -r {folder}",
        )


def _plain(value: object) -> object:
    """As JSON gives it back: tuples are lists there."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
