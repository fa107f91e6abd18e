"""Arrays, lists and tables as tensors."""

import numpy as np
import pytest
import torch

from bayesprop.data.tensors import check_finite, each, first, num_rows, to_array, to_inputs, to_tensor
from bayesprop.errors import DataError


class Table:
    """What pandas offers to those who do not import it."""

    def __init__(self, values, columns=None):
        self.values = np.asarray(values)
        if columns is not None:
            self.columns = columns

    def to_numpy(self):
        return self.values


class SparseMatrix:
    def toarray(self):
        return np.eye(2)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool"])
def test_numpy_types_are_kept(dtype):
    array = np.array([[0, 1], [1, 0]], dtype=dtype)
    tensor = to_tensor(array, "inputs")
    assert str(tensor.dtype) == f"torch.{dtype}"
    np.testing.assert_array_equal(tensor.numpy(), array)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("uint16", torch.int32), ("uint32", torch.int64), ("uint64", torch.int64), ("longdouble", torch.float64)],
)
def test_types_that_torch_hardly_knows_are_widened(dtype, expected):
    tensor = to_tensor(np.array([1, 2], dtype=dtype), "inputs")
    assert tensor.dtype == expected
    assert tensor.tolist() == [1, 2]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.uint8])
def test_tensors_keep_their_type_and_lose_their_history(dtype):
    tensor = torch.ones(3, dtype=dtype)
    if dtype.is_floating_point:
        tensor.requires_grad_()
    found = to_tensor(tensor, "inputs")
    assert found.dtype == dtype
    assert not found.requires_grad


def test_python_numbers_take_torchs_default_types():
    assert to_tensor([[1.0, 2.0]], "inputs").dtype == torch.float32
    assert to_tensor([1, 2.5], "inputs").dtype == torch.float32
    assert to_tensor([1, 2], "inputs").dtype == torch.int64
    assert to_tensor([np.float64(1.0)], "inputs").dtype == torch.float64
    assert to_tensor([np.ones(2), np.zeros(2)], "inputs").tolist() == [[1, 1], [0, 0]]


def test_a_list_of_tensors_is_stacked():
    assert to_tensor([torch.ones(2), torch.zeros(2)], "inputs").tolist() == [[1, 1], [0, 0]]
    with pytest.raises(DataError, match="rows of different shapes"):
        to_tensor([torch.ones(2), torch.zeros(3)], "inputs")


def test_memory_is_shared_where_torch_can_share_it():
    array = np.zeros(3)
    tensor = to_tensor(array, "inputs")
    array[0] = 7.0
    assert tensor[0] == 7.0


def test_arrays_that_torch_cannot_share_are_copied():
    read_only = np.arange(4.0)
    read_only.flags.writeable = False
    assert to_tensor(read_only, "inputs").tolist() == [0, 1, 2, 3]
    assert to_tensor(np.arange(4.0)[::-1], "inputs").tolist() == [3, 2, 1, 0]
    assert to_tensor(np.arange(4.0).astype(">f8"), "inputs").tolist() == [0, 1, 2, 3]
    assert to_tensor(np.asfortranarray(np.arange(6.0).reshape(2, 3)), "inputs").tolist() == [[0, 1, 2], [3, 4, 5]]


def test_tables_are_taken_through_to_numpy():
    assert to_tensor(Table([[1.0, 2.0]]), "inputs").tolist() == [[1, 2]]
    mixed = Table(np.array([[True, 2.5], [False, 3]], dtype=object))
    assert to_tensor(mixed, "inputs").dtype == torch.float64
    assert to_tensor(mixed, "inputs").tolist() == [[1.0, 2.5], [0.0, 3.0]]
    assert to_tensor(Table(np.array([1, 2], dtype=object)), "targets").dtype == torch.int64


def test_a_column_that_is_not_numeric_is_named():
    table = Table(np.array([[1.0, "red"], [2.0, "blue"]], dtype=object), columns=["size", "colour"])
    with pytest.raises(DataError, match=r"'red' \(str\) at row 0, column 1 \('colour'\)"):
        to_tensor(table, "inputs")
    with pytest.raises(DataError, match=r"None' \(NoneType\) at row 1"):
        to_tensor([1.0, None], "inputs")
    with pytest.raises(DataError, match="at the value itself"):
        to_tensor(object(), "inputs")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (["a", "b"], "inputs has text where numbers are needed"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "inputs has dates where numbers are needed"),
        ([[1.0, 2.0], [3.0]], "rows of different lengths"),
        (SparseMatrix(), r"inputs.toarray\(\)"),
        (torch.eye(2).to_sparse(), r"inputs.to_dense\(\)"),
    ],
)
def test_what_needs_a_guess_is_refused(value, message):
    with pytest.raises(DataError, match=message):
        to_tensor(value, "inputs")


def test_inputs_may_be_a_dict_or_a_tuple():
    found = to_inputs({"x": np.zeros((2, 3)), "t": [1.0, 2.0]})
    assert isinstance(found, dict)
    assert {key: tuple(tensor.shape) for key, tensor in found.items()} == {"x": (2, 3), "t": (2,)}
    pair = to_inputs((torch.zeros(2), np.ones((2, 1))))
    assert isinstance(pair, tuple)
    assert [tuple(tensor.shape) for tensor in pair] == [(2,), (2, 1)]
    assert num_rows(found) == num_rows(pair) == 2
    assert first(found) is found["x"]
    doubled = each(pair, lambda tensor: tensor + 1)
    assert isinstance(doubled, tuple)
    assert doubled[0].tolist() == [1, 1]


def test_a_tuple_of_numbers_is_one_tensor():
    assert isinstance(to_inputs((1.0, 2.0)), torch.Tensor)


def test_inputs_without_rows_or_with_different_rows_are_refused():
    with pytest.raises(DataError, match="empty dict"):
        to_inputs({})
    with pytest.raises(DataError, match=r"inputs is a single number"):
        num_rows(torch.tensor(1.0))
    with pytest.raises(DataError, match=r"inputs\['a'\]: 2, inputs\['b'\]: 3"):
        num_rows({"a": torch.zeros(2), "b": torch.zeros(3)})


def test_values_that_are_not_finite_are_named_by_row_and_column():
    values = torch.zeros(4, 3)
    values[2, 1], values[3, 0] = float("nan"), float("inf")
    with pytest.raises(DataError, match=r"nan at row 2, column 1 \('b'\); 2 such values in all"):
        check_finite(values, columns=["a", "b", "c"])
    with pytest.raises(DataError, match=r"inputs\['x'\] .* in batch 3\n.*row 2, column 1;"):
        check_finite({"x": values}, where=" in batch 3")
    images = torch.zeros(2, 1, 2, 2)
    images[1, 0, 1, 0] = float("-inf")
    with pytest.raises(DataError, match=r"-inf at row 1, position \(0, 1, 0\)"):
        check_finite(images)
    with pytest.raises(DataError, match="nan at row 1;"):
        check_finite(torch.tensor([0.0, float("nan")]))


def test_finite_values_and_integers_pass():
    assert check_finite((torch.ones(2), torch.ones(2, dtype=torch.int64))) is None


def test_arrays_of_anything():
    assert to_array([["a"], ["b"]], "targets").shape == (2, 1)
