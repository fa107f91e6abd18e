"""One part for each device, width and kind of training: seconds of each timed epoch."""

from __future__ import annotations

import functools
import statistics
import time
import warnings
from typing import Any

import torch

from bayesprop import likelihoods, priors
from bayesprop.errors import BayespropWarning, ConfigurationError
from bayesprop.experiments import pictures, populations
from bayesprop.experiments.cost.settings import CostSettings
from bayesprop.experiments.experiment import Bench, Part, Unfinished
from bayesprop.inference import MLE, BayesByBackprop
from bayesprop.inference.method import Method
from bayesprop.model import Model
from bayesprop.random_weights import SharedWeights
from bayesprop.training import fit
from bayesprop.training.observers import Event, Stop

__all__ = ["KINDS", "Clock", "parts", "setup", "timed"]

KINDS = {
    "sgd": "SGD",
    "dropout": "SGD, dropout",
    "gaussian": "Bayes by Backprop, Gaussian prior",
    "mixture": "Bayes by Backprop, scale mixture prior",
    "mixture-2": "Bayes by Backprop, scale mixture prior, 2 samples",
}


def parts(settings: CostSettings) -> list[Part]:
    """Names such as "cuda-mixture-400-of-5"."""
    found = []
    for device in settings.devices:
        for width in settings.widths:
            for kind, title in KINDS.items():
                for starts in settings.cuda_starts if device == "cuda" else (1,):
                    what = f"{title}, {width} units, {starts} at once, {device}"
                    run = functools.partial(timed, settings, device, width, kind, starts)
                    found.append(Part(f"{device}-{kind}-{width}-of-{starts}", what, run))
    return found


def setup(kind: str, width: int) -> tuple[Model, Method]:
    """Network and method of a kind."""
    rates = (0.2, 0.5, 0.5) if kind == "dropout" else ()
    prior = priors.ScaleMixture() if kind.startswith("mixture") else priors.Normal()
    model = Model(
        populations.dense(784, width, width, 10, dropout=rates), likelihood=likelihoods.Categorical(), prior=prior
    )
    if kind in ("sgd", "dropout"):
        return model, MLE(optimizer="sgd", learning_rate=0.1)
    return model, BayesByBackprop(learning_rate=1e-3, estimator=SharedWeights(2 if kind == "mixture-2" else 1))


class Clock:
    """An observer that notes when an epoch is over, on the device too, and stops when there are enough of them."""

    def __init__(self, epochs: int, device: torch.device) -> None:
        self.epochs, self.device = epochs, device
        self.ends: list[float] = []

    def __call__(self, event: Event) -> type[Stop] | None:
        if event.kind != "epoch":
            return None
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.ends.append(time.perf_counter())
        return Stop if len(self.ends) > self.epochs else None

    @property
    def seconds(self) -> list[float]:
        """Of each epoch after the first."""
        return [end - start for start, end in zip(self.ends, self.ends[1:])]


def timed(settings: CostSettings, device: str, width: int, kind: str, starts: int, bench: Bench) -> dict[str, Any]:
    """Seconds of each epoch of a training by `fit`, with nothing looked at in between."""
    where = torch.device(device)
    if where.type == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError(
            "this machine has no CUDA device to time", received=f"devices={settings.devices}", write='--parts "cpu-*"'
        )
    if bench.late:
        raise Unfinished("the time is over")
    model, method = setup(kind, width)
    split = pictures.load("mnist", train=settings.train_rows, held_out=settings.held_out_rows)
    epochs = settings.cuda_epochs if where.type == "cuda" else settings.cpu_epochs
    clock = Clock(epochs, where)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BayespropWarning)
        posterior = fit(
            model,
            split.train.to(where),
            method,
            epochs=epochs + 2,  # the clock stops it before the last one, at whose end a training looks at itself
            batch_size=settings.batch_size,
            starts=starts,
            report_every=epochs + 2,
            observers=[clock],
            progress=False,
            device=where,
        )
    steps = split.train.batches_per_epoch(settings.batch_size)
    seconds = statistics.median(clock.seconds)
    return {
        "device": device,
        "kind": kind,
        "width": width,
        "starts": starts,
        "epoch_seconds": clock.seconds,
        "seconds": seconds,
        "epochs_an_hour": 3600.0 / seconds * starts,
        "microseconds_a_step": 1e6 * seconds / steps / starts,
        "engine": posterior.context.engine,
        "threads": torch.get_num_threads(),
    }
