"""Matrices whose rows begin at multiples of 128 bytes, as the bodies for GPUs want them.

A room is a view (..., columns) of memory with a few numbers more to each row. A GPU moves 16 bytes with one instruction
where a row begins at a multiple of 16 and ends at one, and 4 bytes at a time elsewhere. What lies behind a row's last
column belongs to nobody: bodies may write there.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["is_room", "pitch", "room", "settle"]

STEP = 32  # numbers


def pitch(columns: int) -> int:
    """How far apart rows of so many columns lie."""
    return -(-columns // STEP) * STEP


def room(*shape: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """A room of this shape, whose numbers are anything."""
    *rows, columns = shape
    make = torch.zeros if device.type == "cpu" else torch.empty  # arithmetic on anything is a warning in an interpreter
    return make(*rows, pitch(columns), device=device, dtype=dtype)[..., :columns]


def is_room(tensor: Tensor) -> bool:
    """Whether a tensor is one that `room` has made."""
    size = pitch(tensor.shape[-1])
    for length, stride in zip(reversed(tensor.shape[:-1]), reversed(tensor.stride()[:-1]), strict=True):
        if length > 1 and stride != size:  # a view may have any stride where there is only one
            return False
        size *= length
    whole = tensor.untyped_storage().nbytes() == size * tensor.element_size()
    return whole and tensor.storage_offset() == 0 and tensor.stride(-1) == 1


def settle(tensor: Tensor) -> Tensor:
    """The tensor itself if it is a room, or else a copy in one."""
    return tensor if is_room(tensor) else room(*tensor.shape, device=tensor.device, dtype=tensor.dtype).copy_(tensor)
