"""One loop for every method: epochs, progress, checkpoints, resuming, early stopping."""

from __future__ import annotations

import numbers
import os
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from bayesprop import diagnostics, rng
from bayesprop.data import Data, as_data
from bayesprop.errors import BayespropWarning, CheckpointError, ConfigurationError
from bayesprop.inference.method import Method, load_tensors
from bayesprop.inference.variational import BayesByBackprop
from bayesprop.model import Model
from bayesprop.posteriors import Context, Posterior
from bayesprop.training import checkpoint as checkpoints
from bayesprop.training import selection, stepping
from bayesprop.training.arguments import (
    check_call,
    check_settings,
    check_stream,
    population,
    rows_per_step,
    whole_number,
)
from bayesprop.training.capture import stepper
from bayesprop.training.evaluation import prepared, report
from bayesprop.training.interrupts import Interrupts
from bayesprop.training.observers import Event, Observer, ProgressBar, Stop
from bayesprop.training.source import Source

__all__ = ["fit"]


def fit(
    model: Model,
    data: Any,
    method: Method | None = None,
    *,
    epochs: int | None = None,
    batch_size: int | Literal["auto"] | None = "auto",
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
    tf32: bool = True,
) -> Posterior:
    """Fit a model to data and return the posterior.

    Args:
        data: `Data`, a pair (inputs, targets) of tensors or arrays, a torch Dataset or a DataLoader (its own batch
            size).
        method: how; Bayes by Backprop if nothing is said.
        epochs: passes over the data; None (the default) for as many as make 20,000 steps, and at least 20.
        batch_size: rows of a minibatch, None for all rows at once; "auto" is 128, or all for a method that needs them.
        starts: independent starts trained side by side; the one with the best ELBO is returned.
        validation: data, or a share of the training rows such as 0.1; scored every `report_every` epochs.
        patience: stop after so many reports without a better validation NLL and return the best state.
        observers: functions of an `Event`; returning `Stop` ends the training after the step or epoch of the event.
        progress: a progress bar on standard error; by default if that is a terminal.
        checkpoint: file that is written at the start, every `checkpoint_every` seconds and at the end; a disk that
            is full by then is a warning, and the file before stays. With `resume=True` training
            goes on from it, bit for bit, if it exists; a larger number of `epochs` trains on, with schedules that are
            measured against the new number.
        num_data: N, for a stream that does not know it.
        autocast: a dtype such as torch.bfloat16 for the forward pass; theta stays in its own.
        tf32: on GPUs that have it, multiply matrices in TF32, in training and in predictions: float32 with a shorter
            mantissa, whose rounding (1e-3) is far below the noise of the weights. False for float32 throughout.

    Ctrl-C ends the training after the step in flight and returns what was learnt so far.
    """
    method = BayesByBackprop() if method is None else method
    check_call(model, method, observers)
    check_settings(patience=patience, validation=validation, resume=resume, checkpoint=checkpoint, autocast=autocast)
    wanted, starts = None if epochs is None else whole_number("epochs", epochs), whole_number("starts", starts)
    seed = whole_number("seed", seed, least=None)
    rows, particles = rows_per_step(batch_size, method), population(starts, method)
    model = model if device is None else model.to(device)
    found = as_data(data, num_data)
    held_out: Any = validation
    if isinstance(validation, numbers.Real):
        if not isinstance(found, Data):
            raise ConfigurationError(
                "a share of a stream cannot be held back",
                received=f"validation={validation}",
                write="validation=another_loader",
            )
        found, held_out = found.split(float(validation), seed)

    seeds = rng.Rng.create(seed, particles, model.device)
    source = Source(
        found, model, batch_size=rows, epochs=wanted, steps=method.steps, rng=seeds, bootstrap=method.bootstrap
    )
    check_stream(source.count, found, method)
    epochs = source.epochs
    every = max(1, epochs // 100) if report_every is None else whole_number("report_every", report_every)
    limit = None if patience is None else whole_number("patience", patience) * every
    outputs = source.probe()
    if held_out is not None:
        held_out = prepared(as_data(held_out), model, found.scaling, found.classes)
        model.likelihood.check(outputs[: held_out[1].shape[0]], held_out[1])
    context = Context(source.num_data, found.scaling, found.classes, seed, method, tf32=bool(tf32))
    settings = {"seed": seed, "starts": starts, "batch_size": rows, "autocast": str(autocast), "tf32": bool(tf32)}
    run = checkpoints.describe_run(model, method, found, **settings)
    now = checkpoints.Progress(
        method.init(model, seeds),
        torch.zeros(particles, dtype=torch.float64, device=model.device),
        torch.full((particles,), 2**62, dtype=torch.int64, device=model.device),
    )
    if held_out is not None:  # inputs that the network cannot take are refused now, not at the first report
        method.posterior(model, now.state).outputs(held_out[0], 1)
    if resume and checkpoint is not None and Path(checkpoint).exists():
        checkpoints.load(checkpoint, now, run, model.layout)
    context.history = now.history

    watchers: list[Observer] = list(observers)
    if progress or (progress is None and sys.stderr.isatty()):
        watchers.append(ProgressBar())
    started = saved = time.perf_counter()

    def tell(kind: str, metrics: dict[str, Any] | None = None) -> bool:
        passed = time.perf_counter() - started
        event = Event(kind, now.epoch, epochs, now.step, source.count, passed, metrics or {}, posterior)
        answers = [watcher(event) for watcher in watchers]  # all are told, whoever answers Stop
        return any(answer is Stop for answer in answers)

    def posterior() -> Posterior:
        """What was learnt so far; refused if it is not finite."""
        made = method.posterior(model, now.state)
        made.context = context
        selection.check_finite(made, now, checkpoint)
        return made

    def save() -> None:
        nonlocal saved
        if checkpoint is None:
            return
        posterior()
        saved = time.perf_counter()
        try:
            checkpoints.save(checkpoint, now, run)
        except CheckpointError as error:
            if now.step == 0:  # there is nothing to lose yet
                raise
            warnings.warn(f"{error}\n  training goes on without it", BayespropWarning, stacklevel=3)

    with Interrupts() as interrupts:
        try:
            stopped = tell("start")
            if now.step == 0:  # a place that cannot be written to is found out now
                save()
            steps = stepper(model, method, source, seeds, stepping.precision(model.device, autocast, tf32), now)
            context.engine = steps.description
            while now.epoch < epochs and not stopped and not selection.exhausted(now, limit):
                for _ in steps.epoch(now):
                    if checkpoint is not None and time.perf_counter() - saved > checkpoint_every:
                        save()
                    stopped = (bool(observers) and tell("step")) or interrupts.requested
                    if stopped:
                        break
                else:
                    metrics: dict[str, Any] = {}
                    if (now.epoch + 1) % every == 0 or now.epoch + 1 == epochs:
                        metrics = {"epoch": now.epoch + 1, "step": now.step}
                        metrics |= report(posterior(), now.total / max(1, now.index), held_out)
                        now.history.append(metrics)
                        if limit is not None:
                            selection.keep_best(now, metrics)
                    stopped = tell("epoch", metrics) or interrupts.requested
                    now.epoch, now.index = now.epoch + 1, 0
                    now.total.zero_()
            save()
        finally:
            tell("end")

    if interrupts.requested and now.epoch < epochs:
        warnings.warn(
            f"interrupted in epoch {now.epoch + 1} of {epochs}; this is what was learnt so far",
            BayespropWarning,
            stacklevel=2,
        )
    if now.best and limit is not None:
        load_tensors(now.state, now.best, source="the best state")
    now.state = method.finish(model, now.state, lambda: source.epoch(now.epoch), seeds.at(now.step))
    result = posterior()
    now.state, now.best = None, {}  # moments are the larger half of what a training holds
    if starts > 1:
        result = selection.best_start(result, source)
    for message in diagnostics.examine(result, source.data if isinstance(source.data, Data) else None):
        warnings.warn(message, BayespropWarning, stacklevel=2)
    return result
