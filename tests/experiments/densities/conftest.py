"""One run of few rows and small networks, which the tests of parts and page look at."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from bayesprop.experiments.densities.parts import parts
from bayesprop.experiments.densities.settings import SMOKE
from bayesprop.experiments.experiment import Bench
from bayesprop.experiments.record import Record

SMALL = dataclasses.replace(
    SMOKE,
    networks={name: {**network, "width": 6} for name, network in SMOKE.networks.items()},
    epochs=3,
    looks=(1, 3),
    bins=40,
    train_rows=300,
    held_out_rows=100,
)


@pytest.fixture
def settings():
    return SMALL


@pytest.fixture
def bench(tmp_path):
    def make(name: str) -> Bench:
        (tmp_path / name).mkdir(exist_ok=True)
        return Bench(tmp_path / name, torch.device("cpu"), {}, tmp_path)

    return make


@pytest.fixture(scope="session")
def kept() -> dict[str, Record]:
    """The run, once it was made."""
    return {}


@pytest.fixture
def record(data, kept, bench) -> Record:
    """All parts, run."""
    if kept:
        return kept["record"]
    results = {part.name: part.run(bench(part.name)) for part in parts(SMALL)}
    made = {name: {"what": name, "seconds": 1.0, "result": result} for name, result in results.items()}
    kept["record"] = Record("densities", "smoke", dataclasses.asdict(SMALL), made, ())
    return kept["record"]
