"""One part for each network: trained once, its weights looked at on the way."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesprop import likelihoods, priors
from bayesprop.errors import BayespropWarning
from bayesprop.experiments import pictures, populations
from bayesprop.experiments.densities.settings import DensitySettings
from bayesprop.experiments.experiment import Bench, Part, Unfinished
from bayesprop.experiments.record import read_json, write_json
from bayesprop.inference import MLE, BayesByBackprop
from bayesprop.inference.method import Method
from bayesprop.model import Model
from bayesprop.posteriors import Posterior
from bayesprop.random_weights import SharedWeights
from bayesprop.training import fit
from bayesprop.training.observers import Event

__all__ = ["TITLES", "Looks", "parts", "setup", "weights"]

TITLES = {
    "sgd": "SGD",
    "dropout": "SGD, dropout",
    "mixture": "Bayes by Backprop, scale mixture",
    "gaussian": "Bayes by Backprop, Gaussian",
    "source-mixture": "source 000, scale mixture",
    "source-gaussian": "source 000, Gaussian",
}
POINTS = ("sgd", "dropout")


def parts(settings: DensitySettings) -> list[Part]:
    """In the order of the settings."""
    return [
        Part(
            name,
            f"{TITLES[name]}: {network['width']} units, {settings.epochs} epochs",
            functools.partial(densities, settings, name),
        )
        for name, network in settings.networks.items()
    ]


def setup(network: Mapping[str, Any]) -> tuple[Model, Method[Any]]:
    """Model and method of one row of the settings."""
    kind, width = network["kind"], network["width"]
    made = populations.dense(784, width, width, 10, dropout=network.get("rates", ()))
    numbers = {key.removeprefix("prior."): value for key, value in network.items() if key.startswith("prior.")}
    prior = priors.ScaleMixture(**numbers) if kind == "mixture" else priors.Normal(**numbers)
    model = Model(made, likelihood=likelihoods.Categorical(), prior=prior)
    schedule = populations.SCHEDULES[network.get("schedule", "constant" if kind in POINTS else "cosine")]
    if kind in POINTS:
        return model, MLE(network["learning_rate"], optimizer="sgd", schedule=schedule)
    return model, BayesByBackprop(
        learning_rate=network["learning_rate"],
        optimizer=network.get("optimizer", "adam"),
        estimator=SharedWeights(network.get("samples", 1)),
        kl_weights=network.get("kl_weights", "warmup"),
        temperature=network["temperature"],
        initial_rho=network["initial_rho"],
        schedule=schedule,
    )


def densities(settings: DensitySettings, name: str, bench: Bench) -> dict[str, Any]:
    """Histograms of the means and of one draw after each of the epochs, and the test error in the end."""
    network = settings.networks[name]
    model, method = setup(network)
    split = pictures.load("mnist", settings.pixels, train=settings.train_rows, held_out=settings.held_out_rows)
    split = split.to(bench.device)
    looks = Looks(bench.folder / "looks.json", settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BayespropWarning)  # that a fit is short is what these curves are about
        posterior = fit(
            model.to(bench.device),
            split.train,
            method,
            epochs=settings.epochs,
            batch_size=network.get("batch_size", settings.batch_size),
            observers=[bench.watch, looks],
            progress=bench.progress,
            checkpoint=bench.checkpoint,
            resume=True,
        )
    if looks.last < settings.epochs:
        raise Unfinished(f"stopped in epoch {looks.last + 1} of {settings.epochs}")
    draws = 1 if network["kind"] in POINTS else 20
    test = populations.judge([posterior], split.test, draws=draws)
    return {
        "title": TITLES[name],
        "weights": model.layout.random,
        "edges": looks.edges.tolist(),
        "looks": [looks.found[epoch] for epoch in sorted(looks.found, key=int)],
        "test_error": test["error"][0],
    }


class Looks:
    """An observer that makes histograms after some epochs and keeps them in a file, as long as the training lasts.

    `last` is the number of epochs that are over.
    """

    def __init__(self, path: Path, settings: DensitySettings) -> None:
        self.path, self.settings = path, settings
        self.edges = np.linspace(-settings.reach, settings.reach, settings.bins + 1)
        kept = read_json(path) if path.exists() else {}
        self.found: dict[str, dict[str, Any]] = kept.get("found", {})
        self.last: int = kept.get("last", 0)

    def __call__(self, event: Event) -> None:
        if event.kind != "epoch":
            return
        self.last = event.epoch + 1
        if self.last not in self.settings.looks and self.last != self.settings.epochs:
            return
        assert event.posterior is not None
        posterior = event.posterior()
        seen: dict[str, Any] = {"epoch": self.last}
        for what, values in weights(posterior).items():
            inside = np.clip(values, self.edges[0], np.nextafter(self.edges[-1], 0.0))
            seen[what] = np.histogram(inside, self.edges)[0].tolist()
            seen[f"{what}_deviation"] = float(values.std())
        self.found[str(self.last)] = seen
        write_json(self.path, {"found": self.found, "last": self.last})


@torch.no_grad()
def weights(posterior: Posterior) -> dict[str, np.ndarray]:
    """The entries of all weight matrices: their means and, where they have a spread, one draw."""
    names = [block.name for block in posterior.model.layout.of_kind("random") if len(block.shape) > 1]

    def flat(named: Mapping[str, Tensor]) -> np.ndarray:
        return torch.cat([named[name].double().reshape(-1) for name in names]).cpu().numpy()

    found = {"means": flat({name: posterior.mean(name) for name in names})}
    if posterior.distinct is None:
        found["draw"] = flat(posterior.sample(1))
    return found
