"""Build and load the CPU bodies: one C++ file, compiled on first use, cached by its own hash.

Where there is no compiler the definitions in plain torch run instead and give the same numbers to float tolerance, more
slowly. `status()` says which of the two it is and why; nothing is decided silently.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

__all__ = ["Library", "library", "run_split", "status"]

SOURCE = Path(__file__).with_name("native.cpp")
# -ffast-math lets the compiler use vector versions of log, exp, sin and cos. It is given to the compiler and not to the
# linker: the linker would add start-up code that switches off denormal numbers for the whole process.
COMPILE = ("-O3", "-march=native", "-ffast-math", "-fopenmp-simd", "-fPIC", "-std=c++17", "-c")
SPLIT = 65_536  # columns below which a second thread costs more than it brings


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


def _build(compiler: str, target: Path) -> None:
    """Compile into a folder of our own, then rename: two processes that build at once do not see half a file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        item, shared = Path(folder) / "native.o", Path(folder) / "native.so"
        for command in (
            [compiler, *COMPILE, str(SOURCE), "-o", str(item)],
            [compiler, "-shared", str(item), "-lm", "-o", str(shared)],
        ):
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        os.replace(shared, target)


@functools.cache
def library() -> Library:
    """Build the library if needed and load it, once a process."""
    compiler = shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")
    if compiler is None:
        return Library(None, "no C++ compiler (g++, c++ or clang++) is on the PATH")
    name = hashlib.sha256(SOURCE.read_bytes() + " ".join((compiler, *COMPILE)).encode() + _cpu().encode()).hexdigest()[
        :16
    ]
    try:
        target = _cache() / f"{name}.so"
        if not target.exists():
            _build(compiler, target)
        handle = ctypes.CDLL(str(target))
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", "") or str(error)
        return Library(None, f"{compiler} could not build it: {detail.strip().splitlines()[-1] if detail else error}")
    for function in ("bits", "normal", "sample", "adam"):
        getattr(handle, f"bayesprop_{function}").restype = None
    return Library(handle, f"native code, compiled with {compiler} for this processor")


def status() -> str:
    """One sentence: which bodies run on the CPU, and why."""
    found = library()
    return found.reason if found.handle else f"plain torch: {found.reason}"


@functools.cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="bayesprop")


def run_split(function, begin: int, end: int) -> None:
    """Call function(begin, end) over column ranges, on as many threads as torch uses; ranges start at multiples of
    4."""
    workers = min(torch.get_num_threads(), max(1, (end - begin) // SPLIT))
    if workers == 1:
        function(begin, end)
        return
    step = -(-(end - begin) // workers)
    step += -step % 4
    edges = [*range(begin, end, step), end]
    futures = [_pool(workers).submit(function, low, high) for low, high in zip(edges[1:], edges[2:])]
    function(edges[0], edges[1])
    for future in futures:
        future.result()
