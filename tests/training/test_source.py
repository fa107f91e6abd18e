"""Minibatches: every row as often as every other, in an order that (seed, epoch) decides, for all particles at once."""

from __future__ import annotations

import types

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.data import Data, Stream
from bayesprop.errors import DataError, MemoryBudgetError
from bayesprop.rng import Rng
from bayesprop.training import source as module
from bayesprop.training.source import Source


@pytest.fixture
def numbered(model):
    """A source over rows that are called 0, 1, ..., by their targets, for two particles."""

    def make(
        rows: int = 10, batch_size: int | None = 4, *, particles: int = 2, seed: int = 0, epochs: int = 2
    ) -> Source:
        inputs = torch.arange(3.0 * rows).reshape(rows, 3)
        data = Data(inputs, inputs[:, 0] / 3.0)
        return Source(data, model(), batch_size=batch_size, epochs=epochs, rng=Rng.create(seed, particles))

    return make


def rows_of(source: Source, epoch: int, seen: int = 0) -> list[torch.Tensor]:
    """Row numbers (particles, rows) of each batch."""
    return [batch.targets.long() for batch in source.epoch(epoch, seen)]


def test_every_batch_has_the_same_size_and_every_row_comes(numbered):
    """Ten rows in batches of at most 4: three of 4, the last of which takes two rows from the start of the order."""
    source = numbered()
    assert source.count == 3
    batches = list(source.epoch(0))
    assert [batch.targets.shape for batch in batches] == [(2, 4)] * 3
    assert [batch.inputs.shape for batch in batches] == [(2, 4, 3)] * 3
    for batch in batches:
        assert_close(batch.inputs[..., 0], 3.0 * batch.targets.double(), rtol=0.0, atol=0.0)
        assert batch.inputs.dtype == torch.float64  # that of the network
        assert batch.num_data == 10
        assert batch.rows == 4
    order = torch.cat([batch.targets for batch in batches], dim=1).long()
    for particle in range(2):
        assert sorted(order[particle, :10].tolist()) == list(range(10))
    assert_close(order[:, 10:], order[:, :2])
    assert order[0].tolist() != order[1].tolist()


def test_place_and_progress(numbered):
    source = numbered(epochs=4)
    for epoch in (0, 3):
        batches = list(source.epoch(epoch))
        assert [(batch.index, batch.count, batch.epoch) for batch in batches] == [(i, 3, epoch) for i in range(3)]
        assert [batch.progress for batch in batches] == pytest.approx([(epoch + i / 3) / 4 for i in range(3)])


def test_the_order_is_a_function_of_seed_and_epoch(numbered):
    source, again = numbered(), numbered()
    list(source.epoch(0))
    assert_close(rows_of(source, 1), rows_of(again, 1))
    assert not torch.equal(torch.cat(rows_of(source, 0), 1), torch.cat(rows_of(source, 1), 1))
    assert not torch.equal(torch.cat(rows_of(source, 0), 1), torch.cat(rows_of(numbered(seed=1), 0), 1))
    # The first particle sees the order that it would see alone.
    alone = torch.cat(rows_of(numbered(particles=1), 1), 1)
    assert_close(torch.cat(rows_of(source, 1), 1)[:1], alone)


@pytest.mark.parametrize("seen", [0, 1, 3])
def test_batches_that_were_seen_are_left_out(numbered, seen):
    source = numbered()
    assert_close(rows_of(source, 1, seen), rows_of(source, 1)[seen:])
    assert [batch.index for batch in source.epoch(1, seen)] == list(range(seen, 3))


@pytest.mark.parametrize("batch_size", [None, 10, 99])
def test_all_rows_at_once_keep_their_order_and_are_not_copied(numbered, batch_size):
    source = numbered(batch_size=batch_size)
    (batch,) = source.epoch(0)
    assert batch.targets.long().tolist() == [list(range(10))] * 2
    assert batch.inputs.data_ptr() == source.data.inputs.data_ptr()
    assert batch.inputs.stride()[0] == 0


def test_probing_takes_no_more_rows_than_a_batch(numbered):
    assert numbered().probe().shape == (4, 1)
    assert numbered(rows=20, batch_size=None).probe().shape == (8, 1)
    assert numbered(rows=3, batch_size=1).probe().shape == (1, 1)


# -- streams ----------------------------------------------------------------------------------------------------------


class Rows(IterableDataset):
    """Ten rows, of which nobody knows how many they are."""

    def __iter__(self):
        for row in range(10):
            yield torch.full((3,), 3.0 * row), float(row)


def streamed(model, batches, num_data=None, particles: int = 2, epochs: int = 2) -> Source:
    data = Stream(batches, num_data)
    return Source(data, model, batch_size=None, epochs=epochs, rng=Rng.create(0, particles))


def test_a_loader_of_known_length(model):
    dataset = TensorDataset(torch.arange(30.0).reshape(10, 3), torch.arange(10.0))
    source = streamed(model(), DataLoader(dataset, batch_size=4, shuffle=True))
    assert source.count == 3
    assert source.num_data == 10
    batches = list(source.epoch(1))
    assert [batch.rows for batch in batches] == [4, 4, 2]
    assert [batch.progress for batch in batches] == pytest.approx([(1 + i / 3) / 2 for i in range(3)])
    assert all(batch.inputs.dtype == torch.float64 and batch.num_data == 10 for batch in batches)
    rows = torch.cat([batch.targets for batch in batches], dim=1)
    assert sorted(rows[0].tolist()) == list(range(10))
    assert_close(rows[0], rows[1])  # particles share what comes from outside
    assert_close(rows_of(source, 1), [batch.targets.long() for batch in batches])
    assert not torch.equal(torch.cat(rows_of(source, 0), 1), rows.long())
    assert_close(rows_of(source, 1, 2), rows_of(source, 1)[2:])


