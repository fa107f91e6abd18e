"""A row of a table: one network and one method for several seeds or settings, trained side by side and judged.

The members of a population are settings of `bp.sweep` with no rungs: each is what `fit` would make of it, and on a GPU
all of them take their steps in one captured graph. Learning curves are scores on the rows for choices; nothing here
looks at test rows before `judge` is called with them.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayesprop import metrics
from bayesprop.data import Data
from bayesprop.errors import BayespropWarning, DivergenceError
from bayesprop.experiments.experiment import Bench, Unfinished
from bayesprop.experiments.pictures import Split
from bayesprop.experiments.record import read_json, write_json
from bayesprop.inference.method import Method
from bayesprop.inference.schedules import Constant, Cosine
from bayesprop.model import Model
from bayesprop.posteriors import Posterior
from bayesprop.training import sweep
from bayesprop.training.evaluation import kl_to_prior
from bayesprop.training.observers import Event

__all__ = ["Curve", "Population", "best", "dense", "judge", "train"]

SCHEDULES = {"constant": Constant(), "cosine": Cosine()}  # settings of a record are texts and numbers


@dataclass(frozen=True)
class Population:
    """What became of the members, in the order of their settings; `None` for those that diverged, `fates` say where.

    `curves[i]` has entries with "epoch", "error", "nll" on the rows for choices and, where there is one, "kl" in nats.
    """

    settings: tuple[Mapping[str, Any], ...]
    members: tuple[Posterior | None, ...]
    errors: tuple[float | None, ...]
    nlls: tuple[float | None, ...]
    curves: tuple[tuple[Mapping[str, float], ...], ...]
    fates: tuple[str, ...]
    engine: str
    seconds: float
    member_steps: int
    warnings: tuple[str, ...]

    @property
    def posteriors(self) -> list[Posterior]:
        """Of the members that did not diverge."""
        return [posterior for posterior in self.members if posterior is not None]

    def summary(self) -> dict[str, Any]:
        """What of it belongs into a record."""
        return {
            "validation_error": list(self.errors),
            "validation_nll": list(self.nlls),
            "curves": [list(map(dict, curve)) for curve in self.curves],
            "fates": list(self.fates),
            "engine": self.engine,
            "training_seconds": self.seconds,
            "member_steps": self.member_steps,
            "warnings": list(self.warnings),
        }


def dense(*widths: int, dropout: Sequence[float] = ()) -> nn.Sequential:
    """Linear layers with rectifiers between them; `dropout` are the rates before each layer, 0 for none."""
    layers: list[nn.Module] = []
    rates = [*dropout, *[0.0] * (len(widths) - 1 - len(dropout))]
    for i, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        layers += [nn.ReLU()] * (i > 0) + [nn.Dropout(rates[i])] * (rates[i] > 0.0) + [nn.Linear(inputs, outputs)]
    return nn.Sequential(*layers)


def train(
    bench: Bench,
    model: Model,
    split: Split,
    method: Method,
    settings: Sequence[Mapping[str, Any]],
    *,
    epochs: int,
    batch_size: int = 128,
    curve_every: int | None = None,
    draws: int = 16,
    name: str = "training",
) -> Population:
    """Train all settings to the end, or raise `Unfinished`; the next call of the same part goes on from there.

    A setting is what `bp.sweep` takes, with "seed" in it; "schedule" may be "constant" or "cosine".
    """
    split = split.to(bench.device)
    curve = Curve(bench.folder / f"{name}.curve.json", curve_every or epochs, epochs, split.validation, draws)
    grid = [{k: SCHEDULES.get(v, v) if k == "schedule" else v for k, v in one.items()} for one in settings]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", BayespropWarning)
        found = sweep(
            model,
            split.train,
            method,
            grid,
            validation=split.validation,
            epochs=epochs,
            batch_size=batch_size,
            rungs=(),
            winners=len(grid),
            choose_by="error",
            draws=draws,
            device=bench.device,
            observers=[bench.watch, curve],
            progress=bench.progress,
            checkpoint=bench.folder / f"{name}.checkpoint",
            resume=True,
        )
    told = []
    for warning in caught:
        if issubclass(warning.category, BayespropWarning):
            told.append(str(warning.message).splitlines()[0])
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if found.interrupted:
        steps = sum(row.steps for row in found.rows)
        raise Unfinished(f"stopped after {found.seconds:.0f} s and {steps:,} steps of all members")
    trained = {row.number: posterior for row, posterior in zip(found.rows, found.posteriors, strict=False)}
    order = sorted(found.rows, key=lambda row: row.number)
    last = [row.scores[-1] if row.number in trained else None for row in order]
    return Population(
        settings=tuple(dict(one) for one in settings),
        members=tuple(trained.get(row.number) for row in order),
        errors=tuple(score.error if score else None for score in last),
        nlls=tuple(score.nll if score else None for score in last),
        curves=tuple(tuple(curve.of(row.number)) for row in order),
        fates=tuple(row.fate for row in order),
        engine=found.best.context.engine,
        seconds=found.seconds,
        member_steps=sum(row.steps for row in found.rows),
        warnings=tuple(dict.fromkeys(told)),
    )


class Curve:
    """An observer that scores every member each so many epochs, and keeps the scores in a file, so that they survive an
    interruption with the training's own checkpoint."""

    def __init__(self, path: Path, every: int, epochs: int, data: Data, draws: int) -> None:
        self.path, self.every, self.epochs, self.data, self.draws = path, every, epochs, data, draws
        self.points: dict[str, dict[str, Any]] = read_json(path) if path.exists() else {}

    def __call__(self, event: Event) -> None:
        epoch = event.epoch + 1
        if event.kind != "epoch" or (epoch % self.every and epoch != self.epochs):
            return
        assert event.posterior is not None
        whole = event.posterior()
        divergence = kl_to_prior(whole)
        for place, number in enumerate(event.metrics["members"]):
            scores = judge([whole.member(place)], self.data, draws=self.draws)
            point = {"epoch": epoch, "error": scores["error"][0], "nll": scores["nll"][0]}
            if divergence is not None:
                point["kl"] = float(divergence[place])
            if not all(math.isfinite(value) for value in point.values()):
                continue  # it has diverged, as its fate will say
            self.points.setdefault(str(number), {})[str(epoch)] = point
        write_json(self.path, self.points)

    def of(self, number: int) -> list[dict[str, float]]:
        """The scores of one member, in the order of the epochs."""
        found = self.points.get(str(number), {})
        return [found[epoch] for epoch in sorted(found, key=int)]


