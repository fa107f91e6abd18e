"""Log joints as numbers for native code."""

from __future__ import annotations

import ctypes
import math

import pytest
import torch

from bayesprop.kernels.dense import Layer, Stack
from bayesprop.kernels.small_stack import Joint, at


def joint(center: torch.Tensor, precision: torch.Tensor) -> Joint:
    stack = Stack((Layer(0, 1, 1, 1, "tanh"),))
    columns = torch.tensor([-1, 2], dtype=torch.int32)
    return Joint(stack, 3, center, precision, torch.zeros(2), columns, ((2, 1, 0.5),), "Bernoulli")


def test_the_constant_is_that_of_the_normal_priors():
    """The log of two normalisers: precision 4 and 1."""
    found = joint(torch.zeros(2), torch.tensor([4.0, 1.0]))
    assert found.constant == pytest.approx(math.log(2.0) - math.log(2.0 * math.pi))
    assert found.random == 2


def test_one_row_of_numbers_for_each_particle():
    found = joint(torch.zeros(3, 2), torch.ones(3, 2))
    assert found.random == 2
    assert found.constant == pytest.approx(-math.log(2.0 * math.pi))


def test_arrays_are_where_their_pointers_say():
    found = joint(torch.zeros(2), torch.ones(2))
    pointer, count = found.layers
    assert count.value == 1
    assert list((ctypes.c_int64 * 5).from_address(pointer.value)) == [0, 1, 1, 1, 2]
    columns, kinds, scales, latents = found.hyperpriors
    assert latents.value == 1
    assert ctypes.c_int64.from_address(columns.value).value == 2
    assert ctypes.c_int64.from_address(kinds.value).value == 1
    assert ctypes.c_double.from_address(scales.value).value == 0.5
    assert at(found.center).value == found.center.data_ptr()
    likelihood, noise_column, _ = found.outcome
    assert (likelihood.value, noise_column.value) == (1, -1)
