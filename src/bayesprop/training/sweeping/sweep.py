"""Many settings of one model, trained at once; the hopeless are dropped on the way, and the best are returned."""

from __future__ import annotations

import numbers
import os
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from bayesprop import diagnostics, specification
from bayesprop import storage as files
from bayesprop.data import Data, Stream, as_data
from bayesprop.errors import BayespropWarning, ConfigurationError
from bayesprop.inference.method import Method
from bayesprop.inference.variational import BayesByBackprop
from bayesprop.model import Model
from bayesprop.posteriors import Context
from bayesprop.training import stepping
from bayesprop.training.arguments import check_call, check_settings, whole_number
from bayesprop.training.checkpoint import Progress, describe_run
from bayesprop.training.interrupts import Interrupts
from bayesprop.training.observers import Event, Observer, Stop
from bayesprop.training.sweeping import storage
from bayesprop.training.sweeping.addresses import Setup, apply
from bayesprop.training.sweeping.budget import SHARE, available
from bayesprop.training.sweeping.display import SweepBar
from bayesprop.training.sweeping.grid import settings_of
from bayesprop.training.sweeping.groups import Group, grouped
from bayesprop.training.sweeping.halving import check_keep, check_rungs
from bayesprop.training.sweeping.members import Member
from bayesprop.training.sweeping.race import Race
from bayesprop.training.sweeping.table import Sweep

__all__ = ["sweep"]