@torch.no_grad()
def judge(posteriors: Sequence[Posterior], data: Data, *, draws: int = 100, seed: int = 0) -> dict[str, list[float]]:
    """Error, NLL and calibration error of each posterior's predictions, its `draws` averaged as probabilities.

    Of several posteriors also the error and the NLL of all together, as an equally weighted mixture: "together_error"
    and "together_nll", one number each.
    """
    found: dict[str, list[float]] = {"error": [], "nll": [], "calibration_error": []}
    means: list[Tensor] = []
    densities: list[Tensor] = []
    for posterior in posteriors:
        # A point is evaluated once, also where the network has dropout: that is off in predictions.
        count = draws if posterior.distinct is None else min(draws, posterior.distinct)
        prediction = posterior.predict(data.inputs, count, seed=seed)
        mean: Tensor = prediction.mean
        targets = data.targets.to(mean.device)
        found["error"].append(float(metrics.error(mean, targets)))
        densities.append(prediction.log_prob(targets).double())
        found["nll"].append(-float(densities[-1].mean()))
        found["calibration_error"].append(float(metrics.expected_calibration_error(mean, targets)))
        means.append(mean.double())
    if len(means) > 1:
        together = torch.stack(means).mean(0)
        targets = data.targets.to(together.device)
        found["together_error"] = [float(metrics.error(together, targets))]
        mixed = torch.logsumexp(torch.stack(densities), 0) - math.log(len(densities))  # finite where a mean is 0
        found["together_nll"] = [-float(mixed.mean())]
    return found


def best(population: Population, per_candidate: int) -> tuple[int, list[float | None]]:
    """The candidate with the lowest mean validation error, and these means; equal ones are told apart by the NLL.

    The population holds `per_candidate` seeds of the first candidate, then as many of the second, and so on. A
    candidate of which a seed diverged has no mean and is not chosen.
    """

    def means(values: Sequence[float | None]) -> list[float | None]:
        groups = [values[i : i + per_candidate] for i in range(0, len(values), per_candidate)]
        return [None if None in group else statistics.fmean(v for v in group if v is not None) for group in groups]

    errors, nlls = means(population.errors), means(population.nlls)
    ranked = [(error, nll, i) for i, (error, nll) in enumerate(zip(errors, nlls, strict=True)) if error is not None]
    if not ranked:
        raise DivergenceError("every candidate has diverged", received="; ".join(population.fates[:3]))
    return min(ranked)[2], errors
