"""Writing that fails: the previous file stays as it was, byte for byte, and nothing else is left behind."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from bayesprop import storage
from bayesprop.errors import CheckpointError

NEW = {"theta": torch.randn(1000, generator=torch.Generator().manual_seed(0))}


@pytest.fixture(params=[True, False], ids=["over a file", "a new file"])
def target(request, tmp_path) -> Path:
    """Where to write: a file that is there already, or a new one."""
    if request.param:
        storage.write(tmp_path / "run.bayes", {"epoch": 1}, {"theta": torch.zeros(10)})
    return tmp_path / "run.bayes"


def contents(folder: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in folder.iterdir()}


def write_fails(target: Path) -> str:
    """The message of a write that fails and leaves everything as it was."""
    before, existed = contents(target.parent), target.exists()
    with pytest.raises(CheckpointError) as caught:
        storage.write(target, {"epoch": 2}, NEW)
    assert contents(target.parent) == before
    message = str(caught.value)
    assert message.startswith(f"could not write {target}: ")
    assert ("the previous file is untouched" in message) is existed
    assert ("no file was left behind" in message) is not existed
    assert message.endswith("write: the same call with another path")
    if existed:
        assert storage.read(target)[0] == {"epoch": 1}
    return message


def half_written(error: BaseException) -> Callable[..., None]:
    """`save_file` on a disk that fills up in the middle."""
    save = storage.save_file

    def save_half(tensors, path, metadata) -> None:
        save(tensors, path, metadata)
        os.truncate(path, os.path.getsize(path) // 2)
        raise error

    return save_half


def test_a_disk_that_fills_up(target, monkeypatch):
    monkeypatch.setattr(storage, "save_file", half_written(OSError(errno.ENOSPC, "No space left on device")))
    message = write_fails(target)
    assert "[Errno 28] No space left on device" in message
    assert "expected: room on the disk and permission to write" in message


def test_a_disk_that_fails_when_it_is_flushed(target, monkeypatch):
    """Some file systems say only then that there is no room."""

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(storage.os, "fsync", fail)
    assert "[Errno 5] Input/output error" in write_fails(target)


def test_a_rename_that_is_refused(target, monkeypatch):
    def fail(source: Path, to: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(storage.os, "replace", fail)
    assert "[Errno 13] Permission denied" in write_fails(target)


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), SystemExit(1), MemoryError()])
def test_an_interruption_in_the_middle(target, monkeypatch, interruption):
    before = contents(target.parent)
    monkeypatch.setattr(storage, "save_file", half_written(interruption))
    with pytest.raises(type(interruption)):
        storage.write(target, {"epoch": 2}, NEW)
    assert contents(target.parent) == before


def test_a_file_is_flushed_before_it_takes_its_place(target, monkeypatch):
    """The order is the whole point: a rename before the flush would leave an empty file after a power cut."""
    steps: list[str] = []
    flush, rename = os.fsync, os.replace
    monkeypatch.setattr(storage.os, "fsync", lambda descriptor: steps.append("flush") or flush(descriptor))
    monkeypatch.setattr(storage.os, "replace", lambda source, to: steps.append("rename") or rename(source, to))
    storage.write(target, {"epoch": 2}, NEW)
    assert steps == ["flush", "rename"]
    assert contents(target.parent).keys() == {"run.bayes"}
    assert storage.read(target)[0] == {"epoch": 2}


def test_whoever_reads_meanwhile_sees_the_previous_file(tmp_path, monkeypatch):
    target = storage.write(tmp_path / "run.bayes", {"epoch": 1}, {})
    seen: list[object] = []
    rename = os.replace

    def look_first(source: Path, to: Path) -> None:
        seen.append(storage.read(to)[0])
        rename(source, to)
        seen.append(storage.read(to)[0])

    monkeypatch.setattr(storage.os, "replace", look_first)
    storage.write(target, {"epoch": 2}, NEW)
    assert seen == [{"epoch": 1}, {"epoch": 2}]


LIMITED = """
import resource, sys
import torch
from bayesprop import storage
from bayesprop.errors import CheckpointError
folder = sys.argv[1]
first = storage.write(folder + "/run.bayes", {"epoch": 1}, {"theta": torch.zeros(10)})
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
for name in ("run.bayes", "other.bayes"):
    try:
        storage.write(f"{folder}/{name}", {"epoch": 2}, {"theta": torch.ones(100_000)})
    except CheckpointError as error:
        print(str(error).splitlines()[0])
        print(str(error).splitlines()[1])
