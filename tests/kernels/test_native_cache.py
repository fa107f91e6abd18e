"""Where the native bodies are kept: folders that cannot be written, files that are damaged, two builds at once."""

from __future__ import annotations

import contextlib
import ctypes
import shutil
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest
import torch

from bayesprop.kernels import native

from .conftest import definitions_run

COMPILER = shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")


def use_compiler(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(native.shutil, "which", {"g++": path}.get)


def test_a_cache_folder_that_cannot_be_written(fresh, monkeypatch, tmp_path):
    """A file stands where the folder would be: not even an administrator can write there."""
    (tmp_path / "cache").write_text("")
    use_compiler(monkeypatch, "g++")
    found = native.library()
    assert "could not build it: [Errno 20] Not a directory" in found.reason
    definitions_run(found.reason)


def test_a_user_without_a_home_folder(fresh, monkeypatch):
    """A container that runs under a number that nobody has given a name."""
    monkeypatch.delenv("XDG_CACHE_HOME")

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(native.Path, "home", homeless)
    use_compiler(monkeypatch, "g++")
    definitions_run("g++ could not build it: Could not determine home directory.")


def test_the_cache_is_where_others_are(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert native._cache() == Path("/somewhere/bayesprop/native")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert native._cache() == Path.home() / ".cache" / "bayesprop" / "native"


def test_the_second_process_does_not_compile(fresh, monkeypatch):
    builds: list[Path] = []
    build = native._build
    monkeypatch.setattr(
        native, "_build", lambda compiler, target, *source: builds.append(target) or build(compiler, target)
    )
    first = fresh()
    fresh.cache_clear()
    assert fresh() is not first
    assert first.handle is not None, first.reason
    assert len(builds) == 1
    assert [path.name for path in builds[0].parent.iterdir()] == [builds[0].name]  # no folder is left behind


def test_another_processor_or_another_source_is_another_file(fresh, monkeypatch, tmp_path):
    names: list[str] = []

    def note(compiler: str, target: Path, source: Path) -> None:
        names.append(target.name)
        raise OSError("only the name is looked at")

    monkeypatch.setattr(native, "_build", note)
    use_compiler(monkeypatch, "/usr/bin/g++")
    other = tmp_path / "other.cpp"
    other.write_bytes(native.SOURCE.read_bytes() + b"\n")
    changes = {"_cpu": lambda: "another", "_openmp": lambda: "-lomp", "SOURCE": other, "COMPILE": ("-O0",)}
    fresh()
    for name, value in changes.items():
        with monkeypatch.context() as patch:
            patch.setattr(native, name, value)
            fresh.cache_clear()
            fresh()
    fresh.cache_clear()
    fresh()
    assert len(names) == 6
    assert names[0] == names[-1]
    assert len(set(names)) == 5


@pytest.mark.parametrize("left", [b"", b"\x7fELF", b"nonsense" * 1000])
def test_a_damaged_file_in_the_cache_is_built_again(native_code, monkeypatch, tmp_path, left):
    """Cut short by a crash, it would be slow for ever."""
    target, whole = tmp_path / "cached.so", tmp_path / "whole.so"
    whole.write_bytes(Path(native.library().handle._name).read_bytes())  # type: ignore[union-attr]
    target.write_bytes(left)
    monkeypatch.setattr(native, "_build", lambda compiler, to, source: whole.rename(to))
    found = native._load("compiler", target, native.SOURCE)
    assert found._name == str(target)
    assert not whole.exists()


def test_two_that_build_at_once_see_whole_files(native_code, tmp_path):
    """Both compile, each in a folder of its own; whoever looks sees no file or a whole one."""
    target = tmp_path / "at" / "once.so"
    sizes: set[int] = set()
    with ThreadPoolExecutor(2) as pool:
        builds = [pool.submit(native._build, str(COMPILER), target) for _ in range(2)]
        while not all(build.done() for build in builds):
            wait(builds, timeout=0.002)
            with contextlib.suppress(FileNotFoundError):
                sizes.add(target.stat().st_size)
    for build in builds:
        build.result()
    assert sizes | {target.stat().st_size} == {target.stat().st_size}
    assert [path.name for path in target.parent.iterdir()] == ["once.so"]
    out = torch.empty(4, dtype=torch.int64)
    zeros = [ctypes.c_int64(0)] * 4
    ctypes.CDLL(str(target)).bayesprop_bits(ctypes.c_void_p(out.data_ptr()), ctypes.c_int64(4), *zeros)
    assert out[0].item() == 0x6627E8D5
