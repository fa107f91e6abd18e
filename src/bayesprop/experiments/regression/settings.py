"""Curves, rows and how long is trained."""

from __future__ import annotations

from dataclasses import dataclass

from bayesprop.experiments.experiment import Settings

__all__ = ["LAPTOP", "PAPER", "SCALES", "SMOKE", "RegressionSettings"]


@dataclass(frozen=True)
class RegressionSettings(Settings):
    """`steps` are those of each training but the samplers', which take `chain_steps`; minibatches have 200 rows.

    The paper's figure does not say how many rows or units it has; source 001 has 1000 rows. The network of the gap has
    one hidden layer with tanh, so that HMC's chains agree.
    """

    seeds: int = 1
    curve_rows: int = 200
    source_rows: int = 1000
    curve_width: int = 100
    curve_steps: int = 4000
    gap_rows: int = 100
    gap_width: int = 50
    steps: int = 4000
    chain_steps: int = 20_000
    hmc_samples: int = 500
    hmc_warm_up: int = 500
    hmc_chains: int = 8
    draws: int = 400
    places: int = 81


PAPER = RegressionSettings()
LAPTOP = RegressionSettings(
    curve_steps=2000, steps=2000, chain_steps=6000, hmc_samples=100, hmc_warm_up=150, hmc_chains=4, draws=200
)
SMOKE = RegressionSettings(
    curve_rows=60,
    source_rows=100,
    curve_width=10,
    curve_steps=40,
    gap_rows=40,
    gap_width=8,
    steps=60,
    chain_steps=120,
    hmc_samples=20,
    hmc_warm_up=30,
    hmc_chains=2,
    draws=20,
    places=23,
)
SCALES = {"smoke": SMOKE, "laptop": LAPTOP, "paper": PAPER}
