"""The grid of Blundell et al. (2015), section 5.1, and smaller ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bayesprop.experiments.experiment import Settings

__all__ = ["GRID", "LAPTOP", "PAPER", "SCALES", "SMOKE", "GridSettings"]

GRID: dict[str, list[float]] = {
    "samples": [1, 2, 5, 10],
    "prior.pi": [0.25, 0.5, 0.75],
    "prior.scale1": [math.exp(-n) for n in (0, 1, 2)],
    "prior.scale2": [math.exp(-n) for n in (6, 7, 8)],
    "learning_rate": [1e-3, 1e-4, 1e-5],
}


@dataclass(frozen=True)
class GridSettings(Settings):
    """All settings are trained for the share `rung` of the epochs, the best `keep` of them to the end.

    The winner is trained again with `seeds` seeds. `optimizer` is "adam" or "sgd"; for "sgd" the rates are those of a
    sum over a minibatch, as in the paper, and so `batch_size` times larger on its mean.
    """

    width: int = 400
    epochs: int = 600
    batch_size: int = 128
    optimizer: str = "adam"
    temperature: float = 1.0
    rung: float = 1 / 6
    keep: float = 0.1
    draws: int = 100
    pixels: str = "/126"
    train_rows: int | None = None
    held_out_rows: int | None = None
    grid: Mapping[str, Sequence[float]] = field(default_factory=lambda: GRID)


PAPER = GridSettings()
LAPTOP = GridSettings(
    seeds=2,
    width=50,
    epochs=6,
    rung=1 / 3,
    grid={**GRID, "samples": [1, 2], "prior.pi": [0.25, 0.75], "learning_rate": [1e-2, 1e-3]},
)
SMOKE = GridSettings(
    seeds=2,
    width=20,
    epochs=6,
    rung=0.5,
    keep=0.25,
    draws=8,
    train_rows=1000,
    held_out_rows=200,
    grid={
        "samples": [1, 2],
        "prior.pi": [0.5],
        "prior.scale1": [1.0],
        "prior.scale2": GRID["prior.scale2"][::2],
        "learning_rate": [1e-2, 1e-3],
    },
)
SCALES = {"smoke": SMOKE, "laptop": LAPTOP, "paper": PAPER}
