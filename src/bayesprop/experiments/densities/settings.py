"""Which networks are trained, and after which epochs their weights are looked at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bayesprop.experiments.experiment import Settings

__all__ = ["LAPTOP", "PAPER", "SCALES", "SMOKE", "DensitySettings"]

_MIXTURE = {"prior.pi": 0.5, "prior.scale1": math.exp(-2), "prior.scale2": math.exp(-8)}
_WIDE = {"prior.pi": 0.5, "prior.scale1": 1.0, "prior.scale2": math.exp(-6)}
# Source 000: plain gradient steps of 1e-3 on the sum over minibatches of 100, so 0.1 on their mean; 2 draws a step.
_PLAIN = {"optimizer": "sgd", "schedule": "constant", "kl_weights": "uniform", "samples": 2, "batch_size": 100}


@dataclass(frozen=True)
class DensitySettings(Settings):
    """`networks` by name: kind ("sgd", "dropout" or the prior "mixture" or "gaussian"), width and method.

    One seed each: a density of two million weights hardly depends on it. `looks` are epochs.
    """

    seeds: int = 1
    networks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    epochs: int = 600
    looks: tuple[int, ...] = (1, 3, 10, 30, 50, 100, 300, 600)
    batch_size: int = 128
    pixels: str = "/126"
    reach: float = 0.4  # of the histograms; what lies beyond is counted at the ends
    bins: int = 200
    train_rows: int | None = None
    held_out_rows: int | None = None


def _networks(width: int, small: int, rate: float) -> dict[str, dict[str, Any]]:
    """Figure 3's networks, then the two of source 000's figure 1."""
    bayesian = {"width": width, "learning_rate": rate, "temperature": 0.1, "initial_rho": -3.0}
    source = {"width": small, "learning_rate": 0.1, "temperature": 1.0, "initial_rho": -3.0, **_PLAIN}
    return {
        "sgd": {"kind": "sgd", "width": width, "learning_rate": 0.128},
        "dropout": {"kind": "dropout", "width": width, "learning_rate": 0.128, "rates": (0.2, 0.5, 0.5)},
        "mixture": {"kind": "mixture", **bayesian, **_MIXTURE},
        "gaussian": {"kind": "gaussian", **bayesian, "prior.scale": 0.1},
        "source-mixture": {"kind": "mixture", **source, **_WIDE},
        "source-gaussian": {"kind": "gaussian", **source, "prior.scale": 1.0},
    }


PAPER = DensitySettings(networks=_networks(1200, 400, 1e-4))
LAPTOP = DensitySettings(networks=_networks(200, 100, 3e-3), epochs=15, looks=(1, 2, 4, 8, 15))
SMOKE = DensitySettings(networks=_networks(20, 16, 1e-2), epochs=8, looks=(1, 4, 8), train_rows=1000, held_out_rows=300)
SCALES = {"smoke": SMOKE, "laptop": LAPTOP, "paper": PAPER}
