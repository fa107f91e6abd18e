"""The parts: a choice for each row, then the row at each width with all its seeds as one population."""

from __future__ import annotations

import functools
from typing import Any

from bayesprop import likelihoods, priors
from bayesprop.experiments import pictures, populations, rows
from bayesprop.experiments.experiment import Bench, Part
from bayesprop.experiments.table_1.settings import TableSettings
from bayesprop.inference import MLE, BayesByBackprop
from bayesprop.inference.method import Method
from bayesprop.model import Model

__all__ = ["ROWS", "choice_epochs", "parts", "setup"]

ROWS = {
    "sgd": "SGD",
    "dropout": "SGD, dropout",
    "gaussian": "Bayes by Backprop, Gaussian prior, tempered",
    "mixture": "Bayes by Backprop, scale mixture prior, tempered",
    "gaussian-full": "Bayes by Backprop, Gaussian prior, full KL",
    "mixture-full": "Bayes by Backprop, scale mixture prior, full KL",
}
POINTS = ("sgd", "dropout")


def parts(settings: TableSettings) -> list[Part]:
    """Choices first, then widths from the smallest; the rows with the full KL come last."""
    found = [
        Part(
            f"choose-{row}",
            f"{title}: {len(settings.candidates[row])} candidates",
            functools.partial(choose, settings, row),
        )
        for row, title in ROWS.items()
    ]
    full = [row for row in ROWS if row.endswith("-full")]
    cells = [(row, width) for width in settings.widths for row in ROWS if row not in full]
    cells += [(row, width) for width in settings.full_widths for row in full]
    for row, width in cells:
        run = functools.partial(cell, settings, row, width)
        found.append(
            Part(f"{row}-{width}", f"{ROWS[row]}, {width} units, {settings.seeds} seeds", run, (f"choose-{row}",))
        )
    return found


def setup(settings: TableSettings, row: str, width: int) -> tuple[Model, Method]:
    """Network, prior and method of a row, before a candidate's values are put in."""
    rates = settings.dropout if row == "dropout" else ()
    network = populations.dense(784, width, width, 10, dropout=rates)
    prior = priors.ScaleMixture() if row.startswith("mixture") else priors.Normal()
    model = Model(network, likelihood=likelihoods.Categorical(), prior=prior)
    if row in POINTS:
        return model, MLE(optimizer="sgd", schedule=populations.SCHEDULES[settings.point_schedule])
    return model, BayesByBackprop(initial_rho=settings.initial_rho, schedule=populations.SCHEDULES[settings.schedule])


def load(settings: TableSettings) -> pictures.Split:
    """The rows of MNIST."""
    return pictures.load("mnist", settings.pixels, train=settings.train_rows, held_out=settings.held_out_rows)


def choose(settings: TableSettings, row: str, bench: Bench) -> dict[str, Any]:
    """The candidate with the lowest validation error at the first width."""
    model, method = setup(settings, row, settings.widths[0])
    return rows.choose(
        bench,
        model,
        load(settings),
        method,
        [dict(one) for one in settings.candidates[row]],
        seeds=settings.long_choice_seeds if row in settings.long_choices else settings.choice_seeds,
        epochs=choice_epochs(settings, row),
        batch_size=settings.batch_size,
    )


def choice_epochs(settings: TableSettings, row: str) -> int:
    """How long the candidates of a row are trained."""
    if row in settings.long_choices:
        return settings.epochs
    return settings.point_choice_epochs if row in POINTS else settings.choice_epochs


def cell(settings: TableSettings, row: str, width: int, bench: Bench) -> dict[str, Any]:
    """One cell of the table: the chosen candidate with all seeds."""
    model, method = setup(settings, row, width)
    return rows.measure(
        bench,
        model,
        load(settings),
        method,
        seeds=settings.seeds,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        values=bench.results[f"choose-{row}"]["chosen"],
        curve_every=settings.curve_every,
        draws=settings.draws,
    )
