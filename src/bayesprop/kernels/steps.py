"""What surrounds steps on a GPU: the rows of their minibatches, their numbers, and what is kept of their outcome.

A clock (2,) on the device holds the number of the step and the index of its minibatch at the beginning of a run of
steps. So a graph of many steps needs nothing from the host but its launch, and what each of them would do by itself is
done for many at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bayesprop.kernels.device import launch

__all__ = ["begin", "gather", "tally", "words"]


def words(rows: Tensor) -> Tensor | None:
    """Rows (N, ...) as whole words of four bytes, (N, words); None if a row is not a whole number of them."""
    flat = rows.reshape(rows.shape[0], -1).contiguous()
    if flat.shape[1] * flat.element_size() % 4:
        return None
    return flat.view(torch.int32)


def begin(clock: Tensor, table: Tensor, steps: Tensor, numbers: Tensor) -> None:
    """steps[i] = clock[0] + i and numbers[i] = table[clock[1] + i], for a table (minibatches, *numbers.shape[1:])."""
    from bayesprop.kernels.device_steps import begin_kernel

    size = numbers[0].numel()
    block = 1 << max(0, size - 1).bit_length()
    launch(begin_kernel, (steps.shape[0],), clock, table, steps, numbers, size, BLOCK=block)


def gather(
    inputs: Tensor, targets: Tensor, order: Tensor, clock: Tensor, inputs_out: Tensor, targets_out: Tensor, offset: int
) -> None:
    """Rows order[p, (clock[1] + offset + i) rows + r] of `inputs` and `targets` for minibatch i and particle p.

    All of them are words (see `words`); those that come out are (minibatches, particles, rows, words).
    """
    from bayesprop.kernels.device_steps import gather_kernel

    batches, particles, rows, _ = inputs_out.shape
    launch(
        gather_kernel, (rows, particles, batches),
        inputs, targets, order, clock, inputs_out, targets_out, offset, order.shape[1], inputs.shape[1],
        targets.shape[1], BLOCK=1024,
    )  # fmt: skip


def tally(values: Tensor, total: Tensor, first_bad: Tensor, steps: Tensor) -> None:
    """total += the sum of values (steps, particles), and the number of the first step whose value was not finite."""
    from bayesprop.kernels.device_steps import tally_kernel

    count, particles = values.shape
    launch(tally_kernel, (-(-particles // 256),), values, total, first_bad, steps, count, particles, BLOCK=256)
