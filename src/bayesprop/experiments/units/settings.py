"""What is trained at each scale: the source's own settings, and candidates among which validation data choose."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bayesprop.experiments.experiment import Settings

__all__ = ["CANDIDATES", "LAPTOP", "PAPER", "SCALES", "SMOKE", "SOURCE", "UnitsSettings"]

# Source 004: plain gradient steps of 1e-3 on the sum over minibatches of 128, which is 0.128 on their mean.
SOURCE: dict[str, Any] = {"learning_rate": 0.128, "initial_rho": -3.0, "prior.scale": 1.0, "temperature": 1.0}
CANDIDATES: list[dict[str, Any]] = [
    {**SOURCE, "prior.scale": scale, "learning_rate": rate, "initial_rho": rho}
    for scale, rate, rho in itertools.product([0.05, 0.1, 0.3], [1e-3, 3e-3, 1e-2], [-3.0, -4.0])
]


@dataclass(frozen=True)
class UnitsSettings(Settings):
    """Widths of two hidden layers on each data set; `long_epochs` are those of one network of `long_width` units.

    Candidates are trained on each data set at `choice_width`, for `epochs` epochs with `choice_seeds` seeds each.
    """

    mnist_widths: tuple[int, ...] = (200, 400, 800, 1200)
    fashion_mnist_widths: tuple[int, ...] = (200, 400, 800, 1200)
    epochs: int = 10
    long_width: int = 400
    long_epochs: int = 228
    point_epochs: int = 100
    choice_width: int = 400
    choice_seeds: int = 2
    batch_size: int = 128
    pixels: str = "/126"
    draws: int = 100
    train_rows: int | None = None
    held_out_rows: int | None = None
    candidates: list[Mapping[str, Any]] = field(default_factory=lambda: list(CANDIDATES))


PAPER = UnitsSettings()
LAPTOP = UnitsSettings(
    seeds=2,
    mnist_widths=(200, 400),
    fashion_mnist_widths=(200,),
    epochs=5,
    long_epochs=10,
    point_epochs=10,
    choice_width=200,
    choice_seeds=1,
    candidates=[CANDIDATES[5], CANDIDATES[9]],
)
SMOKE = UnitsSettings(
    seeds=2,
    mnist_widths=(20, 40),
    fashion_mnist_widths=(20,),
    epochs=4,
    long_width=20,
    long_epochs=8,
    point_epochs=4,
    choice_width=20,
    choice_seeds=1,
    draws=8,
    train_rows=1000,
    held_out_rows=200,
    candidates=[CANDIDATES[5], CANDIDATES[9]],
)
SCALES = {"smoke": SMOKE, "laptop": LAPTOP, "paper": PAPER}
