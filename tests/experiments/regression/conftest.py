"""One small run, which the tests of parts and page look at."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch

from bayesprop.experiments.experiment import Bench
from bayesprop.experiments.record import Record
from bayesprop.experiments.regression.parts import parts
from bayesprop.experiments.regression.settings import SMOKE

SMALL = dataclasses.replace(
    SMOKE, curve_steps=12, steps=12, chain_steps=200, hmc_samples=8, hmc_warm_up=12, places=23, draws=12
)


@pytest.fixture(scope="session")
def settings():
    return SMALL


@pytest.fixture(scope="session")
def record_of(tmp_path_factory) -> Callable[..., Record]:
    """The parts of these names, run."""
    folder = tmp_path_factory.mktemp("regression")
    done: dict[str, dict] = {}

    def make(*names: str) -> Record:
        for part in parts(SMALL):
            if part.name in names and part.name not in done:
                (folder / part.name).mkdir()
                done[part.name] = part.run(Bench(folder / part.name, torch.device("cpu"), {}, folder))
        made = {name: {"what": name, "seconds": 1.0, "result": done[name]} for name in names}
        return Record("regression", "smoke", dataclasses.asdict(SMALL), made, ())

    return make
