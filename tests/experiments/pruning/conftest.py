"""One run of few rows and small networks, which the tests of parts and page look at."""

from __future__ import annotations

import dataclasses
import warnings

import pytest
import torch

from bayesprop.experiments.experiment import Bench
from bayesprop.experiments.pruning.parts import parts
from bayesprop.experiments.pruning.settings import SMOKE
from bayesprop.experiments.record import Record

SMALL = dataclasses.replace(
    SMOKE,
    networks={name: {**network, "width": 8, "epochs": 2} for name, network in SMOKE.networks.items()},
    shares=(0.0, 0.5, 0.98),
    train_rows=300,
    held_out_rows=100,
    grid_width=6,
    grid_epochs=2,
    grid_temperatures=(0.1,),
)


@pytest.fixture
def settings():
    return SMALL


@pytest.fixture(scope="session")
def kept() -> dict[str, Record]:
    """The run, once it was made."""
    return {}


@pytest.fixture
def record(data, kept, tmp_path) -> Record:
    """All parts, run."""
    if kept:
        return kept["record"]
    results = {}
    for part in parts(SMALL):
        folder = tmp_path / part.name
        folder.mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # two epochs are too few, as they say
            results[part.name] = part.run(Bench(folder, torch.device("cpu"), results, tmp_path))
    made = {name: {"what": name, "seconds": 1.0, "result": result} for name, result in results.items()}
    kept["record"] = Record("pruning", "smoke", dataclasses.asdict(SMALL), made, ())
    return kept["record"]
