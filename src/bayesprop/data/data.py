"""Examples that know how many they are: N scales the likelihood, so it travels with the data.

Data(X, y)                     tensors, arrays, lists or tables; everything stays in memory
Data(X, y, standardize=True)   zero mean and unit deviation inside, the user's own units outside
as_data(anything)              the same from (X, y), a torch Dataset or a DataLoader
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from bayesprop import rng
from bayesprop.data.dataset import stack
from bayesprop.data.labels import encode_labels, find_classes
from bayesprop.data.scaling import Scaling, Standardize
from bayesprop.data.stream import Stream
from bayesprop.data.tensors import Inputs, check_finite, column_names, each, first, num_rows, to_inputs
from bayesprop.errors import ConfigurationError, DataError

__all__ = ["Data", "Scaling", "as_data"]


class Data:
    """Inputs and targets in memory, on one device, with the same number of rows N.

    Inputs are one tensor (N, ...), or a dict or tuple of such tensors for a network with several arguments. Types are
    kept: the model decides what its network takes. Inputs must be finite; whether targets are is the likelihood's
    question. Labels that are text become integers, and `classes` remembers their names. Memory is shared with what was
    passed where that is possible, so do not change it during training.

    Args:
        standardize: True for inputs and floating-point targets, "inputs" or "targets" for one of them. `scaling` then
            holds the means and deviations, and predictions come back in the original units.
        classes: the labels in their order, when not all of them occur in the targets or integers shall have names.
    """

    def __init__(
        self,
        inputs: Any,
        targets: Any,
        *,
        standardize: Standardize = False,
        classes: Sequence[Any] | None = None,
    ) -> None:
        if standardize not in (True, False, "inputs", "targets"):
            raise ConfigurationError(
                "standardize says which side is brought to mean 0 and deviation 1",
                received=repr(standardize),
                expected='True, False, "inputs" or "targets"',
            )
        names = list(classes) if classes is not None else find_classes(targets)
        tensors, encoded = to_inputs(inputs), encode_labels(targets, names)
        rows = num_rows(tensors)
        _check_lengths(rows, encoded)
        check_finite(tensors, columns=column_names(inputs))
        device = first(tensors).device
        tensors, encoded = each(tensors, lambda tensor: tensor.to(device)), encoded.to(device)
        scaling = None
        if standardize:
            scaling = Scaling.of(tensors, encoded, standardize).to(device)
            tensors, encoded = scaling.scale_inputs(tensors), scaling.scale_targets(encoded)
        self._set(tensors, encoded, names, scaling, standardize)

    def _set(
        self,
        inputs: Inputs,
        targets: Tensor,
        classes: list[Any] | None,
        scaling: Scaling | None,
        standardize: Standardize,
    ) -> None:
        self.inputs = inputs
        self.targets = targets
        self.classes = classes
        self.scaling = scaling
        self._standardize: Standardize = standardize

    def _with(self, inputs: Inputs, targets: Tensor, scaling: Scaling | None) -> Data:
        """Rows that have been checked already."""
        made = object.__new__(Data)
        made._set(inputs, targets, self.classes, scaling, self._standardize)
        return made

    @property
    def num_data(self) -> int:
        """N, the number of examples."""
        return self.targets.shape[0]

    def __len__(self) -> int:
        return self.num_data

    @property
    def device(self) -> torch.device:
        return self.targets.device

    def __repr__(self) -> str:
        def shape(tensor: Tensor) -> str:
            return f"{list(tensor.shape[1:])} {str(tensor.dtype).removeprefix('torch.')}"

        if isinstance(self.inputs, Tensor):
            inputs = shape(self.inputs)
        else:
            items = self.inputs.items() if isinstance(self.inputs, dict) else enumerate(self.inputs)
            inputs = ", ".join(f"{name}: {shape(tensor)}" for name, tensor in items)
        parts = [f"{self.num_data} rows", f"inputs {inputs}", f"targets {shape(self.targets)}"]
        if self.classes is not None:
            parts.append(f"{len(self.classes)} classes")
        if self.scaling is not None:
            parts.append("standardized")
        return f"Data({', '.join(parts)})"

    def to(self, device: torch.device | str) -> Data:
        """The same data on another device."""
        scaling = self.scaling.to(device) if self.scaling is not None else None
        return self._with(each(self.inputs, lambda tensor: tensor.to(device)), self.targets.to(device), scaling)

    def rows(self, index: slice | Tensor) -> Data:
        """Some of the rows, scaled as they are here."""
        targets = self.targets[index]
        if targets.dim() != self.targets.dim() or targets.shape[0] == 0:
            raise DataError("these are no rows", received=repr(index), expected="a slice or a vector of row numbers")
        return self._with(each(self.inputs, lambda tensor: tensor[index]), targets, self.scaling)

    def split(self, fraction: float, seed: int = 0) -> tuple[Data, Data]:
        """(train, validation): a random `fraction` of the rows for validation, a function of the seed alone.

        If the data are standardised, means and deviations are measured again on the training rows only, and the
        validation rows are scaled with them: nothing of the validation rows reaches training.
        """
        count = round(fraction * self.num_data) if 0 < fraction < 1 else 0
        if not 0 < count < self.num_data:
            raise DataError(
                "a split needs rows on both sides",
                received=f"fraction {fraction} of {self.num_data} rows",
                expected="a fraction between 0 and 1 that leaves at least one row for each side",
            )
        order = rng.Rng.create(seed, device=self.device).permutation(self.num_data, rng.Stream.SPLIT)[0]
        validation, train = (self.rows(part.sort().values) for part in (order[:count], order[count:]))
        if self.scaling is None:
            return train, validation
        inputs, targets = train.original()
        scaling = Scaling.of(inputs, targets, self._standardize).to(self.device)
        train = self._with(scaling.scale_inputs(inputs), scaling.scale_targets(targets), scaling)
        return train, validation.like(train)

    def original(self) -> tuple[Inputs, Tensor]:
        """Inputs and targets in the user's own units."""
        if self.scaling is None:
            return self.inputs, self.targets
        return self.scaling.unscale_inputs(self.inputs), self.scaling.unscale_targets(self.targets)

    def like(self, training: Data) -> Data:
        """These rows in the scale and with the labels of `training`: what was learnt there can be scored on them."""
        if self.scaling is training.scaling and self.classes == training.classes:
            return self
        inputs, targets = self.original()
        if self.classes != training.classes:
            if training.classes is None:
                raise DataError(
                    "the training data have no classes",
                    received=f"labels such as {self.classes[0]!r}" if self.classes else "no classes here either",
                    expected="the same kind of targets in both",
                )
            labels = targets if self.classes is None else [self.classes[i] for i in targets.reshape(-1).tolist()]
            targets = encode_labels(labels, training.classes).reshape(targets.shape).to(self.device)
        if training.scaling is not None:
            scaling = training.scaling.to(self.device)
            inputs, targets = scaling.scale_inputs(inputs), scaling.scale_targets(targets)
        made = self._with(inputs, targets, training.scaling)
        made.classes, made._standardize = training.classes, training._standardize
        return made

    def with_tensors(self, inputs: Inputs, targets: Tensor) -> Data:
        """The same rows as a model has prepared them: other types or another device, the same scaling; not checked."""
        return self._with(inputs, targets, self.scaling)

    def batches_per_epoch(self, batch_size: int | None) -> int:
        """M = ceil(N / B); None is one batch with everything."""
        if batch_size is None:
            return 1
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ConfigurationError(
                "the batch size is a number of rows",
                received=repr(batch_size),
                expected="an integer of at least 1, or None for all rows",
            )
        return math.ceil(self.num_data / batch_size)

    def rows_per_batch(self, batch_size: int | None) -> int:
        """b = ceil(N / M), the rows that every batch of an epoch really has: at most B, and the same for all."""
        return math.ceil(self.num_data / self.batches_per_epoch(batch_size))

    def batch(self, order: Tensor, index: int, batch_size: int | None) -> tuple[Inputs, Tensor]:
        """Batch number `index` of an epoch: inputs (P, b, ...) and targets (P, b, ...) for P particles.

        `order` (P, N) holds one permutation of the rows for each particle. The M batches have b rows each; the last one
        takes what it lacks from the beginning of the same permutation. So all shapes are equal, and since every
        position of a random permutation is a uniform row, N / b times a batch's log-likelihood is unbiased.
        """
        rows, count = self.rows_per_batch(batch_size), self.batches_per_epoch(batch_size)
        if order.dim() != 2 or order.shape[1] != self.num_data:
            raise ConfigurationError(
                "an order is one permutation of all rows for each particle",
                received=f"shape {tuple(order.shape)}",
                expected=f"shape (particles, {self.num_data})",
            )
        if not 0 <= index < count:
            raise ConfigurationError(f"batch {index} of an epoch of {count}", expected=f"0 to {count - 1}")
        start, stop = index * rows, (index + 1) * rows
        chosen = order[:, start:stop]
        if stop > self.num_data:
            chosen = torch.cat([chosen, order[:, : stop - self.num_data]], dim=1)
        return each(self.inputs, lambda tensor: tensor[chosen]), self.targets[chosen]


