"""Data: what it accepts, what it refuses, and its batches."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from bayesprop.data import Data, Stream, as_data
from bayesprop.errors import ConfigurationError, DataError


class Table:
    columns = ("width", "height")

    def __init__(self, values):
        self.values = np.asarray(values)

    def to_numpy(self):
        return self.values


def small(rows=10, **options):
    inputs = torch.arange(2.0 * rows).reshape(rows, 2)
    return Data(inputs, torch.arange(float(rows)), **options)


def test_it_knows_its_number_of_rows():
    data = small(7)
    assert len(data) == data.num_data == 7
    assert data.classes is None
    assert data.scaling is None
    assert data.device == torch.device("cpu")
    assert repr(data) == "Data(7 rows, inputs [2] float32, targets [] float32)"


def test_one_example_works():
    data = Data([[1.0, 2.0]], [3.0], standardize=True)
    assert data.num_data == 1
    assert isinstance(data.inputs, torch.Tensor)
    assert data.inputs.tolist() == [[0.0, 0.0]]
    inputs, targets = data.batch(torch.zeros(1, 1, dtype=torch.int64), 0, 32)
    assert isinstance(inputs, torch.Tensor)
    assert (inputs.shape, targets.shape) == ((1, 1, 2), (1, 1))


@pytest.mark.parametrize("empty", [([], []), (torch.zeros(0, 3), torch.zeros(0)), (np.zeros((0, 2)), np.zeros(0))])
def test_empty_data_are_refused(empty):
    with pytest.raises(DataError, match=r"the data are empty"):
        Data(*empty)


def test_different_lengths_are_refused_with_the_line_to_write():
    with pytest.raises(DataError, match="3 rows of inputs and 2 targets"):
        Data(torch.zeros(3, 1), torch.zeros(2))
    with pytest.raises(DataError, match=r"write: targets.reshape\(-1\)"):
        Data(torch.zeros(3, 1), torch.zeros(1, 3))
    with pytest.raises(DataError, match="targets is a single number"):
        Data(torch.zeros(1, 1), 3.0)


def test_inputs_that_are_not_finite_are_named_but_targets_are_not_looked_at():
    with pytest.raises(DataError, match=r"nan at row 1, column 0 \('width'\)"):
        Data(Table([[1.0, 2.0], [float("nan"), 3.0]]), [0.0, 1.0])
    data = Data([[1.0], [2.0]], [float("nan"), 1.0])
    assert bool(torch.isnan(data.targets[0]))


def test_types_are_kept():
    data = Data(np.zeros((2, 3)), np.zeros(2, dtype=np.float32))
    assert isinstance(data.inputs, torch.Tensor)
    assert (data.inputs.dtype, data.targets.dtype) == (torch.float64, torch.float32)
    tokens = Data(np.array([[1, 2], [3, 4]]), [0, 1])
    assert isinstance(tokens.inputs, torch.Tensor)
    assert tokens.inputs.dtype == torch.int64


def test_text_labels_become_classes():
    data = Data(torch.zeros(3, 1), ["dog", "cat", "dog"])
    assert data.classes == ["cat", "dog"]
    assert data.targets.tolist() == [1, 0, 1]
    assert "2 classes" in repr(data)
    wider = Data(torch.zeros(2, 1), ["dog", "cat"], classes=["cat", "cow", "dog"])
    assert wider.targets.tolist() == [2, 0]
    assert wider.rows(slice(0, 1)).classes == ["cat", "cow", "dog"]


def test_dicts_and_tuples_of_inputs():
    data = Data({"x": torch.arange(6.0).reshape(3, 2), "t": torch.arange(3)}, torch.zeros(3))
    assert repr(data) == "Data(3 rows, inputs x: [2] float32, t: [] int64, targets [] float32)"
    inputs, _ = data.batch(torch.tensor([[2, 0, 1]]), 0, 2)
    assert isinstance(inputs, dict)
    assert inputs["x"].tolist() == [[[4, 5], [0, 1]]]
    assert inputs["t"].tolist() == [[2, 0]]
    pair = Data((torch.zeros(3, 2), torch.ones(3)), torch.zeros(3)).rows(slice(0, 2))
    assert isinstance(pair.inputs, tuple)
    assert [tuple(tensor.shape) for tensor in pair.inputs] == [(2, 2), (2,)]
    with pytest.raises(DataError, match="different numbers of rows"):
        Data((torch.zeros(3), torch.zeros(4)), torch.zeros(3))


def test_standardize():
    data = small(standardize=True)
    assert isinstance(data.inputs, torch.Tensor)
    assert data.scaling is not None
    assert_close(data.inputs.mean(0), torch.zeros(2), atol=1e-6, rtol=0)
    assert_close(data.targets.std(correction=0), torch.tensor(1.0))
    assert_close(data.original()[1], torch.arange(10.0))
    assert "standardized" in repr(data)
    assert small(standardize="inputs").targets.tolist() == list(range(10))
    with pytest.raises(ConfigurationError, match="'both'"):
        small(standardize="both")


@pytest.mark.parametrize(
    ("rows", "batch_size", "batches", "per_batch"),
    [(10, 4, 3, 4), (10, 3, 4, 3), (100, 30, 4, 25), (10, 10, 1, 10), (10, 99, 1, 10), (1, 1, 1, 1), (10, None, 1, 10)],
)
def test_an_epoch_has_equal_batches_that_cover_everything(rows, batch_size, batches, per_batch):
    data = small(rows)
    assert data.batches_per_epoch(batch_size) == batches
    assert data.rows_per_batch(batch_size) == per_batch
    order = torch.stack([torch.randperm(rows, generator=torch.Generator().manual_seed(p)) for p in range(3)])
    seen = [data.batch(order, i, batch_size) for i in range(batches)]
    for inputs, targets in seen:
        assert isinstance(inputs, torch.Tensor)
        assert inputs.shape == (3, per_batch, 2)
        assert targets.shape == (3, per_batch)
        assert_close(inputs[..., 0], 2 * targets)  # each particle's rows stay together
    joined = torch.cat([targets for _, targets in seen], dim=1).long()
    # The epoch is the permutation, and what the last batch lacks is the permutation's beginning.
    assert_close(joined, torch.cat([order, order], dim=1)[:, : batches * per_batch])


def test_batches_are_unbiased():
    """Over all rotations of an order each row is in batch i equally often: the mean batch is the data."""
    rows = 10
    data = small(rows)
    start = torch.tensor([3, 1, 4, 0, 5, 9, 2, 6, 8, 7])
    order = torch.stack([start.roll(shift) for shift in range(rows)])
    for index in range(data.batches_per_epoch(4)):
        _, targets = data.batch(order, index, 4)
        assert_close(torch.bincount(targets.reshape(-1).long()), torch.full((rows,), 4))


def test_a_particle_dimension_is_always_there():
    inputs, targets = small().batch(torch.arange(10)[None], 0, 5)
    assert isinstance(inputs, torch.Tensor)
    assert (inputs.shape, targets.shape) == ((1, 5, 2), (1, 5))


@pytest.mark.parametrize("batch_size", [0, -1, 2.0, True, "8"])
def test_batch_sizes_are_positive_integers(batch_size):
    with pytest.raises(ConfigurationError, match="integer of at least 1"):
        small().batches_per_epoch(batch_size)


def test_orders_and_indices_are_checked():
    with pytest.raises(ConfigurationError, match=r"shape \(particles, 10\)"):
        small().batch(torch.arange(10), 0, 4)
    with pytest.raises(ConfigurationError, match=r"shape \(particles, 10\)"):
        small().batch(torch.arange(9)[None], 0, 4)
    with pytest.raises(ConfigurationError, match=r"batch 3 of an epoch of 3[\s\S]*0 to 2"):
        small().batch(torch.arange(10)[None], 3, 4)


def test_split_is_a_partition_and_a_function_of_the_seed():
    before = torch.random.get_rng_state()
    train, validation = small(100).split(0.2, seed=1)
    assert (train.num_data, validation.num_data) == (80, 20)
    assert sorted(train.targets.tolist() + validation.targets.tolist()) == list(range(100))
    again = small(100).split(0.2, seed=1)
    assert_close(validation.targets, again[1].targets)
    assert validation.targets.tolist() != small(100).split(0.2, seed=2)[1].targets.tolist()
    assert torch.equal(torch.random.get_rng_state(), before)


def test_split_measures_the_training_rows_only():
    inputs = torch.randn(40, 2, generator=torch.Generator().manual_seed(0)) + 3
    targets = inputs.sum(1)
    train, validation = Data(inputs, targets, standardize=True).split(0.25, seed=0)
    assert isinstance(train.inputs, torch.Tensor)
    assert isinstance(validation.inputs, torch.Tensor)
    assert_close(train.inputs.mean(0), torch.zeros(2), atol=1e-6, rtol=0)
    assert_close(train.targets.std(correction=0), torch.tensor(1.0))
    assert validation.scaling is train.scaling
    assert float(validation.inputs.mean(0).abs().max()) > 1e-3
    joined = torch.cat([train.original()[1], validation.original()[1]])
    assert_close(joined.sort().values, targets.sort().values, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, 0.01])
def test_split_needs_rows_on_both_sides(fraction):
    with pytest.raises(DataError, match="at least one row for each side"):
        small(10).split(fraction)
    with pytest.raises(DataError, match="of 1 rows"):
        small(1).split(0.5)


def test_rows_and_devices():
    data = small(standardize=True)
    some = data.rows(torch.tensor([3, 1]))
    assert some.scaling is data.scaling
    assert_close(some.targets, data.targets[[3, 1]])
    assert data.rows(slice(2, 5)).num_data == 3
    with pytest.raises(DataError, match="these are no rows"):
        data.rows(slice(0, 0))
    moved = data.to("meta")
    assert moved.device.type == "meta"
    assert moved.scaling is not None
    assert moved.scaling.target_std.device.type == "meta"


def test_like_brings_rows_to_the_scale_of_the_training_data():
    training = small(standardize=True)
    raw = Data([[3.0, 4.0]], [5.0])
    assert training.scaling is not None
    for rows in (raw, Data([[3.0, 4.0]], [5.0], standardize=True)):
        found = rows.like(training)
        assert found.scaling is training.scaling
        assert_close(found.inputs, training.scaling.scale_inputs(raw.inputs))
        assert_close(found.targets, training.scaling.scale_targets(raw.targets))
    assert_close(found.like(raw).inputs, raw.inputs)
    assert found.like(training) is found


def test_like_uses_the_labels_of_the_training_data():
    training = Data(torch.zeros(3, 1), ["cat", "cow", "dog"])
    assert Data(torch.zeros(2, 1), ["dog", "cow"]).like(training).targets.tolist() == [2, 1]
    assert Data(torch.zeros(2, 1), [2, 1]).like(training).targets.tolist() == [2, 1]
    assert Data(torch.zeros(2, 1), ["dog", "cow"]).like(training).classes == training.classes
    by_value = Data(torch.zeros(2, 1), [3, 8], classes=[3, 8])
    assert Data(torch.zeros(1, 1), [8]).like(by_value).targets.tolist() == [1]
    with pytest.raises(DataError, match="'fox' at row 0"):
        Data(torch.zeros(1, 1), ["fox"]).like(training)
    with pytest.raises(DataError, match=r"the training data have no classes[\s\S]*'fox'"):
        Data(torch.zeros(1, 1), ["fox"]).like(small())


def test_other_tensors_for_the_same_rows():
    data = small(standardize=True)
    assert isinstance(data.inputs, torch.Tensor)
    found = data.with_tensors(data.inputs.double(), data.targets)
    assert isinstance(found.inputs, torch.Tensor)
    assert found.inputs.dtype == torch.float64
    assert found.scaling is data.scaling


def test_as_data_of_pairs_and_of_itself():
    data = small()
    assert as_data(data) is data
    assert as_data((torch.zeros(2, 1), [0.0, 1.0])).num_data == 2
    with pytest.raises(DataError, match="num_data=5 and 10 rows"):
        as_data(data, num_data=5)
    with pytest.raises(DataError, match="a tuple of 3"):
        as_data((1, 2, 3))


def test_as_data_of_datasets_and_loaders():
    dataset = TensorDataset(torch.zeros(4, 2), torch.arange(4))
    assert isinstance(as_data(dataset), Data)
    stream = as_data(DataLoader(dataset, batch_size=2))
    assert isinstance(stream, Stream)
    assert stream.num_data == 4
    assert as_data(stream) is stream
    assert as_data(stream, num_data=9).num_data == 9


class Endless(IterableDataset):
    def __iter__(self):
        return iter([(torch.zeros(2), 0)])


class Batches:
    def __iter__(self):
        return iter([(torch.zeros(3, 2), torch.zeros(3))])


def test_as_data_of_sources_without_a_length():
    with pytest.raises(DataError, match=r"DataLoader\(dataset, batch_size=128\)"):
        as_data(Endless())
    with pytest.raises(DataError, match=r"num_data=<number of examples>"):
        as_data(DataLoader(Endless()))
    with pytest.raises(DataError, match=r"num_data=<number of examples>"):
        as_data(Batches())
    assert as_data(Batches(), num_data=3).num_data == 3


@pytest.mark.parametrize("source", [None, 3, "digits", torch.zeros(3), [[1.0], [2.0]], {"x": 1}, np.zeros(2)])
def test_as_data_refuses_what_has_no_targets(source):
    with pytest.raises(DataError, match=r"these are no data[\s\S]*fit\(model, \(inputs, targets\), ...\)"):
        as_data(source)


class Unlabelled(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return torch.zeros(2)


def test_as_data_refuses_a_dataset_without_labels():
    with pytest.raises(DataError, match=r"items have no targets[\s\S]*a Tensor for item 0"):
        as_data(Unlabelled())
