"""The parts: the source's settings, a choice for each data set, the chosen one, 228 epochs, and networks of points."""

from __future__ import annotations

import functools
from typing import Any

from bayesprop import likelihoods, priors
from bayesprop.experiments import pictures, populations, rows
from bayesprop.experiments.experiment import Bench, Part
from bayesprop.experiments.units.settings import SOURCE, UnitsSettings
from bayesprop.inference import MLE, BayesByBackprop, Constant
from bayesprop.inference.method import Method
from bayesprop.model import Model

__all__ = ["DATA", "model", "parts", "widths"]

DATA = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
POINTS = {"sgd": "Adam, no regularisation", "dropout": "Adam, dropout 0.5"}


def parts(settings: UnitsSettings) -> list[Part]:
    """In the order of the table."""
    found = []
    for data, title in DATA.items():
        key = data.replace("_", "-")
        run: Any = functools.partial(choose, settings, data)
        found.append(Part(f"choose-{key}", f"{title}: {len(settings.candidates)} candidates", run))
        for width in widths(settings, data):
            for kind in ("source", "chosen"):
                run = functools.partial(row, settings, data, width, kind, settings.epochs)
                needs = (f"choose-{key}",) if kind == "chosen" else ()
                found.append(Part(f"{kind}-{key}-{width}", f"{title}, {width} units, {kind} settings", run, needs))
    width, epochs = settings.long_width, settings.long_epochs
    for kind, needs in (("source", ()), ("chosen", ("choose-mnist",))):
        run = functools.partial(row, settings, "mnist", width, kind, epochs)
        found.append(Part(f"{kind}-long", f"MNIST, {width} units, {epochs} epochs, {kind} settings", run, needs))
    for kind, title in POINTS.items():
        run = functools.partial(point, settings, kind)
        found.append(Part(kind, f"MNIST, {width} units, {title}", run))
    return found


def widths(settings: UnitsSettings, data: str) -> tuple[int, ...]:
    """Of one data set."""
    return settings.mnist_widths if data == "mnist" else settings.fashion_mnist_widths


def model(width: int, dropout: tuple[float, ...] = ()) -> Model:
    """Two hidden layers of a width, with a Gaussian prior."""
    network = populations.dense(784, width, width, 10, dropout=dropout)
    return Model(network, likelihood=likelihoods.Categorical(), prior=priors.Normal())


def load(settings: UnitsSettings, data: str) -> pictures.Split:
    """The rows of a data set."""
    return pictures.load(data, settings.pixels, train=settings.train_rows, held_out=settings.held_out_rows)


def bayes(kind: str) -> Method:
    """As in the source: plain steps of a constant size, means from N(0, 0.1); or as this library trains."""
    if kind == "source":
        return BayesByBackprop(
            optimizer="sgd", schedule=Constant(), kl_weights="uniform", initial_mean=0.1, initial_rho=-3.0
        )
    return BayesByBackprop(initial_rho=-3.0)


def choose(settings: UnitsSettings, data: str, bench: Bench) -> dict[str, Any]:
    """Among the candidates, for one data set."""
    return rows.choose(
        bench,
        model(settings.choice_width),
        load(settings, data),
        bayes("chosen"),
        [dict(one) for one in settings.candidates],
        seeds=settings.choice_seeds,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
    )


def row(settings: UnitsSettings, data: str, width: int, kind: str, epochs: int, bench: Bench) -> dict[str, Any]:
    """Bayes by Backprop at one width."""
    key = f"choose-{data.replace('_', '-')}"
    values = SOURCE if kind == "source" else bench.results[key]["chosen"]
    return _measure(settings, bench, model(width), load(settings, data), bayes(kind), epochs, values)


def point(settings: UnitsSettings, kind: str, bench: Bench) -> dict[str, Any]:
    """Adam with a rate of 1e-3, as in the source's Keras cells."""
    made = model(settings.long_width, (0.0, 0.5, 0.5) if kind == "dropout" else ())
    method = MLE(learning_rate=1e-3, schedule=Constant())
    return _measure(settings, bench, made, load(settings, "mnist"), method, settings.point_epochs, {})


def _measure(
    settings: UnitsSettings, bench: Bench, made: Model, split: pictures.Split, method: Method, epochs: int, values: Any
) -> dict[str, Any]:
    return rows.measure(
        bench,
        made,
        split,
        method,
        seeds=settings.seeds,
        epochs=epochs,
        batch_size=settings.batch_size,
        values=values,
        curve_every=max(1, epochs // 20),
        draws=settings.draws,
    )
