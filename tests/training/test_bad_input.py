"""Inputs as people bring them: each works as one would expect, or is refused with what to do instead."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesprop as bp
from bayesprop.errors import ConfigurationError, DataError, DivergenceError

from .attempts import INPUTS, LABELS, QUANTITIES, ROWS, attempt, network, said, same

GAUSSIAN = bp.likelihoods.Gaussian(scale=0.5)


class Table:
    """What is needed of a data frame: names of columns and an array."""

    def __init__(self, array, columns):
        self.array, self.columns = np.asarray(array), columns
        self.shape = self.array.shape

    def __array__(self, dtype=None, copy=None):
        return self.array if dtype is None else self.array.astype(dtype)


def broken(value: float, row: int = 4, column: int = 1) -> torch.Tensor:
    inputs = INPUTS.clone()
    inputs[row, column] = value
    return inputs


# -- few rows ----------------------------------------------------------------------------------------------------------

NOTHING = torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)


@pytest.mark.parametrize(
    "data",
    [
        ([], []),
        NOTHING,
        (NOTHING[0].numpy(), NOTHING[1].numpy()),
        TensorDataset(*NOTHING),
        DataLoader(TensorDataset(*NOTHING), batch_size=4),
    ],
    ids=["lists", "tensors", "arrays", "dataset", "loader"],
)
def test_empty_data(data):
    assert said(DataError, lambda: attempt(data)).startswith("the data are empty")


@pytest.mark.parametrize(
    ("likelihood", "outputs", "target"),
    [
        (bp.likelihoods.Categorical(), 2, torch.tensor([1])),
        (bp.likelihoods.Bernoulli(), 1, torch.tensor([1])),
        (bp.likelihoods.Gaussian(), 1, torch.tensor([0.3])),
        (bp.likelihoods.HeteroscedasticGaussian(), 2, torch.tensor([0.3])),
        (bp.likelihoods.StudentT(df=4.0), 1, torch.tensor([0.3])),
        (bp.likelihoods.Poisson(), 1, torch.tensor([3])),
    ],
)
def test_one_example(likelihood, outputs, target):
    posterior = attempt((INPUTS[:1], target), network(outputs=outputs), likelihood)
    prediction = posterior.predict(INPUTS[:5], draws=8)
    assert len(prediction) == 5
    assert bool(torch.isfinite(prediction.mean).all())
    assert bool((prediction.total >= prediction.aleatoric).all())
    assert posterior.context.num_data == 1


def test_one_standardised_example_keeps_its_units():
    data = bp.Data(INPUTS[:1], torch.tensor([40.0]), standardize=True)
    posterior = attempt(data, network(outputs=1), bp.likelihoods.Gaussian(scale=0.1))
    # Its own mean is 40 and a deviation of 0 counts as 1: what is predicted there is 40 and a few units at most.
    assert abs(float(posterior.predict(INPUTS[:1], draws=50).mean) - 40.0) < 10.0


def test_a_batch_larger_than_the_data_is_all_of_them():
    data = INPUTS, LABELS
    everything = attempt(data, batch_size=None)
    same(attempt(data, batch_size=1000), everything)
    same(attempt(data, batch_size=ROWS), everything)
    assert float((attempt(data, batch_size=19).mean() - everything.mean()).abs().max()) > 0.0


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:the fit is worse than")  # a few steps are not meant to fit
@pytest.mark.parametrize("standardize", [False, True])
def test_constant_features(standardize):
    constant = INPUTS.clone()
    constant[:, 1] = 7.0
    posterior = attempt(bp.Data(constant, QUANTITIES, standardize=standardize), network(outputs=1), GAUSSIAN)
    assert bool(torch.isfinite(posterior.predict(constant, draws=8).mean).all())
    assert bool(torch.isfinite(posterior.predict(INPUTS, draws=8).mean).all())  # where the feature is another number


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_inputs_that_are_not_finite(value):
    message = said(DataError, lambda: attempt((broken(value), LABELS)))
    assert f"received: {value} at row 4, column 1; 1 such values in all" in message
    assert "leave these rows out, or fill the gaps first" in message


def test_numbers_too_large_for_the_network():
    inputs = INPUTS.double() * 2.0**400  # finite as they came, infinite in the network's float32
    message = said(DivergenceError, lambda: attempt((inputs, LABELS)))
    assert "inputs are far from unit scale" in message
    assert "bp.Data(X, y, standardize=True)" in message
    posterior = attempt(bp.Data(inputs, LABELS, standardize=True))
    same(posterior, attempt(bp.Data(INPUTS.double(), LABELS, standardize=True)))


# -- types -------------------------------------------------------------------------------------------------------------

WHOLE = torch.arange(3 * ROWS).reshape(ROWS, 3) % 5


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8, torch.float16, torch.bfloat16])
def test_whole_numbers_and_half_precision_are_numbers(dtype):
    posterior = attempt((WHOLE.to(dtype), LABELS))
    expected = attempt((WHOLE.float(), LABELS))
    same(posterior, expected)
    found = posterior.predict(WHOLE[:2].to(dtype), draws=4).mean
    torch.testing.assert_close(found, expected.predict(WHOLE[:2].float(), draws=4).mean, rtol=0.0, atol=0.0)


def test_yes_and_no_are_numbers():
    posterior = attempt((INPUTS > 0, LABELS))
    same(posterior, attempt(((INPUTS > 0).float(), LABELS)))
    assert posterior.predict(INPUTS[:2] > 0, draws=4).mean.shape == (2, 2)


def test_a_mask_beside_other_inputs_stays_a_mask():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network()

        def forward(self, x, keep):
            assert keep.dtype == torch.bool
            return self.inner(x.masked_fill(~keep, 0.0))

    posterior = attempt(({"x": INPUTS, "keep": INPUTS > 0}, LABELS), Masked())
    everything = torch.ones_like(INPUTS, dtype=torch.bool)
    same(posterior, attempt(({"x": INPUTS.clamp(min=0.0), "keep": everything}, LABELS), Masked()))


def test_float64_arrays_and_float32_networks():
    posterior = attempt((INPUTS.double().numpy(), LABELS.numpy()))
    same(posterior, attempt((INPUTS, LABELS)))
    assert posterior.predict(INPUTS[:2].double().numpy(), draws=4).mean.dtype == torch.float32


def test_float32_inputs_and_float64_networks():
    posterior = attempt((INPUTS, LABELS), network().double())
    assert posterior.mean().dtype == torch.float64
    assert posterior.predict(INPUTS, draws=4).mean.dtype == torch.float64


def test_images_of_bytes():
    images = torch.randint(0, 256, (ROWS, 3, 2, 2), generator=torch.Generator().manual_seed(1)).to(torch.uint8)
    net = nn.Sequential(nn.Flatten(), network(12))
    same(attempt((images, LABELS), net), attempt((images.float(), LABELS), net))
    scaled = attempt(bp.Data(images, LABELS, standardize=True), net)
    assert scaled.predict(images[:2], draws=4).mean.shape == (2, 2)


def test_complex_inputs_are_not_cut_in_half():
    message = said(DataError, lambda: attempt((INPUTS.to(torch.complex64), LABELS)))
    assert "the network cannot take these inputs" in message
    assert "received: inputs [7, 3] torch.complex64" in message


def test_inputs_with_a_gradient_are_left_alone():
    inputs = INPUTS.clone().requires_grad_()
    same(attempt((inputs, LABELS)), attempt((INPUTS, LABELS)))
    assert inputs.requires_grad
    assert inputs.grad is None


def test_other_kinds_of_tensors():
    message = said(DataError, lambda: attempt((INPUTS.to_sparse(), LABELS)))
    assert message.startswith("inputs is a sparse tensor")
    assert message.endswith("write: inputs.to_dense()")
    for data, name in (((INPUTS.to("meta"), LABELS), "inputs"), ((INPUTS, LABELS.to("meta")), "targets")):
        assert said(DataError, lambda data=data: attempt(data)).startswith(f"{name} has no values: it is on the meta")


@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_a_device_that_is_not_there(device):
    message = said(ConfigurationError, lambda: attempt((INPUTS, LABELS), device=device))
    assert message.startswith(f"there is no device '{device}' here")
    assert 'write: device="' in message


# -- lists and tables --------------------------------------------------------------------------------------------------


def test_lists():
    posterior = attempt((INPUTS.tolist(), LABELS.tolist()))
    same(posterior, attempt((INPUTS, LABELS)))
    assert posterior.predict(INPUTS[:2].tolist(), draws=4).mean.shape == (2, 2)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ([[1, 2, 3], [1, 2]], "inputs has rows of different lengths"),
        ([["a", "b", "c"]] * ROWS, "inputs has text where numbers are needed"),
        ([[1.0, None, 2.0]] * ROWS, "'None' (NoneType) at row 0, column 1"),
        (5.0, "inputs is a single number"),
        ({}, "the inputs are an empty dict"),
    ],
)
def test_lists_that_are_no_table_of_numbers(inputs, words):
    assert words in said(DataError, lambda: attempt((inputs, LABELS)))


def test_tables():
    table = Table(INPUTS.numpy(), ["length", "width", "age"])
    posterior = attempt((table, LABELS))
    same(posterior, attempt((INPUTS, LABELS)))
    torch.testing.assert_close(
        posterior.predict(table, draws=4).mean, posterior.predict(INPUTS, draws=4).mean, rtol=0.0, atol=0.0
    )


def test_faults_in_a_table_are_found_by_the_names_of_its_columns():
    holes = Table(broken(math.nan).numpy(), ["length", "width", "age"])
    assert "nan at row 4, column 1 ('width')" in said(DataError, lambda: attempt((holes, LABELS)))
    posterior = attempt((INPUTS, LABELS))
    assert "nan at row 4, column 1 ('width')" in said(DataError, lambda: posterior.predict(holes))
    text = Table(np.array([[1, "short", 2]] * ROWS, dtype=object), ["length", "width", "age"])
    assert "'short' (str) at row 0, column 1 ('width')" in said(DataError, lambda: attempt((text, LABELS)))


def test_a_table_with_the_targets_inside():
    message = said(DataError, lambda: attempt(Table(INPUTS.numpy(), ["length", "width", "age"])))
    assert "write: fit(model, (inputs, targets), ...)" in message


# -- shapes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "targets", "numbers"),
    [(INPUTS, LABELS[:19], "20 rows of inputs and 19 targets"), (INPUTS.T, LABELS, "3 rows of inputs and 20 targets")],
)
def test_inputs_and_targets_of_different_lengths(inputs, targets, numbers):
    message = said(DataError, lambda: attempt((inputs, targets)))
    assert message.startswith("inputs and targets have different numbers of rows")
    assert numbers in message


def test_inputs_without_columns():
    message = said(DataError, lambda: attempt((QUANTITIES, LABELS), network(1)))
    assert "write: inputs[:, None] if these are rows of one feature" in message
    assert attempt((QUANTITIES[:, None], LABELS), network(1)).context.num_data == ROWS


def test_another_number_of_features_than_the_network_takes():
    message = said(DataError, lambda: attempt((INPUTS, LABELS), network(5)))
    assert message.startswith("the network cannot take these inputs: ")
    assert "received: inputs [7, 3] torch.float32" in message
