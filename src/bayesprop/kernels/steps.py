"""What surrounds a step on a GPU: the rows of its minibatch, its numbers, and what is kept of its outcome.

A clock (2,) on the device holds the number of the step and the index of its minibatch at the beginning of a run of
steps; each step of the run adds its own `offset`. So a graph of many steps needs nothing from the host but its launch.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["begin", "gather", "tally", "words"]


def words(rows: Tensor) -> Tensor | None:
    """Rows (N, ...) as whole words of four bytes, (N, words); None if a row is not a whole number of them."""
    flat = rows.reshape(rows.shape[0], -1).contiguous()
    if flat.shape[1] * flat.element_size() % 4:
        return None
    return flat.view(torch.int32)


def begin(clock: Tensor, table: Tensor, step: Tensor, numbers: Tensor, offset: int) -> None:
    """step = clock[0] + offset and numbers = table[clock[1] + offset], for a table (minibatches, *numbers.shape)."""
    from bayesprop.kernels.device_steps import begin_kernel

    size = numbers.numel()
    block = 1 << max(0, size - 1).bit_length()
    begin_kernel[(1,)](clock, table, step, numbers, offset, table.shape[0], size, BLOCK=block)


def gather(
    inputs: Tensor, targets: Tensor, order: Tensor, clock: Tensor, inputs_out: Tensor, targets_out: Tensor, offset: int
) -> None:
    """Rows order[p, (clock[1] + offset) rows + r] of `inputs` and `targets`, all of them as words (see `words`)."""
    from bayesprop.kernels.device_steps import gather_kernel

    particles, length = order.shape
    rows = inputs_out.shape[0] // particles
    gather_kernel[(rows, particles)](
        inputs, targets, order, clock, inputs_out, targets_out, offset, length, rows, inputs.shape[1],
        targets.shape[1], BLOCK=1024,
    )  # fmt: skip


def tally(value: Tensor, total: Tensor, first_bad: Tensor, step: Tensor) -> None:
    """total += value, and the number of the first step whose value was not finite."""
    from bayesprop.kernels.device_steps import tally_kernel

    tally_kernel[(-(-value.numel() // 256),)](value, total, first_bad, step, value.numel(), BLOCK=256)
