"""One loop for every method: epochs, progress, checkpoints, resuming, early stopping."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from bayesprop import diagnostics, rng
from bayesprop.data import Data, Stream, as_data
from bayesprop.errors import BayespropWarning, ConfigurationError
from bayesprop.inference.method import Method, load_tensors
from bayesprop.inference.variational import BayesByBackprop
from bayesprop.model import Model
from bayesprop.posteriors import Context, Posterior
from bayesprop.training import checkpoint as checkpoints
from bayesprop.training import selection
from bayesprop.training.evaluation import kl_to_prior, validation_scores
from bayesprop.training.interrupts import Interrupts
from bayesprop.training.observers import Event, Observer, ProgressBar, Stop
from bayesprop.training.source import Source

__all__ = ["fit"]


def fit(
    model: Model,
    data: Any,
    method: Method | None = None,
    *,
    epochs: int = 100,
    batch_size: int | None = 128,
    seed: int = 0,
    starts: int = 1,
    validation: Any = None,
    patience: int | None = None,
    report_every: int | None = None,
    observers: Sequence[Observer] = (),
    progress: bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 60.0,
    resume: bool = False,
    num_data: int | None = None,
    device: torch.device | str | None = None,
    autocast: torch.dtype | None = None,
) -> Posterior:
    """Fit a model to data and return the posterior.

    Args:
        data: `Data`, a pair (inputs, targets) of tensors or arrays, a torch Dataset or a DataLoader (its own batch
        size). method: how; Bayes by Backprop if nothing is said.
        batch_size: rows of a minibatch, None for all rows at once.
        starts: independent starts trained side by side; the one with the best ELBO is returned.
        validation: data, or a share of the training rows such as 0.1; scored every `report_every` epochs.
        patience: stop after so many reports without a better validation NLL and return the best state.
        observers: functions of an `Event`; returning `Stop` ends the training after the epoch.
        progress: a progress bar on standard error; by default if that is a terminal.
        checkpoint: file that is rewritten every `checkpoint_every` seconds and at the end; with `resume=True` training
        goes
            on from it, bit for bit, if it exists.
        num_data: N, for a stream that does not know it.
        autocast: a dtype such as torch.bfloat16 for the forward pass; theta stays in its own.

    Ctrl-C ends the training after the step in flight and returns what was learnt so far.
    """
    method = BayesByBackprop() if method is None else method
    _check(
        model,
        method,
        epochs=epochs,
        starts=starts,
        patience=patience,
        validation=validation,
        resume=resume,
        checkpoint=checkpoint,
    )
    model = model if device is None else model.to(device)
    found = as_data(data, num_data)
    held_out: Data | Stream | None = None
    if isinstance(validation, float):
        if not isinstance(found, Data):
            raise ConfigurationError(
                "a share of a stream cannot be held back",
                received=f"validation={validation}",
                write="validation=another_loader",
            )
        found, held_out = found.split(validation, seed)
    elif validation is not None:
        held_out = selection.like(as_data(validation), found)

    seeds = rng.Rng.create(seed, starts, model.device)
    source = Source(found, model, batch_size=batch_size, epochs=epochs, rng=seeds)
    model.probe(*source.example())
    context = Context(source.num_data, getattr(found, "scaling", None), found.classes, seed, method)
    run = checkpoints.describe_run(model, method, found, seed=seed, starts=starts, batch_size=batch_size)
    state = method.init(model, seeds)
    now = checkpoints.Progress(
        state,
        torch.zeros(starts, dtype=torch.float64, device=model.device),
        torch.full((starts,), 2**62, dtype=torch.int64, device=model.device),
    )
    if resume and checkpoint is not None and Path(checkpoint).exists():
        checkpoints.load(checkpoint, now, run, model.layout)
        context.history = now.history

    watchers: list[Observer] = list(observers)
    if progress or (progress is None and sys.stderr.isatty()):
        watchers.append(ProgressBar())
    started, saved = time.perf_counter(), time.perf_counter()
    every = report_every or max(1, epochs // 100)

    def tell(kind: str, metrics: dict[str, Any] | None = None) -> bool:
        event = Event(kind, now.epoch, epochs, now.step, source.count, time.perf_counter() - started, metrics or {})
        answers = [watcher(event) for watcher in watchers]  # all of them are told, whatever one answers
        return Stop in answers

    def save() -> None:
        nonlocal saved
        if checkpoint is not None:
            selection.check_finite(method.posterior(model, now.state), now, checkpoint)
            checkpoints.save(checkpoint, now, run)
            saved = time.perf_counter()

    precision: Callable[[], Any] = contextlib.nullcontext
    if autocast is not None:
        precision = lambda: torch.autocast(model.device.type, autocast)  # noqa: E731
    with Interrupts() as interrupts:
        tell("start")
        try:
            while now.epoch < epochs and not interrupts.requested:
                batches = 0
                for batch in source.epoch(now.epoch, now.index):
                    model.set_mode(True)
                    step = seeds.at(now.step)
                    guard = (
                        rng.quarantine(step.integer(rng.Stream.GLOBAL), model.device)
                        if model.draws_globally
                        else contextlib.nullcontext()
                    )
                    with guard, precision():
                        now.state, info = method.update(model, now.state, batch, step)
                    value = info.log_likelihood.detach()
                    now.total += value
                    now.first_bad = torch.where(torch.isfinite(value), now.first_bad, now.first_bad.clamp(max=now.step))
                    now.step, now.index, batches = now.step + 1, now.index + 1, batch.count
                    if checkpoint is not None and time.perf_counter() - saved > checkpoint_every:
                        save()
                    if interrupts.requested:
                        break
                else:
                    finished = now.epoch
                    metrics: dict[str, Any] = {}
                    if (finished + 1) % every == 0 or finished + 1 == epochs:
                        metrics = _report(method, model, now, held_out, context, batches, checkpoint)
                    stop = tell("epoch", metrics)
                    now.epoch, now.index = finished + 1, 0
                    now.total.zero_()
                    if (
                        metrics
                        and patience is not None
                        and selection.keep_best(now, metrics, finished, patience * every)
                    ):
                        break
                    if stop:
                        break
            save()
        finally:
            tell("end")

    if interrupts.requested:
        warnings.warn(
            f"interrupted in epoch {now.epoch + 1} of {epochs}; this is what was learnt so far",
            BayespropWarning,
            stacklevel=2,
        )
    if now.best and patience is not None:
        load_tensors(now.state, now.best, source="the best state")
    posterior = method.posterior(model, now.state)
    posterior.context = context
    selection.check_finite(posterior, now, checkpoint)
    if starts > 1:
        posterior = selection.best_start(posterior, source)
    for message in diagnostics.examine(posterior, source.data if isinstance(source.data, Data) else None):
        warnings.warn(message, BayespropWarning, stacklevel=2)
    return posterior


def _report(
    method: Method,
    model: Model,
    now: checkpoints.Progress,
    held_out: Data | Stream | None,
    context: Context,
    batches: int,
    checkpoint: Any,
) -> dict[str, Any]:
    """The numbers of one epoch, appended to the history: in nats for the full data, of the best particle."""
    posterior = method.posterior(model, now.state)
    posterior.context = context
    selection.check_finite(posterior, now, checkpoint)
    data_term = now.total / max(1, now.index)
    metrics: dict[str, Any] = {"epoch": now.epoch + 1, "step": now.step}
    divergence = kl_to_prior(posterior)
    objective = data_term if divergence is None else data_term - divergence
    best = int(torch.nan_to_num(objective, nan=-torch.inf).argmax())
    metrics["log_likelihood"] = float(data_term[best])
    if divergence is not None:
        metrics |= {"kl": float(divergence[best]), "elbo": float(objective[best])}
    if held_out is not None:
        metrics |= validation_scores(posterior, held_out, draws=16)
    now.history.append(metrics)
    context.history = now.history
    return metrics


def _check(
    model: Model,
    method: Any,
    *,
    epochs: int,
    starts: int,
    patience: int | None,
    validation: Any,
    resume: bool,
    checkpoint: Any,
) -> None:
    """Refuse a call that cannot work before anything is computed."""
    if not isinstance(model, Model):
        raise ConfigurationError(
            "fit needs a model",
            received=f"a {type(model).__name__}",
            write="bp.fit(bp.Model(network, likelihood=...), data)",
        )
    if not isinstance(method, Method):
        raise ConfigurationError(
            "fit needs a method", received=f"{method!r}", write="bp.fit(model, data, bp.inference.BayesByBackprop())"
        )
    for name, value in (("epochs", epochs), ("starts", starts)):
        if value < 1:
            raise ConfigurationError(f"fit: {name} must be at least 1", received=f"{value}", write=f"{name}=1")
    if patience is not None and validation is None:
        raise ConfigurationError(
            "fit: early stopping needs data to decide on", received=f"patience={patience}", write="validation=0.1"
        )
    if resume and checkpoint is None:
        raise ConfigurationError(
            "fit: there is no file to resume from", received="resume=True", write='checkpoint="run.ckpt", resume=True'
        )