def as_data(source: Any, num_data: int | None = None) -> Data | Stream:
    """Data or a Stream from whatever was given; see the module's beginning.

    `num_data` is for sources that do not know their length. A torch Dataset is read once into memory, with its
    transforms; one whose items change from reading to reading is refused, since augmentation needs a DataLoader.
    """
    found = _convert(source, num_data)
    if isinstance(found, Data) and num_data not in (None, found.num_data):
        raise DataError(
            "num_data is not the number of rows",
            received=f"num_data={num_data} and {found.num_data} rows",
            expected="no num_data: data in memory know their number",
        )
    return found


def _convert(source: Any, num_data: int | None) -> Data | Stream:
    if isinstance(source, Data):
        return source
    if isinstance(source, Stream):
        return source if num_data is None else source.with_num_data(num_data)
    if isinstance(source, DataLoader):
        return Stream(source, num_data)
    if isinstance(source, tuple):
        if len(source) != 2:
            raise DataError("data are a pair", received=f"a tuple of {len(source)}", expected="(inputs, targets)")
        return Data(*source)
    if isinstance(source, IterableDataset):
        raise DataError(
            "an IterableDataset has no rows to choose from",
            expected="a DataLoader that makes its batches",
            write="fit(model, DataLoader(dataset, batch_size=128), ..., num_data=<number of examples>)",
        )
    if isinstance(source, Dataset) or (hasattr(source, "__getitem__") and not _is_array(source)):
        return Data(*stack(source))
    if isinstance(source, Iterable) and not _is_array(source):
        return Stream(source, num_data)
    raise DataError(
        "these are no data",
        received=f"a {type(source).__name__}",
        expected="(inputs, targets), Data, a torch Dataset or a DataLoader",
        write="fit(model, (inputs, targets), ...)",
    )


def _is_array(source: Any) -> bool:
    return isinstance(source, Tensor | str | bytes | list | dict) or hasattr(source, "shape")


def _check_lengths(rows: int, targets: Tensor) -> None:
    if targets.dim() == 0:
        raise DataError("targets is a single number", expected="one target for each example")
    if rows != targets.shape[0]:
        flat = targets.numel() == rows
        raise DataError(
            "inputs and targets have different numbers of rows",
            received=f"{rows} rows of inputs and {targets.shape[0]} targets (shape {list(targets.shape)})",
            expected="one target for each row of inputs",
            write="targets.reshape(-1)" if flat else "",
        )
    if rows == 0:
        raise DataError("the data are empty", received="0 rows", expected="at least one example")
