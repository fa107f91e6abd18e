"""Records: what a run found, with settings, seconds, versions, device and commit of each part; JSON, written whole.

A run has a folder: `settings.json`, and `NAME.json` for each part that is done. `Record.gather` makes one document of
them, which is what a page is made from and what is kept in `results/reproduce`.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch

from bayesprop.errors import CheckpointError, ConfigurationError

__all__ = ["Record", "provenance", "read_json", "stored_path", "write_json"]

SOURCE = Path(__file__).resolve().parents[3]  # the repository, if this is one


@dataclass(frozen=True)
class Record:
    """`parts` holds those that are done, by name: result, seconds, when, where and with what each was run.

    `missing` names those that are not. `settings` are the plain numbers of the experiment's dataclass.
    """

    name: str
    scale: str
    settings: Mapping[str, Any]
    parts: Mapping[str, Mapping[str, Any]]
    missing: tuple[str, ...]

    def result(self, part: str) -> Mapping[str, Any] | None:
        """The result of a part, None if it was not run."""
        return self.parts[part]["result"] if part in self.parts else None

    def results(self, prefix: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Names and results of parts whose names begin with `prefix`."""
        return ((name, part["result"]) for name, part in self.parts.items() if name.startswith(prefix))

    @property
    def seconds(self) -> float:
        """Of all parts that are done."""
        return math.fsum(part["seconds"] for part in self.parts.values())

    @classmethod
    def gather(cls, folder: Path) -> Record:
        """What lies in the folder of a run."""
        head = read_json(folder / "settings.json")
        files = {name: folder / f"{name}.json" for name in head["parts"]}
        parts = {name: read_json(path) for name, path in files.items() if path.exists()}
        missing = tuple(name for name in files if name not in parts)
        return cls(head["name"], head["scale"], head["settings"], parts, missing)

    @classmethod
    def load(cls, path: Path) -> Record:
        """From a file that `save` has written, or from the folder of a run."""
        if path.is_dir():
            return cls.gather(path)
        found = read_json(path)
        if not {"name", "scale", "settings", "parts", "missing"} <= found.keys():
            raise CheckpointError(f"{path} is no record of an experiment", expected="one of results/reproduce")
        return cls(found["name"], found["scale"], found["settings"], found["parts"], tuple(found["missing"]))

    def save(self, path: Path) -> Path:
        """One document."""
        document = {"name": self.name, "scale": self.scale, "seconds": round(self.seconds, 3)}
        document |= {"settings": dict(self.settings), "missing": list(self.missing), "parts": dict(self.parts)}
        return write_json(path, document)


def stored_path(name: str, scale: str) -> Path:
    """Where the repository keeps the record of an experiment."""
    return SOURCE / "results" / "reproduce" / f"{name}-{scale}.json"


def read_json(path: Path) -> dict[str, Any]:
    """A document, or an error that says which file is no document."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(
            f"there is no {path}", expected="the folder or the record of a run", write="bayesprop reproduce"
        ) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} cannot be read", received=f"{type(error).__name__}: {error}", write=f"rm {path}, and run again"
        ) from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} is no document of this library", received=type(found).__name__)
    return found


def write_json(path: Path, document: Mapping[str, Any]) -> Path:
    """The whole document or none of it: written beside its place, flushed, renamed. Numbers must be finite."""
    try:
        text = json.dumps(document, indent=1, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{path.name}: a result consists of finite numbers, texts, lists and dicts", received=str(error)
        ) from error
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise CheckpointError(f"could not write {path}", received=str(error), write="--folder another") from error
    return path


def provenance(device: torch.device) -> dict[str, Any]:
    """When, where and with what a part is run. Of a folder of this machine only its name is told."""
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
    changed = [line[3:] for line in _git("status", "--porcelain", "--", "src").splitlines()]
    return {
        "command": " ".join(["python -m bayesprop.experiments", *words]),
        "date": datetime.date.today().isoformat(),
        "commit": os.environ.get("COMMIT") or _git("rev-parse", "HEAD"),  # a copy without history is told
        "uncommitted": changed,
        "device": processor(device),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }


def processor(device: torch.device) -> str:
    """The name of the device as the machine gives it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _git(*arguments: str) -> str:
    """What git says of the source, "" where there is no git or no repository."""
    try:
        done = subprocess.run(["git", *arguments], cwd=SOURCE, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.rstrip()
