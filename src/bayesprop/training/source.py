"""Minibatches for all particles of a population, epoch by epoch, in an order that (seed, epoch) decides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesprop.data import Data, Stream
from bayesprop.errors import DataError, MemoryBudgetError
from bayesprop.model import Batch, Model, Place
from bayesprop.rng import Rng
from bayesprop.rng import Stream as Purpose

__all__ = ["Source"]

# Chosen on validation parts of boston, concrete, energy and yacht: with half the steps energy and yacht are not done.
STEPS = 20_000
LEAST_EPOCHS = 20


class Source:
    """Turns data into `Batch`es on the model's device. Data that fit stay there; a stream moves batch by batch.

    With `bootstrap` each particle has N rows of its own, drawn with replacement (`drawn`), for the whole training.
    `epochs` None becomes as many as make `steps`, or where that is None, too, 20,000 steps and at least 20 epochs.
    """

    def __init__(
        self,
        data: Data | Stream,
        model: Model,
        *,
        batch_size: int | None,
        epochs: int | None,
        rng: Rng,
        steps: int | None = None,
        bootstrap: bool = False,
    ) -> None:
        self.model, self.rng = model, rng
        self.batch_size = batch_size
        self.num_data = data.num_data
        self._outputs: Tensor | None = None
        self.drawn: Tensor | None = None
        _check_kind(data, model)
        if isinstance(data, Data):
            _check_memory(data, model.device)
            inputs, targets = model.prepare_inputs(data.inputs), model.likelihood.encode(data.targets).to(model.device)
            self.data: Data | Stream = data.with_tensors(inputs, targets)
            self.count: int | None = data.batches_per_epoch(batch_size)
        else:
            self.data = data
            self.count = data.batches_per_epoch()
        if bootstrap:
            _check_bootstrap(self.data)
            self.drawn = rng.rows(self.num_data, Purpose.BOOTSTRAP)
        self.epochs = self._enough_epochs(steps) if epochs is None else epochs

    def _enough_epochs(self, steps: int | None) -> int:
        """Small data need many epochs: what counts for an optimiser are its steps."""
        count = self.count
        if count is None and isinstance(self.data, Stream):
            count = -(-self.num_data // self.data.example()[1].shape[0])
        count = max(1, count or 1)
        return max(LEAST_EPOCHS, -(-STEPS // count)) if steps is None else max(1, -(-steps // count))

    def probe(self, rows: int = 8) -> Tensor:
        """`Model.probe` on a few rows, no more than a batch has, and on all targets that are known before training."""
        if isinstance(self.data, Data):
            rows = min(rows, self.data.rows_per_batch(self.batch_size))
            inputs, targets = pytree.tree_map(lambda t: t[:rows], self.data.inputs), self.data.targets
        else:
            raw, targets = self.data.example()
            inputs = self.model.prepare_inputs(pytree.tree_map(lambda t: t[:rows], raw))
            targets = self.model.likelihood.encode(targets).to(self.model.device)
        self._outputs = self.model.probe(inputs, targets)
        _check_classes(self.data.classes, self.model, self._outputs)
        return self._outputs

    def epoch(self, epoch: int, skip: int = 0) -> Iterator[Batch]:
        """The batches of one epoch; `skip` of them were already seen before an interruption."""
        if isinstance(self.data, Stream):
            yield from self._streamed(self.data, epoch, skip)
            return
        assert self.count is not None
        everything = self.count == 1
        order = None if everything else self.rng.at(epoch).permutation(self.num_data, Purpose.ORDER)
        if self.drawn is not None:
            order = self.drawn if order is None else self.drawn.gather(1, order)
        for index in range(skip, self.count):
            if order is None:
                inputs, targets = pytree.tree_map(self.for_all, (self.data.inputs, self.data.targets))
            else:
                inputs, targets = self.data.batch(order, index, self.batch_size)
            yield Batch(inputs, targets, self.num_data, **vars(self.place(epoch, index)))

    def place(self, epoch: int, index: int) -> Place:
        """Where step number `index` of an epoch is, for data whose number of batches is known."""
        assert self.count is not None
        progress = (epoch + index / self.count) / self.epochs
        return Place(index=index, count=self.count, epoch=epoch, epochs=self.epochs, progress=progress)

    def for_all(self, tensor: Tensor) -> Tensor:
        """One leading axis for the particles, without a copy."""
        return tensor.unsqueeze(0).expand(self.rng.particles, *tensor.shape)

    def _streamed(self, stream: Stream, epoch: int, skip: int) -> Iterator[Batch]:
        seed, count = self.rng.at(epoch).integer(Purpose.ORDER), self.count
        for index, (inputs, raw) in enumerate(stream.epoch(seed)):
            targets = self.model.likelihood.encode(raw)
            # A stream that does not know its length: as many batches as the first of them fits into N.
            count = count or -(-self.num_data // targets.shape[0])
            if index < skip:
                continue
            if self._outputs is not None:  # labels out of range would be an error somewhere inside torch
                self.model.likelihood.check(self._outputs[: targets.shape[0]].to(targets.device), targets)
            ready = self.model.prepare_inputs(inputs), targets.to(self.model.device)
            wide_inputs, wide_targets = pytree.tree_map(self.for_all, ready)
            progress = (epoch + min(index / count, 1.0)) / self.epochs
            place = Place(index=index, count=max(count, index + 1), epoch=epoch, epochs=self.epochs, progress=progress)
            yield Batch(wide_inputs, wide_targets, self.num_data, **vars(place))


def _check_kind(data: Data | Stream, model: Model) -> None:
    """Refuse targets that the likelihood would take for something else: names as quantities, quantities as names."""
    likelihood = model.likelihood
    if data.classes is not None and likelihood.task != "classification":
        raise DataError(
            f"{likelihood!r} needs numbers as targets",
            received=f"names of classes, such as {data.classes[0]!r}",
            write="bp.Model(network, likelihood=bp.likelihoods.Categorical())  # or targets that are numbers",
        )
    if data.scaling is not None and data.scaling.scales_targets and likelihood.task != "regression":
        raise DataError(
            f"{likelihood!r} needs its targets as they are",
            received="standardised targets",
            expected="labels or counts; only inputs may be standardised",
            write='bp.Data(inputs, targets, standardize="inputs")',
        )


def _check_bootstrap(data: Data | Stream) -> None:
    """Refuse to draw rows from what passes by."""
    if isinstance(data, Stream):
        raise DataError(
            "a bootstrap draws rows with replacement, and a stream brings each of them once",
            received=repr(data),
            expected="data in memory",
            write="DeepEnsemble(MAP(), bootstrap=False)",
        )


def _check_classes(classes: list[Any] | None, model: Model, outputs: Tensor) -> None:
    """Refuse names that are fewer than the classes of the network: the others could be predicted and not be named."""
    if classes is None:
        return
    count = model.likelihood.mean(outputs, {}).shape[1]
    if len(classes) != count:
        raise DataError(
            f"the network tells {count} classes apart, and {len(classes)} have names",
            received=f"classes {', '.join(map(repr, classes[:10]))}",
            expected=f"{count} names, or a last layer for {len(classes)} classes",
            write="bp.Data(inputs, targets, classes=[...])  # every class, also those that do not occur",
        )


def _check_memory(data: Data, device: torch.device) -> None:
    """Refuse data that would fill the device before a single step is taken."""
    if device.type != "cuda" or data.device == device:
        return
    needed = sum(t.numel() * t.element_size() for t in pytree.tree_leaves((data.inputs, data.targets)))
    free, _ = torch.cuda.mem_get_info(device)
    if needed > 0.8 * free:
        raise MemoryBudgetError(
            "the data do not fit on the device",
            received=f"{needed / 2**30:.1f} GiB of data, {free / 2**30:.1f} GiB free on {device}",
            expected="data that fit, or a DataLoader that brings them batch by batch",
            write="bp.fit(model, torch.utils.data.DataLoader(dataset, batch_size=128, shuffle=True), ...)",
        )
