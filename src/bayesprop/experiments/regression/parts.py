"""The parts: two versions of the paper's curve, and the gap by each method. What they find are bands on a grid."""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from bayesprop import likelihoods, priors
from bayesprop.data import Data, blundell_curve, gap_regression
from bayesprop.diagnostics import r_hat
from bayesprop.errors import BayespropWarning
from bayesprop.experiments.experiment import Bench, Part, Unfinished
from bayesprop.experiments.regression.methods import GAP
from bayesprop.experiments.regression.settings import RegressionSettings
from bayesprop.inference import MLE, BayesByBackprop
from bayesprop.inference.method import Method
from bayesprop.model import Model
from bayesprop.posteriors import Posterior, Samples
from bayesprop.random_weights import LocalReparameterization
from bayesprop.training import fit
from bayesprop.training.observers import Event

__all__ = ["CURVES", "GAP_RANGE", "REGIONS", "gap_model", "parts"]

# Name -> (title, rows of the settings, ends of the grid, method).
CURVES: dict[str, tuple[str, str, tuple[float, float], Method[Any]]] = {
    "curve": (
        "the paper's curve, Bayes by Backprop",
        "curve_rows",
        (-0.25, 1.25),
        BayesByBackprop(1e-2, estimator=LocalReparameterization(2)),
    ),
    "curve-plain": ("the paper's curve, a network without uncertainty", "curve_rows", (-0.25, 1.25), MLE(3e-3)),
    "source": (
        "source 001's version, Bayes by Backprop",
        "source_rows",
        (-0.2, 1.2),
        BayesByBackprop(1e-2, estimator=LocalReparameterization(2)),
    ),
}
GAP_RANGE = (-1.6, 1.6)
NOISE = 0.1  # of the gap's data
SHOWN = 200  # points of data that a record keeps
BATCH = 200
# Where the gap's uncertainty is measured: data lie on [-1, -0.7] and [0.5, 1].
REGIONS = {"data": ((-1.0, -0.7), (0.5, 1.0)), "gap": ((-0.5, 0.3),), "beyond": ((-1.6, -1.3), (1.3, 1.6))}


def parts(settings: RegressionSettings) -> list[Part]:
    """Curves, HMC's answer about the gap, then that of each other method."""
    found = [Part(name, CURVES[name][0], functools.partial(curve, settings, name)) for name in CURVES]
    found += [
        Part(f"gap-{name}", f"the gap, {GAP[name].title}", functools.partial(gap, settings, name)) for name in GAP
    ]
    return found


