"""Which networks are trained and pruned at each scale."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bayesprop.decisions.pruning_curve import SHARES
from bayesprop.experiments.experiment import Settings

__all__ = ["LAPTOP", "PAPER", "SCALES", "SMOKE", "PruningSettings"]

_TEMPERED = {
    "prior": "mixture",
    "prior.pi": 0.5,
    "prior.scale1": math.exp(-2),
    "prior.scale2": math.exp(-8),
    "initial_rho": -3.0,
    "temperature": 0.1,
    "learning_rate": 1e-4,
}
# Source 000: plain gradient steps of 1e-3 on the sum over minibatches of 100, so 0.1 on their mean; 2 draws a step.
_SOURCE = {
    "prior": "mixture",
    "prior.pi": 0.5,
    "prior.scale1": 1.0,
    "prior.scale2": math.exp(-6),
    "initial_rho": -3.0,
    "temperature": 1.0,
    "learning_rate": 0.1,
    "optimizer": "sgd",
    "schedule": "constant",
    "kl_weights": "uniform",
    "samples": 2,
    "batch_size": 100,
}


@dataclass(frozen=True)
class PruningSettings(Settings):
    """`networks` are rows of their own, each with all seeds: width, epochs, prior and method.

    `grid` is the question of which order wins when: every prior with every start of the means, of rho, and every
    temperature, with `grid_seeds` seeds, at `grid_width` units for `grid_epochs` epochs.
    """

    networks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    shares: tuple[float, ...] = SHARES
    batch_size: int = 128
    draws: int = 20
    pixels: str = "/126"
    train_rows: int | None = None
    held_out_rows: int | None = None
    grid_width: int = 400
    grid_epochs: int = 300
    grid_seeds: int = 3
    grid_rate: float = 3e-4
    grid_rho: tuple[float, ...] = (-3.0, -6.0)
    grid_temperatures: tuple[float, ...] = (0.1, 1.0)
    grid_priors: Mapping[str, tuple[Mapping[str, float], ...]] = field(
        default_factory=lambda: {
            "mixture": (
                {"prior.pi": 0.5, "prior.scale1": math.exp(-2), "prior.scale2": math.exp(-8)},
                {"prior.pi": 0.5, "prior.scale1": 1.0, "prior.scale2": math.exp(-6)},
            ),
            "gaussian": ({"prior.scale": 1.0}, {"prior.scale": 0.1}),
        }
    )
    grid_starts: Mapping[str, Any] = field(
        default_factory=lambda: {"fan-in": "fan_in", "narrow": (-0.03, 0.03), "wide": (-0.2, 0.2)}
    )


def _networks(width: int, source_width: int, epochs: int, rate: float) -> dict[str, dict[str, Any]]:
    """The paper's network with less than the full KL, trained to the end and a sixth of it; the same with the full KL;
    and source 000's."""
    tempered = {**_TEMPERED, "learning_rate": rate, "width": width, "epochs": epochs}
    return {
        "paper": tempered,
        "short": {**tempered, "epochs": max(1, epochs // 6)},
        "full": {**tempered, "temperature": 1.0},
        "source": {**_SOURCE, "width": source_width, "epochs": epochs},
    }


PAPER = PruningSettings(networks=_networks(1200, 400, 600, 1e-4))
LAPTOP = PruningSettings(
    seeds=2,
    networks=_networks(200, 100, 10, 3e-3),
    draws=10,
    grid_width=100,
    grid_epochs=5,
    grid_seeds=1,
    grid_rate=3e-3,
    grid_starts={"fan-in": "fan_in", "wide": (-0.2, 0.2)},
)
SMOKE = PruningSettings(
    seeds=2,
    networks=_networks(20, 20, 12, 1e-2),
    shares=(0.0, 0.5, 0.95, 0.98),
    draws=4,
    train_rows=1000,
    held_out_rows=300,
    grid_width=16,
    grid_epochs=6,
    grid_seeds=1,
    grid_rate=1e-2,
    grid_temperatures=(0.1,),
    grid_starts={"fan-in": "fan_in"},
)
SCALES = {"smoke": SMOKE, "laptop": LAPTOP, "paper": PAPER}
