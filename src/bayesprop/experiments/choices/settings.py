"""The base and its variants: each differs from the base in one choice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bayesprop.experiments.experiment import Settings

__all__ = ["BASE", "LAPTOP", "PAPER", "SCALES", "SMOKE", "VARIANTS", "ChoicesSettings", "Variant"]

# Source 000: plain gradient steps of 1e-3 on the sum over minibatches of 100, which is 0.1 on their mean.
BASE: dict[str, Any] = {
    "prior": "mixture",
    "prior.pi": 0.5,
    "prior.scale1": 1.0,
    "prior.scale2": math.exp(-6),
    "optimizer": "sgd",
    "learning_rate": 0.1,
    "schedule": "constant",
    "initial_rho": -3.0,
    "kl_weights": "uniform",
    "samples": 2,
    "temperature": 1.0,
    "pixels": "/126",
}
Variant = tuple[str, str, dict[str, Any]]  # the question, the answer in words, and what it changes

VARIANTS: dict[str, Variant] = {
    "base": ("the base", "as source 000", {}),
    "kl-geometric": ("how minibatches share the KL", "2^(M-i) / (2^M - 1)", {"kl_weights": "geometric"}),
    "kl-warmup": (
        "how minibatches share the KL",
        "equally, growing over half of the training",
        {"kl_weights": "warmup"},
    ),
    "gaussian": ("prior", "Gaussian of scale 1", {"prior": "gaussian", "prior.scale": 1.0}),
    "mixture-25": ("prior", "mixture, a quarter of it broad", {"prior.pi": 0.25}),
    "mixture-75": ("prior", "mixture, three quarters of it broad", {"prior.pi": 0.75}),
    "pixels-255": ("pixels", "divided by 255", {"pixels": "/255"}),
    "pixels-standardized": ("pixels", "mean 0 and deviation 1", {"pixels": "standardized"}),
    "samples-1": ("weight samples a step", "1 in place of 2", {"samples": 1}),
    "samples-5": ("weight samples a step", "5 in place of 2", {"samples": 5}),
    "samples-10": ("weight samples a step", "10 in place of 2", {"samples": 10}),
    "rho-2": ("initial rho", "-2 in place of -3", {"initial_rho": -2.0}),
    "rho-5": ("initial rho", "-5 in place of -3", {"initial_rho": -5.0}),
    "rho-8": ("initial rho", "-8 in place of -3", {"initial_rho": -8.0}),
    "tempered": ("weight of the KL", "0.1 in place of 1", {"temperature": 0.1}),
    "adam": (
        "optimiser",
        "Adam, 1e-3, falling to 0",
        {"optimizer": "adam", "learning_rate": 1e-3, "schedule": "cosine"},
    ),
}


@dataclass(frozen=True)
class ChoicesSettings(Settings):
    """One network of two hidden layers; `draws` predict, as many as in the source."""

    width: int = 400
    epochs: int = 600
    batch_size: int = 100
    draws: int = 10
    curve_every: int = 20
    variants: tuple[str, ...] = tuple(VARIANTS)
    train_rows: int | None = None
    held_out_rows: int | None = None
    base: Mapping[str, Any] = field(default_factory=lambda: dict(BASE))


PAPER = ChoicesSettings()
LAPTOP = ChoicesSettings(
    seeds=3,
    width=100,
    epochs=6,
    curve_every=1,
    variants=tuple(name for name in VARIANTS if name not in ("samples-10", "rho-8", "mixture-75")),
)
SMOKE = ChoicesSettings(
    seeds=2,
    width=20,
    epochs=5,
    curve_every=1,
    variants=("base", "kl-geometric", "gaussian", "pixels-255", "samples-1", "rho-5"),
    train_rows=1000,
    held_out_rows=200,
)
SCALES = {"smoke": SMOKE, "laptop": LAPTOP, "paper": PAPER}
