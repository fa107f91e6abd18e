"""What `fit` refuses before anything is computed, each with the line to write instead."""

from __future__ import annotations

import contextlib
import operator
import os
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from bayesprop import inference
from bayesprop.data import Data, Stream
from bayesprop.errors import ConfigurationError
from bayesprop.inference.method import Method
from bayesprop.model import Model

__all__ = ["check_call", "check_settings", "check_stream", "population", "rows_per_step", "whole_number"]

ROWS = 128  # of a minibatch, where nobody says anything else


def whole_number(name: str, value: Any, *, least: int | None = 1, verb: str = "fit") -> int:
    """An argument of `fit` or `sweep` as Python's own integer; numpy's are fine, 1.5 and True are not."""
    number = None
    if not isinstance(value, bool):
        with contextlib.suppress(TypeError):
            number = operator.index(value)
    if number is None:
        raise ConfigurationError(
            f"{verb}: {name} must be a whole number",
            received=repr(value),
            write=f"{name}={1 if least is None else least}",
        )
    if least is not None and number < least:
        raise ConfigurationError(
            f"{verb}: {name} must be at least {least}", received=f"{number}", write=f"{name}={least}"
        )
    return number


def check_call(model: Any, method: Any, observers: Any, verb: str = "fit") -> None:
    """Refuse what is no model, no method or no list of observers."""
    own, rest = (", grid", ", method, grid") if verb == "sweep" else ("", "")
    if not isinstance(model, Model):
        raise ConfigurationError(
            f"{verb} needs a model",
            received=f"a {type(model).__name__}",
            write=f"bp.{verb}(bp.Model(network, likelihood=...), data{rest})",
        )
    if isinstance(method, torch.Tensor) or hasattr(method, "__array__"):
        raise ConfigurationError(
            f"{verb} takes inputs and targets as one pair",
            received="an array where the method belongs",
            write=f"bp.{verb}(model, (inputs, targets){rest})",
        )
    if isinstance(method, tuple | list | Dataset | DataLoader | Data | Stream):
        raise ConfigurationError(
            f"{verb} takes the data first and the method after them",
            received=f"a {type(method).__name__} where the method belongs",
            write=f"bp.{verb}(model, (inputs, targets), bp.inference.BayesByBackprop(){own})",
        )
    if isinstance(method, type) or not isinstance(method, Method):
        name = method.__name__ if isinstance(method, type) and isinstance(method, Method) else "BayesByBackprop"
        raise ConfigurationError(
            f"{verb} needs a method",
            received=f"the class {method.__name__}" if isinstance(method, type) else repr(method),
            expected="an object of it" if isinstance(method, type) else "",
            write=f"bp.{verb}(model, data, bp.inference.{name}(){own})",
        )
    if not isinstance(observers, Sequence) or not all(callable(observer) for observer in observers):
        raise ConfigurationError(
            f"{verb}: observers are a list of functions of an event",
            received=repr(observers),
            write="observers=[print]",
        )


def rows_per_step(batch_size: Any, method: Method) -> int | None:
    """Rows of a minibatch; None for all of them."""
    if isinstance(batch_size, str) and batch_size == "auto":
        return None if method.needs_all_rows else ROWS
    if batch_size is not None and method.needs_all_rows:
        raise ConfigurationError(
            f"{type(method).__name__} looks at all rows in each step",
            received=f"batch_size={batch_size}",
            expected="all rows at once, or a method for minibatches: " + ", ".join(_for_minibatches()),
            write="batch_size=None",
        )
    return None if batch_size is None else whole_number("batch_size", batch_size)


def _for_minibatches() -> list[str]:
    return sorted(
        name
        for name, known in vars(inference).items()
        if isinstance(known, type) and hasattr(known, "update") and known.needs_all_rows is False
    )


def check_stream(count: int | None, data: Any, method: Method) -> None:
    """Refuse batches of a stream for a method that needs all rows at once."""
    if method.needs_all_rows and isinstance(data, Stream) and count != 1:
        raise ConfigurationError(
            f"{type(method).__name__} looks at all rows in each step, and a stream brings a part of them",
            received=repr(data),
            expected="data in memory, or a method for minibatches: " + ", ".join(_for_minibatches()),
            write="bp.fit(model, (inputs, targets), ...)",
        )


def population(starts: int, method: Method) -> int:
    """How many particles are trained: the method's own members or chains, or independent starts."""
    if starts > 1 and method.population > 1:
        raise ConfigurationError(
            f"{type(method).__name__} trains {method.population} particles and keeps them all",
            received=f"starts={starts}, which keeps the best of several",
            write="starts=1",
        )
    return max(starts, method.population)


def check_settings(
    *, patience: int | None, validation: Any, resume: bool, checkpoint: Any, autocast: Any, verb: str = "fit"
) -> None:
    """Refuse arguments that need one another, and a precision that is none."""
    if patience is not None and validation is None:
        raise ConfigurationError(
            f"{verb}: early stopping needs data to decide on", received=f"patience={patience}", write="validation=0.1"
        )
    if resume and checkpoint is None:
        raise ConfigurationError(
            f"{verb}: there is no file to resume from",
            received="resume=True",
            write='checkpoint="run.ckpt", resume=True',
        )
    if checkpoint is not None:
        _check_path(checkpoint, verb)
    if autocast not in (None, torch.bfloat16, torch.float16):
        raise ConfigurationError(
            f"{verb}: autocast is the dtype of the forward pass",
            received=repr(autocast),
            write="autocast=torch.bfloat16",
        )


def _check_path(checkpoint: Any, verb: str) -> None:
    """Refuse what cannot become a file: it would be found out when there is something to lose."""
    if not isinstance(checkpoint, str | os.PathLike):
        raise ConfigurationError(
            f"{verb}: a checkpoint is the path of a file", received=repr(checkpoint), write='checkpoint="run.ckpt"'
        )
    if os.path.isdir(checkpoint):
        raise ConfigurationError(
            f"{verb}: a checkpoint is a file and not a folder",
            received=f"checkpoint={os.fspath(checkpoint)!r}",
            write=f'checkpoint="{os.path.join(os.fspath(checkpoint), "run.ckpt")}"',
        )
