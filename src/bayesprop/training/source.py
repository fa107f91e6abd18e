"""Minibatches for all particles of a population, epoch by epoch, in an order that (seed, epoch) decides."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesprop.data import Data, Stream
from bayesprop.errors import MemoryBudgetError
from bayesprop.model import Batch, Model
from bayesprop.rng import Rng
from bayesprop.rng import Stream as Purpose

__all__ = ["Source"]


class Source:
    """Turns data into `Batch`es on the model's device. Data that fit stay there; a stream moves batch by batch."""

    def __init__(self, data: Data | Stream, model: Model, *, batch_size: int | None, epochs: int, rng: Rng) -> None:
        self.model, self.rng, self.epochs = model, rng, epochs
        self.batch_size = batch_size
        self.num_data = data.num_data
        self._outputs: Tensor | None = None
        if isinstance(data, Data):
            _check_memory(data, model.device)
            inputs, targets = model.prepare_inputs(data.inputs), model.likelihood.encode(data.targets).to(model.device)
            self.data: Data | Stream = data.with_tensors(inputs, targets)
            self.count: int | None = data.batches_per_epoch(batch_size)
        else:
            self.data = data
            self.count = data.batches_per_epoch()

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
        return self._outputs

    def epoch(self, epoch: int, skip: int = 0) -> Iterator[Batch]:
        """The batches of one epoch; `skip` of them were already seen before an interruption."""
        if isinstance(self.data, Stream):
            yield from self._streamed(self.data, epoch, skip)
            return
        assert self.count is not None
        everything = self.count == 1
        order = None if everything else self.rng.at(epoch).permutation(self.num_data, Purpose.ORDER)
        for index in range(skip, self.count):
            if order is None:
                inputs, targets = pytree.tree_map(self._for_all, (self.data.inputs, self.data.targets))
            else:
                inputs, targets = self.data.batch(order, index, self.batch_size)
            progress = (epoch + index / self.count) / self.epochs
            yield Batch(inputs, targets, self.num_data, index, self.count, epoch, progress)

    def _for_all(self, tensor: Tensor) -> Tensor:
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
            wide_inputs, wide_targets = pytree.tree_map(self._for_all, ready)
            progress = (epoch + min(index / count, 1.0)) / self.epochs
            yield Batch(wide_inputs, wide_targets, self.num_data, index, max(count, index + 1), epoch, progress)


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
