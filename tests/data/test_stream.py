"""Batches of others, and the user's generator."""

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
)

from bayesprop.data import Stream
from bayesprop.errors import ConfigurationError, DataError


class Noisy(Dataset):
    """A transform that draws from torch's global generator."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.rand(2) + index, index


def numbers(count=12):
    return TensorDataset(torch.arange(float(count))[:, None], torch.arange(count))


def labels(stream, seed):
    return [targets.tolist() for _, targets in stream.epoch(seed)]


LOADERS = {
    "plain": lambda: DataLoader(numbers(), batch_size=5),
    "shuffled": lambda: DataLoader(numbers(), batch_size=5, shuffle=True),
    "own generator": lambda: DataLoader(numbers(), batch_size=5, shuffle=True, generator=torch.Generator()),
    "with replacement": lambda: DataLoader(numbers(), batch_size=5, sampler=RandomSampler(numbers(), replacement=True)),
    "batch sampler": lambda: DataLoader(
        numbers(), batch_sampler=BatchSampler(RandomSampler(numbers(), generator=torch.Generator()), 4, False)
    ),
    "augmented": lambda: DataLoader(Noisy(), batch_size=5, shuffle=True),
    "workers": lambda: DataLoader(Noisy(), batch_size=5, shuffle=True, num_workers=2),
}


@pytest.mark.parametrize("name", LOADERS)
def test_an_epoch_is_a_function_of_its_seed_and_the_users_generator_stays(name):
    stream = Stream(LOADERS[name]())
    before = torch.random.get_rng_state()
    first = [(inputs, targets) for inputs, targets in stream.epoch(7)]
    other = labels(stream, 8)
    torch.rand(3)  # the user's own draws between epochs change nothing
    again = list(stream.epoch(7))
    torch.random.set_rng_state(before)
    assert len(first) == len(again) == 3
    for (inputs, targets), (inputs_again, targets_again) in zip(first, again, strict=True):
        assert torch.equal(inputs, inputs_again)
        assert torch.equal(targets, targets_again)
    assert (other != [targets.tolist() for _, targets in first]) == (name != "plain")


@pytest.mark.parametrize("name", LOADERS)
def test_the_users_draws_are_the_same_with_and_without_an_epoch(name):
    torch.manual_seed(5)
    alone = [torch.rand(1).item() for _ in range(4)]
    torch.manual_seed(5)
    stream = Stream(LOADERS[name]())
    beside = [torch.rand(1).item()]
    beside += [torch.rand(1).item() for _ in stream.epoch(3)]
    assert beside == alone


def test_given_generators_are_put_back_too():
    generator = torch.Generator().manual_seed(1)
    before = generator.get_state()
    stream = Stream(DataLoader(numbers(), batch_size=5, shuffle=True, generator=generator))
    assert len(labels(stream, 0)) == 3
    assert torch.equal(generator.get_state(), before)


def test_an_abandoned_epoch_leaves_the_generator_alone():
    before = torch.random.get_rng_state()
    stream = Stream(DataLoader(numbers(), batch_size=5, shuffle=True))
    inputs, targets = stream.example(seed=2)
    assert isinstance(inputs, torch.Tensor)
    assert (inputs.shape, targets.shape) == ((5, 1), (5,))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_generator_is_put_back_when_a_dataset_fails():
    class Broken(Noisy):
        def __getitem__(self, index):
            torch.rand(1)
            raise RuntimeError("the disk is gone")

    before = torch.random.get_rng_state()
    with pytest.raises(RuntimeError, match="the disk is gone"):
        list(Stream(DataLoader(Broken())).epoch(0))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_number_of_examples():
    assert Stream(DataLoader(numbers(), batch_size=5, drop_last=True)).num_data == 12
    assert Stream(DataLoader(numbers(), sampler=SubsetRandomSampler([1, 5, 7]))).num_data == 3
    assert Stream(DataLoader(numbers(), sampler=RandomSampler(numbers(), num_samples=5))).num_data == 12
    assert Stream(DataLoader(numbers()), num_data=100).num_data == 100
    assert Stream([(torch.zeros(2, 1), torch.zeros(2))], num_data=2).num_data == 2


@pytest.mark.parametrize("num_data", [0, -3, 2.5, True, "12"])
def test_num_data_is_a_positive_integer(num_data):
    with pytest.raises(ConfigurationError, match="an integer of at least 1"):
        Stream(DataLoader(numbers()), num_data=num_data)


class Endless(IterableDataset):
    def __iter__(self):
        for i in range(6):
            yield torch.full((1,), float(i)), i


def test_an_unknown_length_needs_num_data_and_the_message_says_so():
    loader = DataLoader(Endless(), batch_size=4)
    with pytest.raises(DataError, match=r"behind this DataLoader\?[\s\S]*num_data=<number of examples>"):
        Stream(loader)
    with pytest.raises(DataError, match=r"Stream\(batches, num_data=\.\.\.\)"):
        Stream([(torch.zeros(2, 1), torch.zeros(2))])
    stream = Stream(loader, num_data=6)
    assert labels(stream, 0) == [[0, 1, 2, 3], [4, 5]]
    assert stream.batches_per_epoch() is None
    assert Stream(DataLoader(numbers(), batch_size=5)).batches_per_epoch(64) == 3


def test_what_cannot_be_iterated_again_is_refused():
    with pytest.raises(DataError, match=r"used up after one epoch[\s\S]*Stream\(list\(batches\)"):
        Stream(iter([1, 2]), num_data=2)
    with pytest.raises(DataError, match="iterates over batches"):
        Stream(3, num_data=2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (torch.zeros(2, 1), r"no targets in batch 1[\s\S]*a Tensor"),
        ([torch.zeros(2, 1)], r"no targets in batch 1[\s\S]*a list of 1"),
        ((torch.zeros(2, 1), torch.zeros(3)), r"2 rows of inputs, targets of shape \[3\]"),
        ((torch.zeros(2, 1), torch.zeros(())), r"targets of shape \[\]"),
        ((torch.zeros(0, 1), torch.zeros(0)), "0 rows of inputs"),
        ((torch.tensor([[1.0], [float("inf")]]), torch.zeros(2)), "in batch 1\n.*inf at row 1, column 0"),
        ((torch.zeros(2, 1), ("a", "b")), "no classes are known"),
    ],
)
def test_bad_batches_are_named_by_number(batch, message):
    stream = Stream([(torch.zeros(2, 1), torch.zeros(2)), batch], num_data=4)
    with pytest.raises(DataError, match=message):
        list(stream.epoch(0))


def test_empty_streams_are_refused():
    with pytest.raises(DataError, match="no batch from a list"):
        list(Stream([], num_data=3).epoch(0))
    with pytest.raises(DataError, match="drop_last=True leaves none"):
        list(Stream(DataLoader(numbers(3), batch_size=5, drop_last=True)).epoch(0))
    with pytest.raises(DataError, match="over an empty TensorDataset"):
        Stream(DataLoader(numbers(0)))


def test_labels_and_several_inputs():
    batch = ([torch.zeros(2, 1), torch.ones(2)], ("b", "a"))
    inputs, targets = Stream([batch], num_data=2, classes=["a", "b"]).example()
    assert isinstance(inputs, tuple)
    assert targets.tolist() == [1, 0]


def test_distributed_samplers_shuffle_by_the_seed():
    loader = DataLoader(numbers(), batch_size=3, sampler=DistributedSampler(numbers(), num_replicas=2, rank=0))
    stream = Stream(loader)
    assert stream.num_data == 12
    assert labels(stream, 1) == labels(stream, 1)
    assert labels(stream, 1) != labels(stream, 2)


def test_batches_move_as_they_come():
    stream = Stream(DataLoader(numbers(), batch_size=5)).to("meta")
    inputs, targets = stream.example()
    assert isinstance(inputs, torch.Tensor)
    assert inputs.device.type == targets.device.type == "meta"
    assert repr(stream) == "Stream(DataLoader, num_data=12)"
    assert (stream.with_num_data(5).num_data, stream.with_num_data(5).device) == (5, stream.device)