def test_a_loader_of_unknown_length(model):
    source = streamed(model(), DataLoader(Rows(), batch_size=4), num_data=10)
    assert source.count is None
    batches = list(source.epoch(0))
    # ceil(10 / 4) = 3 batches are expected from the first of them.
    assert [(batch.index, batch.count, batch.rows) for batch in batches] == [(0, 3, 4), (1, 3, 4), (2, 3, 2)]
    assert [batch.progress for batch in batches] == pytest.approx([0.0, 1 / 6, 2 / 6])
    assert [batch.index for batch in source.epoch(0, 2)] == [2]


def test_more_batches_than_expected_stay_within_the_training(model):
    batches = list(streamed(model(), DataLoader(Rows(), batch_size=4), num_data=5).epoch(1))
    assert [(batch.index, batch.count) for batch in batches] == [(0, 2), (1, 2), (2, 3)]
    assert [batch.progress for batch in batches] == pytest.approx([0.5, 0.75, 1.0])


def test_later_batches_of_a_stream_are_checked_too():
    """Rows 4 to 7 have a label that the network does not know; the first batch did not show it."""
    made = bp.Model(nn.Linear(3, 2).double(), likelihood=likelihoods.Categorical())
    inputs, labels = torch.zeros(8, 3), torch.tensor([0, 1, 0, 1, 0, 1, 2, 0])
    source = streamed(made, [(inputs[:4], labels[:4]), (inputs[4:], labels[4:])], num_data=8)
    source.probe()
    batches = source.epoch(0)
    assert next(batches).rows == 4
    with pytest.raises(DataError, match="label 2 for a network with 2 outputs"):
        next(batches)


# -- the number of epochs ---------------------------------------------------------------------------------------------


def test_small_data_get_as_many_epochs_as_make_enough_steps(numbered, model, monkeypatch):
    monkeypatch.setattr(module, "STEPS", 100)
    monkeypatch.setattr(module, "LEAST_EPOCHS", 7)
    assert numbered(epochs=None).epochs == 34  # 3 batches: the first number of epochs with 100 steps or more
    assert numbered(batch_size=None, epochs=None).epochs == 100
    assert numbered(rows=100, epochs=None).epochs == 7
    assert numbered(epochs=3).epochs == 3
    assert streamed(model(), DataLoader(Rows(), batch_size=4), num_data=10, epochs=None).epochs == 34


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_names_are_no_quantities(model):
    data = Data(torch.zeros(2, 3), ["yes", "no"])
    with pytest.raises(DataError, match=r"Gaussian\(scale=0.3\) needs numbers as targets") as caught:
        Source(data, model(), batch_size=None, epochs=1, rng=Rng.create(0))
    assert "received: names of classes, such as 'no'" in str(caught.value)
    assert "write: bp.Model(network, likelihood=bp.likelihoods.Categorical())" in str(caught.value)


def test_counts_and_labels_are_not_standardised():
    made = bp.Model(nn.Linear(3, 1), likelihood=likelihoods.Poisson())
    data = Data(torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.arange(4.0), standardize=True)
    with pytest.raises(DataError, match=r"Poisson\(\) needs its targets as they are") as caught:
        Source(data, made, batch_size=None, epochs=1, rng=Rng.create(0))
    assert "received: standardised targets" in str(caught.value)
    assert 'write: bp.Data(inputs, targets, standardize="inputs")' in str(caught.value)


@pytest.mark.parametrize("names", [["a", "b"], ["a", "b", "c", "d"]])
def test_every_class_of_the_network_has_a_name(names):
    made = bp.Model(nn.Linear(3, 3), likelihood=likelihoods.Categorical())
    data = Data(torch.zeros(2, 3), ["a", "b"], classes=names)
    with pytest.raises(DataError, match=f"the network tells 3 classes apart, and {len(names)} have names") as caught:
        Source(data, made, batch_size=None, epochs=1, rng=Rng.create(0)).probe()
    assert f"expected: 3 names, or a last layer for {len(names)} classes" in str(caught.value)


def test_data_that_do_not_fit_on_the_device_are_refused(monkeypatch):
    """A device with 1000 free bytes, and rows of 3 + 1 numbers of 4 bytes: 8 rows are 128 bytes, 60 rows are 960."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 2000))
    device = torch.device("cuda")
    assert module._check_memory(Data(torch.zeros(8, 3), torch.zeros(8)), device) is None
    with pytest.raises(MemoryBudgetError, match="the data do not fit on the device") as caught:
        module._check_memory(Data(torch.zeros(60, 3), torch.zeros(60)), device)
    assert "received: 0.0 GiB of data, 0.0 GiB free on cuda" in str(caught.value)
    assert "write: bp.fit(model, torch.utils.data.DataLoader(dataset, batch_size=128, shuffle=True), ...)" in str(
        caught.value
    )
    there = types.SimpleNamespace(device=device, inputs=torch.zeros(60, 3), targets=torch.zeros(60))
    assert module._check_memory(there, device) is None  # it is there already
    assert module._check_memory(Data(torch.zeros(60, 3), torch.zeros(60)), torch.device("cpu")) is None
