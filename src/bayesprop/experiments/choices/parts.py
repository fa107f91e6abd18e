"""The parts: one for each variant, all its seeds as one population."""

from __future__ import annotations

import functools
from typing import Any

from bayesprop import likelihoods, priors
from bayesprop.experiments import pictures, populations, rows
from bayesprop.experiments.choices.settings import VARIANTS, ChoicesSettings
from bayesprop.experiments.experiment import Bench, Part
from bayesprop.inference import BayesByBackprop
from bayesprop.model import Model

__all__ = ["parts", "values_of", "variant"]

PRIORS = {"mixture": priors.ScaleMixture(), "gaussian": priors.Normal()}


def parts(settings: ChoicesSettings) -> list[Part]:
    """In the order of the table."""
    return [
        Part(name, f"{VARIANTS[name][0]}: {VARIANTS[name][1]}", functools.partial(variant, settings, name))
        for name in settings.variants
    ]


def values_of(settings: ChoicesSettings, name: str) -> dict[str, Any]:
    """All choices of a variant: the base with its own in their place. A Gaussian has none of a mixture's numbers."""
    changes = VARIANTS[name][2]
    kept = {
        key: value for key, value in settings.base.items() if "prior" not in changes or not key.startswith("prior.")
    }
    return kept | changes


def variant(settings: ChoicesSettings, name: str, bench: Bench) -> dict[str, Any]:
    """One variant with all seeds."""
    values = values_of(settings, name)
    prior, pixels = PRIORS[values.pop("prior")], values.pop("pixels")
    network = populations.dense(784, settings.width, settings.width, 10)
    found = rows.measure(
        bench,
        Model(network, likelihood=likelihoods.Categorical(), prior=prior),
        pictures.load("mnist", pixels, train=settings.train_rows, held_out=settings.held_out_rows),
        BayesByBackprop(initial_rho=-3.0),
        seeds=settings.seeds,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        values=values,
        curve_every=settings.curve_every,
        draws=settings.draws,
    )
    return {**found, "pixels": pixels}