def sweep(
    model: Model,
    data: Any,
    method: Method | None = None,
    grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]] | None = None,
    *,
    validation: Any = None,
    epochs: int | None = None,
    batch_size: Any = "auto",
    seed: int = 0,
    rungs: Sequence[float] = (1 / 6, 1 / 2),
    keep: float = 1 / 3,
    winners: int = 1,
    choose_by: str = "nll",
    draws: int = 16,
    memory: int | None = None,
    observers: Sequence[Observer] = (),
    progress: bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 60.0,
    resume: bool = False,
    num_data: int | None = None,
    device: torch.device | str | None = None,
    autocast: torch.dtype | None = None,
    tf32: bool = True,
) -> Sweep:
    """Train every setting of a grid at once and return a table of all and the posteriors of the best.

    Args:
        method: what the settings change; Bayes by Backprop if nothing is said.
        grid: {"learning_rate": [1e-3, 1e-2], "prior.scale": [0.1, 1.0]} for all combinations, or a list of dicts. See
            `sweeping.addresses` for what keys mean.
        validation: data to choose on, or a share of the training rows such as 0.1. Nothing else is ever chosen on.
        rungs: shares of the training after which settings are compared and dropped; () to drop none. By half of it the
            KL has its full weight with default settings: earlier, priors are hardly told apart.
        keep: the share that goes on from a rung.
        winners: how many of the best to return; so many always go on.
        choose_by: "nll" or "error" (RMSE for quantities).
        draws: of the weights, for a prediction that is scored.
        memory: bytes to use at most; as many settings as fit are trained at a time. 0.6 of what is free by default.
        observers: functions of an `Event`, of kinds "start", "step", "epoch", "rung" and "end"; metrics say which
            populations are trained, and the plan before anything is. Returning `Stop` ends the sweep.
        checkpoint: file that holds the whole sweep; with `resume=True` it goes on from there, bit for bit.

    All other arguments are those of `fit`. A setting has the noise, the start and the order of minibatches that it
    would have alone, so its posterior is what `fit` returns for it with the same seed. Settings that differ in numbers
    that `Method.per_particle` names, in a prior's numbers or in their seeds are one population; others are trained one
    population after the other. A setting that diverges is dropped and says so. Ctrl-C returns what is there.
    """
    method = BayesByBackprop() if method is None else method
    if isinstance(method, Mapping) or (isinstance(method, list) and grid is None):
        raise ConfigurationError(
            "sweep takes the method first and the grid after it",
            received="a grid where the method belongs",
            write="bp.sweep(model, data, bp.inference.BayesByBackprop(), grid, validation=0.1)",
        )
    check_call(model, method, observers, verb="sweep")
    check_settings(
        patience=None, validation=validation, resume=resume, checkpoint=checkpoint, autocast=autocast, verb="sweep"
    )
    shares, kept = check_rungs(rungs), check_keep(keep)
    winners, draws = whole_number("winners", winners, verb="sweep"), whole_number("draws", draws, verb="sweep")
    seed = whole_number("seed", seed, least=None, verb="sweep")
    epochs = None if epochs is None else whole_number("epochs", epochs, verb="sweep")
    if choose_by not in ("nll", "error"):
        raise ConfigurationError(
            "sweep: the best setting is chosen by a score on validation data",
            received=f"choose_by={choose_by!r}",
            expected='"nll" or "error"',
            write='choose_by="nll"',
        )
    settings = settings_of(grid)
    base = Setup(method, model.prior, model.likelihood, seed, batch_size, epochs)
    members = [Member(number, values, apply(base, values)) for number, values in enumerate(settings)]
    if winners > len(members):
        raise ConfigurationError(
            "sweep: there are fewer settings than winners",
            received=f"winners={winners} of {len(members)} settings",
            write=f"winners={len(members)}",
        )
    model = model if device is None else model.to(device)
    found, held_out = _split(as_data(data, num_data), validation, data, seed)
    groups = grouped(members, model, found, held_out)
    budget = int(SHARE * available(model.device)) if memory is None else whole_number("memory", memory, verb="sweep")
    context = Context(found.num_data, found.scaling, found.classes, seed, method, tf32=bool(tf32))
    run = _description(
        model,
        method,
        found,
        settings,
        seed=seed,
        epochs=epochs,
        batch_size=batch_size,
        rungs=list(shares),
        keep=kept,
        winners=winners,
        choose_by=choose_by,
        draws=draws,
        autocast=str(autocast),
        tf32=tf32,
    )
    watchers: list[Observer] = list(observers)
    if progress or (progress is None and sys.stderr.isatty()):
        watchers.append(SweepBar())
    started = time.perf_counter()

    with Interrupts() as interrupts:

        def tell(kind: str, group: Group | None, now: Progress | None, metrics: Mapping[str, Any]) -> bool:
            if kind == "step" and not watchers:
                return interrupts.requested
            epoch, step = (now.epoch, now.step) if now is not None else (0, 0)
            last = group.epochs if group is not None else max(group.epochs for group in groups)
            told = {key: value for key, value in metrics.items() if key != "posterior"}
            passed, posterior = time.perf_counter() - started, metrics.get("posterior")
            event = Event(kind, epoch, last, step, None, passed, told, posterior)
            answers = [watcher(event) for watcher in watchers]
            return any(answer is Stop for answer in answers) or interrupts.requested

        race = Race(
            groups,
            members,
            shares,
            kept,
            winners,
            choose_by,
            draws,
            budget,
            context,
            stepping.precision(model.device, autocast, tf32),
            tell,
            checkpoint,
            checkpoint_every,
            run,
        )
        if resume and checkpoint is not None and Path(checkpoint).exists():
            race.resume(storage.load(checkpoint, run, members, model.layout))
        plan = race.plan().describe()
        try:
            race.stopped = tell("start", None, None, {"plan": plan, "settings": len(members)})
            race.begin()
            race.go()
        finally:
            tell("end", None, None, {})
    chosen = race.finish()
    if race.stopped:
        warnings.warn(
            f"the sweep was stopped at rung {race.place.rung + 1} of {len(shares) + 1}; this is what there is so far",
            BayespropWarning,
            stacklevel=2,
        )
    for member in chosen[:1]:
        assert member.posterior is not None
        inputs = groups[0].data if isinstance(groups[0].data, Data) else None
        for message in diagnostics.examine(member.posterior, inputs):
            warnings.warn(f"setting {member.describe()}: {message}", BayespropWarning, stacklevel=2)
    return Sweep.of(
        members,
        chosen,
        choose_by,
        task=model.likelihood.task,
        plan=plan,
        seconds=race.seconds,
        interrupted=race.stopped,
    )


def _split(data: Data | Stream, validation: Any, given: Any, seed: int) -> tuple[Data | Stream, Data | Stream]:
    """Training and validation data; there is no sweep without the latter."""
    if validation is None:
        raise ConfigurationError(
            "sweep: settings are chosen on data that they were not trained on",
            received="validation=None",
            expected="data, or a share of the training rows",
            write="validation=0.1",
        )
    if validation is given:
        raise ConfigurationError(
            "sweep: these are the training data, on which the setting that remembers most would win",
            received="validation=data",
            write="validation=0.1",
        )
    if isinstance(validation, numbers.Real):
        if not isinstance(data, Data):
            raise ConfigurationError(
                "a share of a stream cannot be held back",
                received=f"validation={validation}",
                write="validation=another_loader",
            )
        return data.split(float(validation), seed)
    return data, as_data(validation)


def _description(model: Model, method: Method, data: Data | Stream, settings: Any, **more: Any) -> dict[str, Any]:
    """What must be equal for a resumed sweep to be the same sweep."""
    tensors: dict[str, torch.Tensor] = {}
    grid = specification.to_json(settings, tensors, "grid")
    digest = files.digest("", tensors)
    return describe_run(model, method, data, grid=grid, **{"tensors of the grid": digest}, **more)
