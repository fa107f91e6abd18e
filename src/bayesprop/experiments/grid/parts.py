"""Two parts: the sweep over all settings, and its winner with several seeds."""

from __future__ import annotations

import functools
import warnings
from typing import Any

from bayesprop import likelihoods, priors
from bayesprop.errors import BayespropWarning
from bayesprop.experiments import pictures, populations, rows
from bayesprop.experiments.experiment import Bench, Part, Unfinished
from bayesprop.experiments.grid.settings import GridSettings
from bayesprop.inference import BayesByBackprop
from bayesprop.model import Model
from bayesprop.training import sweep
from bayesprop.training.sweeping.grid import settings_of

__all__ = ["parts", "search", "winner"]


def parts(settings: GridSettings) -> list[Part]:
    """The sweep first."""
    count = len(settings_of(settings.grid))
    return [
        Part("sweep", f"{count} settings, {settings.epochs} epochs", functools.partial(search, settings)),
        Part("winner", f"the best setting, {settings.seeds} seeds", functools.partial(winner, settings), ("sweep",)),
    ]


def setup(settings: GridSettings) -> tuple[Model, pictures.Split, BayesByBackprop]:
    """Network, rows and method, before a setting's values are put in."""
    network = populations.dense(784, settings.width, settings.width, 10)
    model = Model(network, likelihood=likelihoods.Categorical(), prior=priors.ScaleMixture())
    split = pictures.load("mnist", settings.pixels, train=settings.train_rows, held_out=settings.held_out_rows)
    method = BayesByBackprop(optimizer=settings.optimizer, temperature=settings.temperature, kl_weights="uniform")
    return model, split, method


def grid(settings: GridSettings) -> dict[str, list[float]]:
    """The axes as a sweep takes them."""
    factor = settings.batch_size if settings.optimizer == "sgd" else 1
    return {key: [v * factor if key == "learning_rate" else v for v in row] for key, row in settings.grid.items()}


def search(settings: GridSettings, bench: Bench) -> dict[str, Any]:
    """Every setting with its scores and what became of it, best first."""
    model, split, method = setup(settings)
    split = split.to(bench.device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BayespropWarning)  # most settings of a grid are bad, and are dropped for it
        found = sweep(
            model,
            split.train,
            method,
            grid(settings),
            validation=split.validation,
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            rungs=(settings.rung,),
            keep=settings.keep,
            choose_by="error",
            device=bench.device,
            observers=[bench.watch],
            progress=bench.progress,
            checkpoint=bench.checkpoint,
            checkpoint_every=120.0,
            resume=True,
        )
    if found.interrupted:
        raise Unfinished(f"stopped after {found.seconds:.0f} s")
    settled = [
        {
            "values": row.values,
            "scores": [{"epoch": s.epoch, "error": s.error, "nll": s.nll} for s in row.scores],
            "steps": row.steps,
            "fate": row.fate,
        }
        for row in found.rows
    ]
    return {
        "rows": settled,
        "best": found.best_values,
        "engine": found.best.context.engine,
        "plan": found.plan,
        "training_seconds": found.seconds,
        "member_steps": sum(row.steps for row in found.rows),
        "steps_per_epoch": split.train.batches_per_epoch(settings.batch_size),
    }


def winner(settings: GridSettings, bench: Bench) -> dict[str, Any]:
    """The setting with the lowest validation error, from new starts, judged by the test rows."""
    model, split, method = setup(settings)
    return rows.measure(
        bench,
        model,
        split,
        method,
        seeds=settings.seeds,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        values=bench.results["sweep"]["best"],
        curve_every=max(1, settings.epochs // 30),
        draws=settings.draws,
    )
