"""Which trainings are timed, on which devices, for how many epochs."""

from __future__ import annotations

from dataclasses import dataclass

from bayesprop.experiments.experiment import Settings

__all__ = ["LAPTOP", "PAPER", "SCALES", "SMOKE", "CostSettings"]


@dataclass(frozen=True)
class CostSettings(Settings):
    """Each training has so many timed epochs on a device of that kind, and one before them for whatever is compiled and
    loaded once. On a GPU so many networks as `cuda_starts` says are trained at once, on a processor one. `seeds` is not
    used: a time has epochs in its place.
    """

    seeds: int = 1
    widths: tuple[int, ...] = (400, 1200)
    devices: tuple[str, ...] = ("cpu", "cuda")
    cuda_starts: tuple[int, ...] = (1, 5)
    cpu_epochs: int = 3
    cuda_epochs: int = 20
    batch_size: int = 128
    train_rows: int | None = None
    held_out_rows: int | None = None


PAPER = CostSettings()
LAPTOP = CostSettings(devices=("cpu",), widths=(400,), cpu_epochs=2)
SMOKE = CostSettings(devices=("cpu",), widths=(20,), cpu_epochs=2, train_rows=500, held_out_rows=100)
SCALES = {"smoke": SMOKE, "laptop": LAPTOP, "paper": PAPER}
