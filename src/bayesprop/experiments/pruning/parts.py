"""The parts: networks that are trained and pruned, then the grid of priors and starts."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesprop import likelihoods, priors
from bayesprop.data import Data
from bayesprop.decisions import prune, pruning_curve
from bayesprop.diagnostics import decibels, signal_to_noise
from bayesprop.experiments import pictures, populations
from bayesprop.experiments.experiment import Bench, Part
from bayesprop.experiments.pruning.settings import PruningSettings
from bayesprop.inference import BayesByBackprop
from bayesprop.model import Model
from bayesprop.posteriors import Posterior
from bayesprop.random_weights import SharedWeights

__all__ = ["ORDERS", "TITLES", "parts", "setup"]

TITLES = {
    "paper": "the paper's network, tempered",
    "short": "the paper's network, tempered, a sixth of the epochs",
    "full": "the paper's network, full KL",
    "source": "source 000's network",
}
ORDERS = ("signal_to_noise", "magnitude")
CUTS = (0.25, 0.5, 0.75, 0.95)  # those that source 000 draws
DECIBELS = (-60.0, 60.0, 120)  # of the histogram: ends and bins
NUMBERS = ("learning_rate", "temperature", "initial_rho")  # that members of a population may have of their own


def parts(settings: PruningSettings) -> list[Part]:
    """Networks first, in the order of the settings; then the grid, one part for each prior and start of the means."""
    found = []
    for name, network in settings.networks.items():
        what = f"{TITLES[name]}: {network['width']} units, {network['epochs']} epochs, {settings.seeds} seeds"
        found.append(Part(name, what, functools.partial(trained_network, settings, name)))
    for prior, start in itertools.product(settings.grid_priors, settings.grid_starts):
        members = len(grid_members(settings, prior))
        what = f"{prior} prior, means that start {start}: {members} networks of {settings.grid_width} units"
        found.append(Part(f"grid-{prior}-{start}", what, functools.partial(grid, settings, prior, start)))
    return found


def setup(width: int, chosen: Mapping[str, Any]) -> tuple[Model, BayesByBackprop, dict[str, Any]]:
    """Model, method, and the numbers that a member of a sweep takes from a row of the settings."""
    kinds = {"mixture": priors.ScaleMixture, "gaussian": priors.Normal}
    prior = kinds[chosen["prior"]]()
    model = Model(populations.dense(784, width, width, 10), likelihood=likelihoods.Categorical(), prior=prior)
    start = chosen.get("initial_mean", "fan_in")
    method = BayesByBackprop(
        optimizer=chosen.get("optimizer", "adam"),
        schedule=populations.SCHEDULES[chosen.get("schedule", "cosine")],
        kl_weights=chosen.get("kl_weights", "warmup"),
        estimator=SharedWeights(chosen.get("samples", 1)),
        initial_mean=start if isinstance(start, str) else (float(start[0]), float(start[1])),
        initial_rho=float(chosen["initial_rho"]),
    )
    member = {key: value for key, value in chosen.items() if key in NUMBERS or key.startswith("prior.")}
    return model, method, member


def load(settings: PruningSettings) -> pictures.Split:
    return pictures.load("mnist", settings.pixels, train=settings.train_rows, held_out=settings.held_out_rows)


def trained_network(settings: PruningSettings, name: str, bench: Bench) -> dict[str, Any]:
    """One row with all its seeds: error by share and order, and the weights of the first seed in histograms."""
    chosen = settings.networks[name]
    model, method, member = setup(chosen["width"], chosen)
    split = load(settings)
    population = populations.train(
        bench,
        model,
        split,
        method,
        [{"seed": seed, **member} for seed in range(settings.seeds)],
        epochs=chosen["epochs"],
        batch_size=chosen.get("batch_size", settings.batch_size),
    )
    test = split.to(bench.device).test
    found = [pruned(posterior, test, settings) for posterior in population.posteriors]
    return {
        "weights": model.layout.random,
        "curves": found,
        "noise": noise(population.posteriors),
        "left": weights_left(population.posteriors[0], settings.shares),
        "training": population.summary(),
    }


def grid_members(settings: PruningSettings, prior: str) -> list[dict[str, Any]]:
    """Every setting of one prior's part of the grid, seeds last."""
    rows = itertools.product(
        settings.grid_priors[prior], settings.grid_rho, settings.grid_temperatures, range(settings.grid_seeds)
    )
    return [
        {**numbers, "initial_rho": rho, "temperature": temperature, "seed": 100 + seed}
        for numbers, rho, temperature, seed in rows
    ]


def grid(settings: PruningSettings, prior: str, start: str, bench: Bench) -> dict[str, Any]:
    """The networks of one prior and one start of the means; only their means are looked at, once pruned."""
    members = grid_members(settings, prior)
    chosen = {"prior": prior, "initial_mean": settings.grid_starts[start], "learning_rate": settings.grid_rate}
    model, method, member = setup(settings.grid_width, {**chosen, "initial_rho": members[0]["initial_rho"]})
    split = load(settings)
    population = populations.train(
        bench,
        model,
        split,
        method,
        [{**member, **one} for one in members],
        epochs=settings.grid_epochs,
        batch_size=settings.batch_size,
    )
    test = split.to(bench.device).test
    found = [
        None if posterior is None else pruned(posterior, test, settings, draws=1) for posterior in population.members
    ]
    return {"members": members, "curves": found, "training": population.summary()}


def pruned(posterior: Posterior, test: Data, settings: PruningSettings, draws: int = 0) -> dict[str, Any]:
    """For each order the error of the means and of draws, and the NLL, by the share that is removed."""
    scores = pruning_curve(posterior, test, settings.shares, by=ORDERS, draws=draws or settings.draws)
    return {
        order: {
            "means": [score.at_means for score in scores if score.by == order],
            "draws": [score.by_draws for score in scores if score.by == order],
            "nll": [score.nll if math.isfinite(score.nll) else None for score in scores if score.by == order],
        }
        for order in ORDERS
    }


def noise(members: Sequence[Posterior]) -> dict[str, Any]:
    """Histogram of the signal to noise of all seeds in decibels, the thresholds of the cuts, and how many have none."""
    every = torch.cat([_flat(signal_to_noise(posterior)) for posterior in members])
    found = decibels(every[every > 0]).cpu().numpy()
    low, high, bins = DECIBELS
    edges = np.linspace(low, high, bins + 1)
    counts, _ = np.histogram(np.clip(found, low, np.nextafter(high, low)), edges)
    return {
        "edges": edges.tolist(),
        "counts": counts.tolist(),
        "cuts": {f"{100 * cut:g} %": float(np.clip(np.quantile(found, cut), low, high)) for cut in CUTS},
        "below_one": float((every < 1).double().mean()),
    }


def weights_left(posterior: Posterior, shares: Sequence[float]) -> dict[str, Any]:
    """Histograms of the means that are left after each share, for each order: what the orders keep."""
    whole = _means(posterior)
    reach = float(np.quantile(np.abs(whole), 0.999)) or 1.0
    edges = np.linspace(-reach, reach, 81)
    found: dict[str, Any] = {"edges": edges.tolist()}
    for order in ORDERS:
        rows = {}
        for share in [share for share in shares if share < 0.98]:
            means = _means(prune(posterior, share, order))
            rows[f"{share:g}"] = np.histogram(means[means != 0], edges)[0].tolist()
        found[order] = rows
    return found


def _flat(named: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in named.values()])


def _means(posterior: Posterior) -> np.ndarray:
    return posterior.mean()[:, : posterior.model.layout.random].double().reshape(-1).cpu().numpy()
