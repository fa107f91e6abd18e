"""Rooms: rows that begin at multiples of 128 bytes, and how they are told from other matrices."""

import pytest
import torch

from bayesprop.kernels.rooms import is_room, room, settle

CPU = torch.device("cpu")


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (2, 3, 33), (4, 1, 64), (1, 1, 31), (7,)])
def test_rows_begin_at_multiples_of_128_bytes(shape):
    made = room(*shape, device=CPU)
    assert made.shape == shape
    assert is_room(made)
    assert all(stride % 32 == 0 for stride in made.stride()[:-1])
    assert made.untyped_storage().nbytes() % 128 == 0


def test_half_precision():
    made = room(2, 5, device=CPU, dtype=torch.bfloat16)
    assert made.dtype == torch.bfloat16
    assert is_room(made)


def test_lanes_of_a_room_are_a_room():
    """(particles, samples, columns) seen as (lanes, columns), and back."""
    made = room(2, 3, 5, device=CPU)
    assert is_room(made.flatten(0, 1))
    assert is_room(made.flatten(0, 1).unflatten(0, (2, 3)))


def test_the_stride_of_a_single_one_does_not_matter():
    """PyTorch gives the axis of one sample the stride of a row without its padding."""
    one = room(3, 5, device=CPU).unflatten(0, (3, 1))
    assert one.stride() == (32, 5, 1)
    assert is_room(one)


def test_what_is_no_room():
    made = room(4, 40, device=CPU)
    assert not is_room(torch.zeros(4, 40))  # the next row begins behind the last column
    assert not is_room(torch.zeros(4, 64)[:, :33].clone())
    assert not is_room(made[1:])
    assert not is_room(made[:, :8])
    assert not is_room(made.t())


def test_settling_keeps_numbers_and_copies_only_once():
    numbers = torch.arange(10.0).reshape(2, 5)
    settled = settle(numbers)
    assert is_room(settled)
    assert torch.equal(settled, numbers)
    assert settle(settled) is settled
