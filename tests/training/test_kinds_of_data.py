"""Data of any kind: rows in memory, batches of others, and what they say about N, units and names."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.data import Data, Stream
from bayesprop.errors import DataError


class Items(Dataset):
    """A Dataset of items."""

    def __init__(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if index >= len(self):
            raise IndexError(index)
        return self.inputs[index], self.targets[index]


class Endless(IterableDataset):
    """Rows without a number of them."""

    def __init__(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        self.rows = list(zip(inputs, targets, strict=True))

    def __iter__(self):
        return iter(self.rows)


IN_MEMORY = {
    "arrays": lambda x, y: (x.numpy(), y.numpy()),
    "a column of targets": lambda x, y: (x, y[:, None]),
    "data": Data,
    "tensor dataset": TensorDataset,
    "dataset": Items,
}
STREAMS = {
    "loader": lambda x, y: DataLoader(TensorDataset(x, y), batch_size=8),
    "loader of unknown length": lambda x, y: DataLoader(Endless(x, y), batch_size=8),
    "list of batches": lambda x, y: Stream([(x[i : i + 8], y[i : i + 8]) for i in (0, 8, 16)], 24),
}


@pytest.mark.parametrize("kind", list(IN_MEMORY))
def test_rows_in_memory_of_any_kind_give_the_same_posterior(fit, pair, same, kind):
    posterior = fit(data=IN_MEMORY[kind](*pair()))
    assert posterior.context.num_data == 24
    same(posterior, fit())


@pytest.mark.parametrize("kind", list(STREAMS))
def test_streams_of_any_kind_give_the_same_posterior(fit, pair, same, kind):
    arguments = {"num_data": 24} if "unknown" in kind else {}
    posterior = fit(data=STREAMS[kind](*pair()), batch_size=None, **arguments)
    assert posterior.context.num_data == 24
    assert posterior.context.history[-1]["step"] == 9
    same(posterior, fit(data=STREAMS["loader"](*pair()), batch_size=None))


def test_n_scales_the_likelihood(fit, pair, method):
    """A stream that claims twice as many examples has twice the data term under the same q."""
    frozen = method(learning_rate=1e-300, optimizer="sgd")
    once, twice = (fit(data=STREAMS["list of batches"](*pair()), how=frozen, num_data=n).context for n in (24, 48))
    assert (once.num_data, twice.num_data) == (24, 48)
    for one, two in zip(once.history, twice.history, strict=True):
        assert two["log_likelihood"] == pytest.approx(2.0 * one["log_likelihood"], rel=1e-12)
        assert two["kl"] == one["kl"]


def test_a_stream_of_unknown_length_needs_n(fit, pair):
    with pytest.raises(DataError, match="how many examples are there behind this DataLoader") as caught:
        fit(data=STREAMS["loader of unknown length"](*pair()))
    assert "write: fit(model, batches, ..., num_data=<number of examples>)" in str(caught.value)
    with pytest.raises(DataError, match="num_data is not the number of rows"):
        fit(num_data=25)


def test_names_of_classes_come_back(fit, pair):
    inputs, targets = pair()
    names = ["no" if target < 0 else "yes" for target in targets.tolist()]
    made = bp.Model(nn.Linear(3, 2).double(), likelihood=likelihoods.Categorical(), prior=priors.Normal())
    posterior = fit(made, (inputs, names), validation=(inputs, names))
    assert posterior.context.classes == ["no", "yes"]
    assert set(posterior.predict(inputs, 5).label.tolist()) <= {"no", "yes"}
    assert 0.0 <= posterior.context.history[-1]["validation_error"] < 0.5


def test_standardised_data_predict_in_their_own_units(fit, pair):
    inputs, targets = pair()
    data = Data(10.0 + 3.0 * inputs, 500.0 + 70.0 * targets, standardize=True)
    posterior = fit(data=data)
    assert posterior.context.scaling is data.scaling
    assert abs(float(posterior.predict(10.0 + 3.0 * inputs, 5).mean.mean()) - 500.0) < 70.0
