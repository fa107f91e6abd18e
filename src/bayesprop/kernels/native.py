"""Build and load the CPU bodies: C++ files, each compiled on first use and cached by its own hash.

Where there is no compiler the definitions in plain torch run instead and give the same numbers to float tolerance, more
slowly. `status()` says which of the two it is and why; nothing is decided silently.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

__all__ = ["Library", "built", "library", "status", "threads"]

SOURCE = Path(__file__).with_name("native.cpp")
# -ffast-math lets the compiler use vector versions of log, exp, sin and cos. It is given to the compiler and not to the
# linker: the linker would add start-up code that switches off denormal numbers for the whole process.
COMPILE = ("-O3", "-march=native", "-ffast-math", "-fopenmp", "-fPIC", "-std=c++17", "-c")
# Left alone, compilers use half of a 512-bit processor: 1.2 times slower. On a narrower one this says nothing.
WIDE = ("-mprefer-vector-width=512",) if platform.machine().lower() in ("x86_64", "amd64") else ()
SPLIT = 32_768  # columns below which a second thread costs more than it brings


@dataclass(frozen=True)
class Library:
    """The loaded bodies, or None and the reason."""

    handle: ctypes.CDLL | None
    reason: str


def _cpu() -> str:
    """What -march=native depends on: a cache folder shared between machines must not mix them up."""
    try:
        text = Path("/proc/cpuinfo").read_text()
        return "".join(line for line in text.splitlines() if line.startswith(("flags", "model name", "Features")))
    except OSError:
        return platform.processor()


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "bayesprop" / "native"


def _openmp() -> str:
    """Torch's own OpenMP runtime: a second one would have threads of its own that fight with torch's for the cores."""
    folder = Path(torch.__file__).parent
    found = [*sorted(folder.glob("lib/libgomp*.so*")), *sorted(folder.parent.glob("torch.libs/libgomp*.so*"))]
    return str(found[0]) if found else "-lgomp"


def _build(compiler: str, target: Path, source: Path = SOURCE) -> None:
    """Compile into a folder of our own, then rename: two processes that build at once do not see half a file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        item, shared = Path(folder) / "native.o", Path(folder) / "native.so"
        compile_command = [compiler, *COMPILE, *WIDE, str(source), "-o", str(item)]
        link_command = [compiler, "-shared", str(item), _openmp(), "-lm", "-o", str(shared)]
        for command in (compile_command, link_command):
            subprocess.run(command, check=True, capture_output=True, text=True, errors="replace", timeout=120)
        os.replace(shared, target)


def _load(compiler: str, target: Path, source: Path) -> ctypes.CDLL:
    """The library at `target`, built first if it is not there, and once more if what is there cannot be loaded."""
    if target.exists():
        with contextlib.suppress(OSError):  # a file that a crash or a full disk cut short
            return ctypes.CDLL(str(target))
    _build(compiler, target, source)
    return ctypes.CDLL(str(target))


def _why(error: Exception) -> str:
    """The last line of what the compiler said, or the error itself."""
    said = getattr(error, "stderr", None) or ""  # bytes of a compiler that was stopped, text of one that failed
    text = said.decode(errors="replace") if isinstance(said, bytes) else said
    return (text.strip() or str(error)).splitlines()[-1]


def built(source: Path, functions: tuple[str, ...]) -> Library:
    """The library of one source file, built if it is not there yet."""
    compiler = shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")
    if compiler is None:
        return Library(None, "no C++ compiler (g++, c++ or clang++) is on the PATH")
    recipe = " ".join((compiler, *COMPILE, *WIDE, _openmp(), _cpu()))
    texts = [file.read_bytes() for file in (source, *sorted(source.parent.glob("*.hpp")))]
    name = hashlib.sha256(b"".join(texts) + recipe.encode()).hexdigest()[:16]
    try:
        handle = _load(compiler, _cache() / f"{name}.so", source)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # RuntimeError: a user without a home folder
        return Library(None, f"{compiler} could not build it: {_why(error)}")
    for function in functions:
        getattr(handle, f"bayesprop_{function}").restype = None
    return Library(handle, f"native code, compiled with {compiler} for this processor")


@functools.cache
def library() -> Library:
    """The bodies of noise and of mean-field steps, once a process."""
    return built(SOURCE, ("bits", "normal", "sample", "adam"))


def status() -> str:
    """One sentence: which bodies run on the CPU, and why."""
    found = library()
    return found.reason if found.handle else f"plain torch: {found.reason}"


def threads(columns: int) -> ctypes.c_int64:
    """How many of torch's threads a pass over so many columns is worth."""
    return ctypes.c_int64(min(torch.get_num_threads(), max(1, columns // SPLIT)))
