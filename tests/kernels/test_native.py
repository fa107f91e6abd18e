"""Building the native bodies: what happens where there is no compiler, and what must never happen where there is."""

from __future__ import annotations

import ctypes
import math
import os
import shutil
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import bayesprop as bp
from bayesprop.inference import BayesByBackprop
from bayesprop.inference.variational.fused import explain
from bayesprop.kernels import native, noise

from .conftest import definitions_run

COMPILER = shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")


def script(path: Path, text: str) -> str:
    """A compiler of our own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def use_compiler(monkeypatch: pytest.MonkeyPatch, found: dict[str, str]) -> None:
    monkeypatch.setattr(native.shutil, "which", found.get)


def test_one_sentence_says_what_runs():
    found = native.library()
    assert native.library() is found
    if found.handle is not None:
        assert native.status() == f"native code, compiled with {COMPILER} for this processor"
    else:
        assert native.status() == f"plain torch: {found.reason}"


def test_without_a_compiler(fresh, monkeypatch):
    use_compiler(monkeypatch, {})
    definitions_run("no C++ compiler (g++, c++ or clang++) is on the PATH")


def test_any_of_three_compilers_is_taken(fresh, monkeypatch, tmp_path):
    for name in ("clang++", "c++", "g++"):
        broken = script(tmp_path / name, f"echo 'I am {name}' >&2; exit 1")
        use_compiler(monkeypatch, {name: broken})
        fresh.cache_clear()
        assert fresh().reason == f"{broken} could not build it: I am {name}"


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("echo 'native.cpp:1: note' >&2; echo 'error: no such flag' >&2; exit 1", "error: no such flag"),
        ("exit 3", "returned non-zero exit status 3."),
        ("echo >&2; echo '  ' >&2; exit 1", "returned non-zero exit status 1."),
        ("printf 'erreur: \\351chec\\n' >&2; exit 1", "erreur: \N{REPLACEMENT CHARACTER}chec"),
        ("exit 0", "No such file or directory"),  # says that all is well and writes nothing
        ('for last in "$@"; do :; done; echo nonsense > $last', "file too short"),
    ],
    ids=["an error", "no word", "empty lines", "another encoding", "nothing written", "nonsense written"],
)
def test_a_compiler_that_fails(fresh, monkeypatch, tmp_path, text, detail):
    broken = script(tmp_path / "g++", text)
    use_compiler(monkeypatch, {"g++": broken})
    found = native.library()
    assert found.reason.startswith(f"{broken} could not build it: ")
    assert detail in found.reason
    definitions_run(found.reason)
    # What is left in the cache at most is a file that the next process builds anew.
    assert {p.suffix for p in (tmp_path / "cache").rglob("*") if p.is_file()} <= {".so"}


def test_a_compiler_that_hangs_is_given_up(fresh, monkeypatch, tmp_path):
    """What it had said by then comes as bytes, although text was asked for."""

    def hang(command: list[str], *, timeout: float, **options: object) -> None:
        raise subprocess.TimeoutExpired(command, timeout, stderr=b"reading\nthinking\n")

    use_compiler(monkeypatch, {"g++": str(tmp_path / "g++")})
    monkeypatch.setattr(native.subprocess, "run", hang)
    found = native.library()
    assert found.handle is None
    assert found.reason == f"{tmp_path / 'g++'} could not build it: thinking"


def test_a_compiler_that_cannot_be_started(fresh, monkeypatch, tmp_path):
    use_compiler(monkeypatch, {"g++": str(tmp_path / "gone")})
    assert "could not build it: [Errno 2] No such file or directory" in native.library().reason


# -- what it does to the process ---------------------------------------------------------------------------------------


def test_fast_arithmetic_stays_inside(native_code):
    """-ffast-math at the linker would switch off denormal numbers for every thread of the process."""
    assert noise.normal(torch.tensor([7, 0]), 0, 1, 4096).isfinite().all()
    tiny = np.float32(1e-40)
    assert tiny * np.float32(0.5) > 0.0
    assert (torch.full((64,), 1e-40) * 0.5 > 0.0).all()
    assert 5e-324 / 1.0 > 0.0
    assert torch.tensor(float("nan")).isnan()
    assert math.isinf(float(torch.tensor(3e38) * 10.0))
    with ThreadPoolExecutor(1) as pool:  # a thread that is born after the library was loaded
        assert pool.submit(lambda: float(np.float32(1e-40) * np.float32(0.5))).result() > 0.0


def test_the_linker_is_not_told_of_fast_arithmetic(monkeypatch, tmp_path):
    commands: list[list[str]] = []

    def note(command: list[str], **options: object) -> None:
        commands.append(command)
        Path(command[-1]).write_text("")

    monkeypatch.setattr(native.subprocess, "run", note)
    native._build("compiler", tmp_path / "x.so")
    compiling, linking = commands
    assert "-ffast-math" in compiling
    assert "-c" in compiling
    assert "-ffast-math" not in linking
    assert "-shared" in linking


def test_the_openmp_runtime_is_that_of_torch(native_code):
    """A second runtime would have threads of its own: linked to the system's, it would be seen in the process."""
    runtimes = {
        os.path.realpath(line.split()[-1])
        for line in Path("/proc/self/maps").read_text().splitlines()
        if any(name in line for name in ("libgomp", "libomp", "libiomp"))
    }
    ours, packages = native._openmp(), os.path.realpath(Path(torch.__file__).parents[1])
    if ours != "-lgomp":  # torch brings its own
        assert os.path.realpath(ours) in runtimes
        assert [name for name in runtimes if not name.startswith(packages)] == []
    else:
        assert runtimes


@pytest.mark.parametrize(
    ("columns", "available", "expected"),
    [(0, 8, 1), (1, 8, 1), (65_535, 8, 1), (65_536, 8, 2), (478_410, 8, 8), (478_410, 2, 2), (10**9, 1, 1)],
)
def test_threads_are_as_many_as_the_columns_are_worth(monkeypatch, columns, available, expected):
    monkeypatch.setattr(native.torch, "get_num_threads", lambda: available)
    found = native.threads(columns)
    assert isinstance(found, ctypes.c_int64)
    assert found.value == expected


def test_training_without_a_compiler_is_the_same_training(request, native_code):
    """The whole method, on both bodies: five steps of Adam, whose first ones are as long as the rate."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(32, 3, generator=generator)
    y = x.sum(1)

    def train() -> bp.posteriors.Posterior:
        model, method = bp.Model(nn.Linear(3, 1), likelihood=bp.likelihoods.Gaussian(scale=0.5)), BayesByBackprop()
        bodies.append(explain(method, model).native)
        return bp.fit(model, (x, y), method, epochs=5, batch_size=32, seed=1)

    bodies: list[bool] = []
    with_native = train()
    request.getfixturevalue("without_compiler")
    plain = train()
    assert bodies == [True, False]
    for name in ("weight", "bias"):
        torch.testing.assert_close(plain.mean(name), with_native.mean(name), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(plain.std(name), with_native.std(name), rtol=1e-4, atol=1e-6)