storage.write(folder + "/small.bayes", {"epoch": 3}, {"theta": torch.zeros(10)})
"""


def test_a_real_limit_on_the_size_of_files(tmp_path):
    """Not simulated: the system stops the write in the middle of the numbers."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith(f"could not write {tmp_path}/run.bayes: ")
    assert "File too large" in lines[0]
    assert lines[1].endswith("the previous file is untouched")
    assert "File too large" in lines[2]
    assert lines[3].endswith("no file was left behind")
    assert contents(tmp_path).keys() == {"run.bayes", "small.bayes"}
    assert storage.read(tmp_path / "run.bayes")[0] == {"epoch": 1}
    assert storage.read(tmp_path / "small.bayes")[0] == {"epoch": 3}


# -- places that cannot be written or read -----------------------------------------------------------------------------


def test_a_folder_in_the_place_of_the_file(tmp_path):
    (tmp_path / "run.bayes").mkdir()
    with pytest.raises(CheckpointError, match=r"could not write .*run\.bayes: \[Errno 21\] Is a directory"):
        storage.write(tmp_path / "run.bayes", {}, NEW)
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.bayes"]
    assert list((tmp_path / "run.bayes").iterdir()) == []


def test_a_file_in_the_place_of_the_folder(tmp_path):
    file = storage.write(tmp_path / "run.bayes", {"epoch": 1}, {})
    with pytest.raises(CheckpointError, match=r"(?s)could not write .*below: .* no file was left behind"):
        storage.write(file / "below", {}, NEW)
    assert storage.read(file)[0] == {"epoch": 1}


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that every user of the machine may enter, unlike those that pytest makes."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextlib.contextmanager
def ordinary_user() -> Iterator[None]:
    """The rights of a user without privileges: an administrator could write anywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_that_one_may_not_read(shared_folder):
    file = storage.write(shared_folder / "run.bayes", {}, {})
    file.chmod(0)
    with ordinary_user(), pytest.raises(CheckpointError, match=r"cannot be read: \[Errno 13\] Permission") as caught:
        storage.read(file)
    assert "expected: a file that you have permission to read" in str(caught.value)


def test_a_folder_that_one_may_not_enter(shared_folder):
    """Neither reading nor the words about a failed write may fail themselves."""
    closed = shared_folder / "closed"
    file = storage.write(closed / "run.bayes", {"epoch": 1}, {})
    closed.chmod(0)
    try:
        with ordinary_user():
            with pytest.raises(CheckpointError, match=r"there is no file .*run\.bayes") as caught:
                storage.read(file)
            assert f"({closed} cannot be looked into: Permission denied)" in str(caught.value)
            for name in (file, closed / "new" / "run.bayes"):
                with pytest.raises(CheckpointError, match=r"could not write .*Permission denied"):
                    storage.write(name, {}, NEW)
    finally:
        closed.chmod(0o755)
    assert storage.read(file)[0] == {"epoch": 1}
    assert [entry.name for entry in closed.iterdir()] == ["run.bayes"]


def test_a_folder_that_one_may_not_write_into(shared_folder):
    file = storage.write(shared_folder / "run.bayes", {"epoch": 1}, {})
    shared_folder.chmod(0o555)
    try:
        with ordinary_user(), pytest.raises(CheckpointError, match=r"could not write .*Permission denied") as caught:
            storage.write(file, {"epoch": 2}, NEW)
    finally:
        shared_folder.chmod(0o755)
    assert "the previous file is untouched" in str(caught.value)
    assert storage.read(file)[0] == {"epoch": 1}
    assert contents(shared_folder).keys() == {"run.bayes"}
