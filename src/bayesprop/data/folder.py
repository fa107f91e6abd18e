"""Where files of data sets are, how they get there, and how we know that they are the right bytes.

The data folder is, in this order: the argument, the environment variable BAYESPROP_DATA, or "bayesprop" in the user's
cache folder. A file that is missing is downloaded with pooch (an extra); every file's SHA-256 is compared with the one
that is written in the code, whether it was downloaded or was there before.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesprop.errors import DataError

__all__ = ["PublicFile", "data_folder", "fetch"]

VARIABLE = "BAYESPROP_DATA"

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class PublicFile:
    """One file: its place below the data folder, its public address and the SHA-256 of its bytes."""

    path: str
    url: str
    sha256: str


def data_folder(folder: PathLike | None = None) -> Path:
    """The folder in use; it need not exist yet."""
    chosen = folder if folder is not None else os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    return _user_cache() / "bayesprop"


def fetch(file: PublicFile, folder: PathLike | None = None) -> Path:
    """The path of a file whose checksum is right; it is downloaded if it is not there."""
    target = data_folder(folder) / file.path
    if not target.is_file():
        _download(file, target)
    with open(target, "rb") as handle:
        received = hashlib.file_digest(handle, "sha256").hexdigest()
    if received != file.sha256:
        raise DataError(
            f"{target} is damaged or another file: its checksum is wrong",
            received=f"sha256 {received}, {target.stat().st_size} bytes",
            expected=f"sha256 {file.sha256}",
            write=f"rm {target}, and run again: it is then downloaded from {file.url}",
        )
    return target


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _download(file: PublicFile, target: Path) -> None:
    missing = f"{target} is missing"
    by_hand = f"curl -L --create-dirs -o {target} {file.url}, or {VARIABLE}=<a folder that holds {file.path}>"
    try:
        import pooch
    except ImportError as error:
        raise DataError(
            f"{missing}, and downloading needs pooch",
            expected='the extra "data", or the file put there by hand',
            write=f"pip install 'bayesprop[data]', or {by_hand}",
        ) from error
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _progress(target.name) as bar:
            # A chunk of 64 KiB, because each one is flushed to the disk and reported.
            downloader: Any = pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16)
            pooch.retrieve(
                file.url,
                known_hash=f"sha256:{file.sha256}",
                fname=target.name,
                path=target.parent,
                downloader=downloader,
            )
    except (OSError, ValueError) as error:  # no network, no permission; ValueError: the checksum is wrong
        raise DataError(
            f"{missing} and could not be downloaded from {file.url}",
            received=f"{type(error).__name__}: {str(error)[:300]}",
            expected="a network connection and permission to write there, or the file put there by hand",
            write=by_hand,
        ) from error


class _Bar:
    """What pooch tells about a download, told to rich. Pooch sets `total`, then counts bytes up."""

    def __init__(self, progress: Any, task: Any) -> None:
        self._progress, self._task = progress, task

    @property
    def total(self) -> int:
        return 0

    @total.setter
    def total(self, value: int) -> None:
        self._progress.update(self._task, total=value)

    def update(self, count: int) -> None:
        self._progress.update(self._task, advance=count)

    def reset(self) -> None:
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        self._progress.stop()


@contextlib.contextmanager
def _progress(name: str) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield _Bar(progress, progress.add_task(name, total=None))
