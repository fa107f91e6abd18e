"""Batches that somebody else makes, usually a DataLoader, with N and without touching the user's generator.

A DataLoader that shuffles, and a transform that augments, draw from torch's global generator. Here each batch is
fetched with a private state of that generator, a function of (seed, number of the batch), and the user's state is put
back at once. So an epoch is a function of its seed and a run can resume, and the user's own numbers stay as they were.
Generators that were given to a DataLoader or to its sampler are treated in the same way.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, SubsetRandomSampler

from bayesprop import rng
from bayesprop.data.labels import encode_labels
from bayesprop.data.tensors import Inputs, check_finite, each, first, num_rows, to_inputs
from bayesprop.errors import ConfigurationError, DataError

__all__ = ["Stream"]


class Stream:
    """A DataLoader, or any iterable that gives (inputs, targets) anew each time it is iterated.

    Batches may differ in size; N / n times the log-likelihood of a batch of n is its scale. A DataLoader's workers get
    their seeds from the epoch's seed too, except with persistent_workers=True: those keep their own state from epoch to
    epoch, so that random transforms in them are not the same after a resume.

    Args:
        batches: what is iterated once per epoch.
        num_data: N, the number of examples behind it; a DataLoader over a dataset with a length knows it. With
            SubsetRandomSampler it is the size of the subset, otherwise of the dataset: drop_last and other samplers
            choose among the same examples.
        classes: the labels in their order, when targets are text.
    """

    scaling = None

    def __init__(self, batches: Iterable[Any], num_data: int | None = None, *, classes: Sequence[Any] | None = None):
        if isinstance(batches, Iterator):
            raise DataError(
                "an iterator is used up after one epoch",
                received=f"a {type(batches).__name__}",
                expected="an object whose __iter__ starts anew, such as a list or a DataLoader",
                write="Stream(list(batches), num_data=...)",
            )
        if not isinstance(batches, Iterable):
            raise DataError("a Stream iterates over batches", received=f"a {type(batches).__name__}")
        self.batches = batches
        self.num_data = _length(batches) if num_data is None else _checked(num_data)
        self.classes = list(classes) if classes is not None else None
        self.device: torch.device | None = None

    def __repr__(self) -> str:
        return f"Stream({type(self.batches).__name__}, num_data={self.num_data})"

    def to(self, device: torch.device | str) -> Stream:
        """The same stream; its batches are moved to `device` as they come."""
        moved = Stream(self.batches, self.num_data, classes=self.classes)
        moved.device = torch.device(device)
        return moved

    def with_num_data(self, num_data: int) -> Stream:
        """The same stream with another N."""
        made = Stream(self.batches, num_data, classes=self.classes)
        made.device = self.device
        return made

    def batches_per_epoch(self, batch_size: int | None = None) -> int | None:
        """The number of batches if it is known before they are counted; the batch size is the DataLoader's own."""
        try:
            return len(self.batches) if isinstance(self.batches, Sized) else None
        except TypeError:  # a DataLoader over a dataset without a length has __len__, but it raises
            return None

    def epoch(self, seed: int) -> Iterator[tuple[Inputs, Tensor]]:
        """All batches once, in the order that `seed` gives: inputs (n, ...) and targets (n, ...)."""
        if hasattr(getattr(self.batches, "sampler", None), "set_epoch"):
            # DistributedSampler shuffles by this number alone and not by the generator.
            self.batches.sampler.set_epoch(seed & 0x3FFFFFFF)  # type: ignore[attr-defined]
        with self._private(seed, 0):
            iterator = iter(self.batches)
        number = 0
        while True:
            with self._private(seed, number):
                try:
                    batch = next(iterator)
                except StopIteration:
                    break
            yield self._checked_batch(batch, number)
            number += 1
        if number == 0:
            raise DataError(
                "the data are empty",
                received=f"no batch from a {type(self.batches).__name__}",
                expected="at least one batch; drop_last=True leaves none when there are fewer rows than a batch has",
            )

    def example(self, seed: int = 0) -> tuple[Inputs, Tensor]:
        """One batch, for checks before training."""
        epoch = self.epoch(seed)
        batch = next(epoch)
        epoch.close()  # type: ignore[attr-defined]
        return batch

    @contextlib.contextmanager
    def _private(self, seed: int, number: int) -> Iterator[None]:
        """Torch's generator and those given to the DataLoader, in a state that (seed, number) decides."""
        state = rng.member_seed(seed, number)
        given = _generators(self.batches)
        before = [generator.get_state() for generator in given]
        with rng.quarantine(state):
            for generator in given:
                generator.manual_seed(state)
            try:
                yield
            finally:
                for generator, saved in zip(given, before, strict=True):
                    generator.set_state(saved)

    def _checked_batch(self, batch: Any, number: int) -> tuple[Inputs, Tensor]:
        where = f" in batch {number}"
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            size = f" of {len(batch)}" if isinstance(batch, tuple | list | dict) else ""
            raise DataError(
                f"there are no targets{where}",
                received=f"a {type(batch).__name__}{size}",
                expected="batches (inputs, targets)",
                write="collate_fn=lambda items: (inputs, targets), given to the DataLoader",
            )
        raw = tuple(batch[0]) if isinstance(batch[0], list) else batch[0]
        inputs, targets = to_inputs(raw), encode_labels(batch[1], self.classes)
        rows = num_rows(inputs)
        if targets.dim() == 0 or targets.shape[0] != rows or rows == 0:
            raise DataError(
                f"inputs and targets have different numbers of rows, or none{where}",
                received=f"{rows} rows of inputs, targets of shape {list(targets.shape)}",
                expected="one target for each row of inputs",
            )
        if first(inputs).device.type == "cpu":  # elsewhere the check would make the device wait
            check_finite(inputs, where=where)
        if self.device is None:
            return inputs, targets
        device = self.device
        return each(inputs, lambda tensor: tensor.to(device, non_blocking=True)), targets.to(device, non_blocking=True)


def _checked(num_data: Any) -> int:
    whole = hasattr(num_data, "__index__") and not isinstance(num_data, bool)
    if not whole or operator.index(num_data) < 1:
        raise ConfigurationError(
            "num_data is the number of examples", received=repr(num_data), expected="an integer of at least 1"
        )
    return operator.index(num_data)


def _length(batches: Iterable[Any]) -> int:
    """N of a DataLoader; anything else has to say it."""
    if isinstance(batches, DataLoader):
        counted = batches.sampler if isinstance(batches.sampler, SubsetRandomSampler) else batches.dataset
        with contextlib.suppress(TypeError):
            return _positive(len(counted), batches)  # type: ignore[arg-type]
    raise DataError(
        f"how many examples are there behind this {type(batches).__name__}? The likelihood is scaled by that number",
        expected="num_data, since its length is unknown",
        write="fit(model, batches, ..., num_data=<number of examples>), or Stream(batches, num_data=...)",
    )


def _positive(count: int, batches: DataLoader[Any]) -> int:
    if count == 0:
        raise DataError("the data are empty", received=f"a DataLoader over an empty {type(batches.dataset).__name__}")
    return count


def _generators(batches: Any) -> list[torch.Generator]:
    """The generators that a DataLoader, its sampler and its batch sampler were given, each once."""
    owners = [batches, getattr(batches, "sampler", None)]
    batch_sampler = getattr(batches, "batch_sampler", None)
    owners += [batch_sampler, getattr(batch_sampler, "sampler", None)]
    found: list[torch.Generator] = []
    for owner in owners:
        generator = getattr(owner, "generator", None)
        if isinstance(generator, torch.Generator) and not any(generator is other for other in found):
            found.append(generator)
    return found
