"""GPU bodies of what surrounds steps: the rows of their minibatches, their numbers, and what is kept of their outcome.

Launched by `kernels.steps`. The clock (step, index of the minibatch) lies on the device, so that one captured graph of
many steps can be replayed for any of them.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["begin_kernel", "gather_kernel", "tally_kernel"]


@triton.jit
def begin_kernel(clock, table, steps, numbers, size, BLOCK: tl.constexpr):
    """The number of one step of a run, and the row of the table that belongs to its minibatch."""
    offset = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    row = tl.load(clock + 1) + offset
    tl.store(numbers + offset * size + at, tl.load(table + row * size + at, mask=at < size, other=0.0), mask=at < size)
    tl.store(steps + offset, tl.load(clock) + offset)


@triton.jit
def _copy(source, out, words, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for start in range(0, words, BLOCK):
        inside = start + at < words
        tl.store(out + start + at, tl.load(source + start + at, mask=inside, other=0), mask=inside)


@triton.jit
def gather_kernel(
    inputs, targets, order, clock, inputs_out, targets_out, offset, length, input_words, target_words,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy one row of one minibatch for one particle, as words of four bytes."""
    row = tl.program_id(0)
    particle = tl.program_id(1).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)
    rows = tl.num_programs(0)
    index = tl.load(clock + 1) + offset + batch
    chosen = tl.load(order + particle * length + index * rows + row)
    out = (batch * tl.num_programs(1) + particle) * rows + row
    _copy(inputs + chosen * input_words, inputs_out + out * input_words, input_words, BLOCK)
    _copy(targets + chosen * target_words, targets_out + out * target_words, target_words, BLOCK)


@triton.jit
def tally_kernel(values, total, first_bad, steps, count, particles, BLOCK: tl.constexpr):
    """total += values; first_bad = the first step whose value was not finite."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < particles
    found = tl.load(total + at, mask=mask, other=0.0)
    first = tl.load(first_bad + at, mask=mask, other=0)
    for step in range(count):
        value = tl.load(values + step * particles + at, mask=mask, other=0.0)
        bad = (value != value) | (tl.abs(value) == float("inf"))
        first = tl.where(bad, tl.minimum(first, tl.load(steps + step)), first)
        found += value.to(tl.float64)
    tl.store(total + at, found, mask=mask)
    tl.store(first_bad + at, first, mask=mask)
