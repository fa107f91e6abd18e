"""A torch Dataset read into memory."""

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from bayesprop.data import Data, as_data, dataset
from bayesprop.data.dataset import stack
from bayesprop.errors import DataError, MemoryBudgetError


class Items(Dataset):
    """A Dataset of whatever `make` gives."""

    def __init__(self, make, length=6):
        self.make, self.length = make, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.make(index)


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (lambda i: (torch.full((2,), float(i)), i), torch.int64),
        (lambda i: (np.full(2, i, dtype=np.float32), float(i)), torch.float64),
        (lambda i: [torch.full((2,), float(i)), torch.tensor(float(i))], torch.float32),
    ],
)
def test_items_become_tensors(make, dtype):
    data = as_data(Items(make))
    assert isinstance(data, Data)
    assert isinstance(data.inputs, torch.Tensor)
    assert data.inputs.tolist() == [[i, i] for i in range(6)]
    assert data.targets.tolist() == list(range(6))
    assert data.targets.dtype == dtype


def test_text_labels_and_several_inputs():
    data = as_data(Items(lambda i: ({"x": torch.ones(2) * i, "t": i}, "ab"[i % 2])))
    assert isinstance(data, Data)
    assert isinstance(data.inputs, dict)
    assert data.classes == ["a", "b"]
    assert data.targets.tolist() == [0, 1, 0, 1, 0, 1]
    assert data.inputs["t"].tolist() == list(range(6))


def test_tensor_datasets_are_not_copied():
    inputs, targets = torch.zeros(3, 2), torch.zeros(3)
    assert stack(TensorDataset(inputs, targets)) == (inputs, targets)
    several, _ = stack(TensorDataset(inputs, inputs, targets))
    assert isinstance(several, tuple)
    with pytest.raises(DataError, match="a TensorDataset of one tensor"):
        stack(TensorDataset(inputs))


def test_the_users_generator_is_not_advanced():
    before = torch.random.get_rng_state()

    def make(index):
        torch.rand(3)  # draws, but its result is not used
        return torch.ones(2), index

    assert isinstance(as_data(Items(make)), Data)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_items_that_change_from_reading_to_reading_are_refused():
    with pytest.raises(DataError, match=r"another item at each reading[\s\S]*shuffle=True"):
        as_data(Items(lambda i: (torch.rand(2), i)))


def test_missing_values_do_not_look_like_random_transforms():
    items = Items(lambda i: (torch.ones(1), float("nan")))
    assert stack(items)[1].isnan().all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda i: torch.zeros(2), "a Tensor for item 0"),
        (lambda i: (torch.zeros(2), 0, 1), "a tuple of 3 for item 0"),
        (lambda i: {"x": 0, "y": 1}, "a dict of 2 for item 0"),
        (lambda i: (torch.zeros(2 if i < 4 else 3), i), r"shape \(2,\) for item 0 and \(3,\) for item 4"),
        (lambda i: (object(), i), "images need a transform that makes tensors"),
    ],
)
def test_items_that_cannot_be_stacked(make, message):
    with pytest.raises(DataError, match=message):
        stack(Items(make))


def test_lengths():
    with pytest.raises(DataError, match="of length 0"):
        stack(Items(lambda i: (i, i), length=0))

    class Unsized:
        def __getitem__(self, index):
            return index, index

    with pytest.raises(DataError, match="a Dataset without a length"):
        stack(Unsized())


def test_what_does_not_fit_is_left_to_a_loader(monkeypatch):
    monkeypatch.setattr(dataset, "LARGEST_STACK", 1 << 20)
    items = Items(lambda i: (torch.zeros(1024), i), length=1000)
    with pytest.raises(MemoryBudgetError, match=r"1000 items of about 4104 bytes[\s\S]*DataLoader"):
        stack(items)
    monkeypatch.setattr(dataset, "LARGEST_STACK", 1 << 23)
    assert stack(items)[0].shape == (1000, 1024)