def curve(settings: RegressionSettings, name: str, bench: Bench) -> dict[str, Any]:
    """Quartiles and 90 % bands of the function and of the targets, on a grid that goes beyond the data."""
    _, rows, ends, method = CURVES[name]
    count = getattr(settings, rows)
    data, test = blundell_curve(count, seed=0), blundell_curve(1000, seed=1)
    width = settings.curve_width
    network = nn.Sequential(nn.Linear(1, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
    model = Model(network, likelihood=likelihoods.Gaussian(), prior=priors.Normal())
    epochs = max(1, settings.curve_steps // math.ceil(count / BATCH))
    ready = Data(data.inputs, data.targets, standardize=True)
    posterior = _trained(bench, model, ready, method, epochs)
    judged = posterior.predict(test.inputs, settings.draws)
    noise = judged.aleatoric.sqrt().double().mean()
    return {
        "rows": count,
        "points": _points(data),
        "band": band(posterior, ends, settings),
        "noise": float(noise),
        "test_rmse": float((judged.mean.cpu() - test.targets).square().mean().sqrt()),
        "test_log_likelihood": float(judged.log_prob(test.targets).double().mean()),
    }


def gap_model(settings: RegressionSettings) -> Model:
    """tanh units whose sum has the scale of the data whatever their number; the noise is known."""
    width = settings.gap_width
    network = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, 1))
    spread = {"2.weight": priors.Normal(0.0, math.sqrt(2.0 / width)), "2.bias": priors.Normal()}
    return Model(network, likelihood=likelihoods.Gaussian(NOISE), prior={"0.*": priors.Normal(0.0, 3.0), **spread})


def gap(settings: RegressionSettings, name: str, bench: Bench) -> dict[str, Any]:
    """One method's answer: bands, and the mean deviation of the function where there are data and where not."""
    asked, data = GAP[name], gap_regression(settings.gap_rows, seed=0)
    posterior = _trained(
        bench, gap_model(settings), data, asked.make(settings), asked.steps(settings), whole=asked.whole
    )
    found: dict[str, Any] = {"points": _points(data), "band": band(posterior, GAP_RANGE, settings)}
    place, spread = torch.tensor(found["band"]["inputs"]), torch.tensor(found["band"]["deviation"])
    for region, ranges in REGIONS.items():
        inside = torch.stack([(place >= low) & (place <= high) for low, high in ranges]).any(0)
        found[region] = float(spread[inside].mean())
    test = gap_regression(400, seed=1)
    judged = posterior.predict(test.inputs, settings.draws)
    found["test_log_likelihood"] = float(judged.log_prob(test.targets).double().mean())
    if isinstance(posterior, Samples) and posterior.particles > 1 and posterior.count >= 4:
        found["r_hat"] = float(r_hat(posterior.trace(_grid(GAP_RANGE, 9))).max())
    return found


def band(posterior: Posterior, ends: tuple[float, float], settings: RegressionSettings) -> dict[str, list[float]]:
    """On a grid: mean, deviation and quartiles of the function, 90 % intervals of the function and of targets."""
    grid = _grid(ends, settings.places)
    prediction = posterior.predict(grid, settings.draws)
    drawn = prediction.draws.double().cpu().reshape(-1, settings.places)
    levels = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95], dtype=torch.float64)
    low, lower, middle, upper, high = torch.quantile(drawn, levels, dim=0)
    bottom, top = prediction.interval(0.9)
    made = {
        "inputs": grid,
        "mean": prediction.mean,
        "deviation": prediction.epistemic.clamp_min(0.0).sqrt(),
        "median": middle,
        "lower_quartile": lower,
        "upper_quartile": upper,
        "low": low,
        "high": high,
        "target_low": bottom,
        "target_high": top,
    }
    return {key: _plain(values) for key, values in made.items()}


def _trained(
    bench: Bench, model: Model, data: Data, method: Method[Any], epochs: int | None, *, whole: bool = False
) -> Posterior:
    """`fit` with the part's checkpoint, or `Unfinished` where it was stopped."""
    reached = [0, 0]

    def count(event: Event) -> None:
        if event.kind == "epoch":
            reached[:] = [event.epoch + 1, event.epochs]

    size: dict[str, Any] = {} if whole else {"batch_size": min(BATCH, len(data))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BayespropWarning)  # what a method misses is what the page shows
        posterior = fit(
            model.to(bench.device),
            data.to(bench.device),
            method,
            epochs=epochs,
            observers=[bench.watch, count],
            progress=bench.progress,
            checkpoint=bench.checkpoint,
            resume=True,
            **size,
        )
    if reached[0] < reached[1]:
        raise Unfinished(f"stopped after {reached[0]} of {reached[1]} epochs")
    return posterior


def _grid(ends: tuple[float, float], places: int) -> Tensor:
    return torch.linspace(*ends, places, dtype=torch.float64)[:, None]


def _points(data: Data) -> dict[str, list[float]]:
    assert isinstance(data.inputs, Tensor)
    inputs, targets = data.inputs[:SHOWN], data.targets[:SHOWN]
    return {"inputs": _plain(inputs), "targets": _plain(targets)}


def _plain(values: Tensor) -> list[float]:
    """Six digits are more than a figure shows, and a third of the record."""
    return [float(f"{value:.6g}") for value in values.detach().double().reshape(-1).tolist()]
