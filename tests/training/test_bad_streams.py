"""Batches that somebody else makes: each stream works as one would expect, or is refused with what to write instead."""

from __future__ import annotations

import math

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import bayesprop as bp
from bayesprop.errors import ConfigurationError, DataError

from .attempts import INPUTS, LABELS, ROWS, attempt, said, same


class Endless(IterableDataset):
    """Examples that nobody has counted."""

    def __iter__(self):
        return zip(INPUTS, LABELS.tolist(), strict=True)


def test_a_loader_whose_length_is_unknown():
    loader = DataLoader(Endless(), batch_size=4)
    message = said(DataError, lambda: attempt(loader))
    assert message.startswith("how many examples are there behind this DataLoader?")
    assert "num_data=<number of examples>" in message
    posterior = attempt(loader, num_data=ROWS)
    assert posterior.context.num_data == ROWS
    # The same batches with the length known: N, and with it the scale of the likelihood, is the same.
    same(posterior, attempt(DataLoader(TensorDataset(INPUTS, LABELS), batch_size=4)))


@pytest.mark.parametrize("number", [0, -1, 2.5, True])
def test_a_length_that_is_none(number):
    message = said(ConfigurationError, lambda: attempt(DataLoader(Endless(), batch_size=4), num_data=number))
    assert message.startswith("num_data is the number of examples")


def test_a_wrong_length_of_data_in_memory():
    message = said(DataError, lambda: attempt((INPUTS, LABELS), num_data=19))
    assert "num_data=19 and 20 rows" in message


def test_examples_one_by_one():
    message = said(DataError, lambda: attempt(Endless()))
    assert "write: fit(model, DataLoader(dataset, batch_size=128), ..., num_data=" in message
    message = said(DataError, lambda: attempt(((INPUTS, LABELS) for _ in range(3)), num_data=ROWS))
    assert message.startswith("an iterator is used up after one epoch")
    assert "write: Stream(list(batches), num_data=...)" in message
    batches = [(INPUTS[i : i + 4], LABELS[i : i + 4]) for i in range(0, ROWS, 4)]
    assert attempt(bp.data.Stream(batches, num_data=ROWS)).context.num_data == ROWS


def test_batches_of_the_wrong_kind():
    unlabelled = DataLoader(TensorDataset(INPUTS), batch_size=4)
    assert said(DataError, lambda: attempt(unlabelled)).startswith("there are no targets in batch 0")
    triple = DataLoader(TensorDataset(INPUTS, INPUTS, LABELS), batch_size=4)
    assert "expected: batches (inputs, targets)" in said(DataError, lambda: attempt(triple))


def test_a_dataset_that_changes_from_reading_to_reading():
    class Augmented(Dataset):
        def __len__(self):
            return 5

        def __getitem__(self, index):
            return INPUTS[index] + torch.randn(3), 1

    message = said(DataError, lambda: attempt(Augmented()))
    assert "write: fit(model, DataLoader(dataset, batch_size=128, shuffle=True), ...)" in message
    assert attempt(DataLoader(Augmented(), batch_size=5)).context.num_data == 5


def test_a_loader_that_drops_its_only_batch():
    loader = DataLoader(TensorDataset(INPUTS, LABELS), batch_size=64, drop_last=True)
    message = said(DataError, lambda: attempt(loader))
    assert message.startswith("the data are empty")
    assert "drop_last=True leaves none" in message


def test_inputs_of_a_later_batch_that_are_not_finite():
    inputs = INPUTS.clone()
    inputs[13, 1] = math.nan
    loader = DataLoader(TensorDataset(inputs, LABELS), batch_size=5)
    message = said(DataError, lambda: attempt(loader))
    assert message.startswith("inputs has a value that is not finite in batch 2")
    assert "nan at row 3, column 1" in message
