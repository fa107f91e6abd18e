"""A data folder with real handwritten digits in the files of MNIST, and an experiment that takes no time."""

from __future__ import annotations

import gzip
import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from bayesprop.data import images
from bayesprop.experiments.experiment import Bench, Experiment, Part, Settings, Unfinished
from bayesprop.report import Section

TEST_ROWS = 597


def idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return gzip.compress(head + array.tobytes(), 1)


@pytest.fixture(scope="session")
def digit_files(tmp_path_factory) -> Path:
    """scikit-learn's 1,797 digits, 8 x 8 pixels drawn as 28 x 28, under the names of MNIST and of Fashion-MNIST."""
    from sklearn.datasets import load_digits

    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    small = np.round(found.images[order] * (255.0 / 16.0)).astype(np.uint8)
    large = np.pad(np.kron(small, np.ones((1, 3, 3), np.uint8)), ((0, 0), (2, 2), (2, 2)))
    labels = found.target[order].astype(np.uint8)
    folder = tmp_path_factory.mktemp("data")
    parts = (large[TEST_ROWS:], labels[TEST_ROWS:], large[:TEST_ROWS], labels[:TEST_ROWS])
    for name in ("mnist", "fashion_mnist"):
        (folder / name).mkdir()
        for file, array in zip(images._FILES, parts, strict=True):
            (folder / name / file).write_bytes(idx(array))
    return folder


@pytest.fixture
def data(digit_files, monkeypatch) -> Path:
    """That folder as the data folder; its files are those whose checksums are asked for."""
    for name, constant in (("mnist", "_MNIST_SHA256"), ("fashion_mnist", "_FASHION_SHA256")):
        sums = [hashlib.sha256((digit_files / name / file).read_bytes()).hexdigest() for file in images._FILES]
        monkeypatch.setattr(images, constant, tuple(sums))
    monkeypatch.setenv("BAYESPROP_DATA", str(digit_files))
    return digit_files


@dataclass(frozen=True)
class Numbers(Settings):
    """Of the experiment below."""

    numbers: tuple[int, ...] = (1, 2, 3)


@pytest.fixture
def experiment() -> Callable[..., Experiment]:
    """Parts "square-1" to "square-3" and their "sum". `calls` lists what was run, `fails` what is Unfinished once."""

    def make(calls: list[str] | None = None, fails: set[str] | None = None) -> Experiment:
        calls, fails = [] if calls is None else calls, set() if fails is None else fails

        def took(name: str, bench: Bench) -> None:
            calls.append(name)
            (bench.folder / "training.checkpoint").touch()
            if name in fails:
                fails.remove(name)
                raise Unfinished("stopped by a test")

        def square(number: int, seeds: int) -> Callable[[Bench], dict]:
            def run(bench: Bench) -> dict:
                took(f"square-{number}", bench)
                return {"squares": [number**2] * seeds}

            return run

        def total(bench: Bench) -> dict:
            took("sum", bench)
            return {"sum": sum(result["squares"][0] for result in bench.results.values())}

        def parts(settings: Numbers) -> list[Part]:
            squares = [Part(f"square-{n}", f"{n} squared", square(n, settings.seeds)) for n in settings.numbers]
            return [*squares, Part("sum", "their sum", total, tuple(part.name for part in squares))]

        return Experiment(
            name="squares",
            title="Squares",
            shows="What squares are.",
            sources=("Euclid",),
            cost={"smoke": "nothing", "paper": "nothing"},
            scales={"smoke": Numbers(seeds=2), "paper": Numbers(seeds=5, numbers=(1, 2, 3, 4))},
            parts=parts,
            page=lambda record: [Section("Squares", [], f"{len(record.parts)} parts")],
        )

    return make


@pytest.fixture
def console() -> Console:
    """One that writes into `console.file`."""
    return Console(file=io.StringIO(), width=300, highlight=False)


@pytest.fixture(scope="session")
def root() -> Path:
    """Of the repository."""
    return Path(__file__).resolve().parents[2]
