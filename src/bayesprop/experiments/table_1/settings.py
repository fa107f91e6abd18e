"""What is trained at each scale, and the candidates among which validation data choose."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bayesprop.experiments.experiment import Settings

__all__ = ["CANDIDATES", "LAPTOP", "PAPER", "SCALES", "SMOKE", "TableSettings"]

Candidates = Sequence[Mapping[str, Any]]


def _grid(**values: Sequence[Any]) -> list[dict[str, Any]]:
    """All combinations; a double underscore in a name is the dot of a sweep's key."""
    keys = [key.replace("__", ".") for key in values]
    return [dict(zip(keys, row, strict=True)) for row in itertools.product(*values.values())]


# For plain gradient descent a rate of 0.128 on the mean of a minibatch of 128 is the paper's 1e-3 on its sum.
# The KL in full is the ELBO; "tempered" multiplies it by less than one, so that data count for more than they are.
_MIXTURE = {"prior__pi": [0.5], "prior__scale1": [math.exp(-n) for n in (0, 1, 2)], "prior__scale2": [math.exp(-8)]}
_RATES = {"learning_rate": [1e-4, 3e-4, 1e-3]}
CANDIDATES: dict[str, list[dict[str, Any]]] = {
    "sgd": _grid(learning_rate=[0.03, 0.128, 0.3]),
    "dropout": _grid(learning_rate=[0.03, 0.128, 0.3]),
    "gaussian": _grid(prior__scale=[0.05, 0.1, 0.3], **_RATES, temperature=[0.1, 0.3]),
    # At a third of the epochs the smallest rate looks worse than it is, so these are compared at full length.
    "mixture": _grid(
        prior__pi=[0.5],
        prior__scale1=[math.exp(-1), math.exp(-2)],
        prior__scale2=[math.exp(-8)],
        learning_rate=[1e-4, 3e-4],
        temperature=[0.05, 0.1],
        schedule=["constant", "cosine"],
        kl_weights=["uniform"],
    ),
    "gaussian-full": _grid(prior__scale=[0.05, 0.1, 0.3, 1.0], **_RATES, temperature=[1.0]),
    "mixture-full": _grid(**_MIXTURE, **_RATES, temperature=[1.0]),
}


@dataclass(frozen=True)
class TableSettings(Settings):
    """Rows of the table, widths of its two hidden layers, and how long is trained.

    Candidates are trained for `choice_epochs` (points for `point_choice_epochs`) at the first width with `choice_seeds`
    seeds each, those of `long_choices` for all epochs with `long_choice_seeds`; the one with the lowest validation
    error is trained at every width. `full_widths` are those of the rows with the full KL.
    """

    widths: tuple[int, ...] = (400, 800, 1200)
    full_widths: tuple[int, ...] = (400, 1200)
    epochs: int = 600
    choice_epochs: int = 200
    point_choice_epochs: int = 60
    long_choices: tuple[str, ...] = ("mixture",)
    long_choice_seeds: int = 2
    initial_rho: float = -3.0
    choice_seeds: int = 1
    batch_size: int = 128
    draws: int = 100
    curve_every: int = 20
    pixels: str = "/126"
    dropout: tuple[float, ...] = (0.2, 0.5, 0.5)
    schedule: str = "cosine"
    point_schedule: str = "constant"
    train_rows: int | None = None
    held_out_rows: int | None = None
    candidates: Mapping[str, Candidates] = field(default_factory=lambda: CANDIDATES)


def _without_choice(learning_rate: float) -> dict[str, list[dict[str, Any]]]:
    """One candidate for each row, for trainings that are too short for what fits a long one."""
    found = {name: {**candidates[-1], "learning_rate": learning_rate} for name, candidates in CANDIDATES.items()}
    return {
        name: [one | ({"learning_rate": 0.128} if name in ("sgd", "dropout") else {})] for name, one in found.items()
    }


PAPER = TableSettings()
LAPTOP = TableSettings(
    seeds=3,
    widths=(100, 200),
    full_widths=(100,),
    epochs=10,
    choice_epochs=2,
    point_choice_epochs=2,
    long_choices=(),
    curve_every=1,
    point_schedule="cosine",
    candidates=_without_choice(3e-3),
)
SMOKE = TableSettings(
    seeds=2,
    widths=(20,),
    full_widths=(20,),
    epochs=6,
    choice_epochs=2,
    point_choice_epochs=2,
    long_choices=(),
    draws=8,
    curve_every=1,
    train_rows=1000,
    held_out_rows=300,
    candidates={name: [one, {**one, "learning_rate": 0.1}] for name, (one,) in _without_choice(1e-2).items()},
)
SCALES = {"smoke": SMOKE, "laptop": LAPTOP, "paper": PAPER}
