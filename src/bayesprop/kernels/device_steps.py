"""GPU bodies of what surrounds a step: the rows of its minibatch, its numbers, and what is kept of its outcome.

Launched by `kernels.steps`. The clock (step, index of the minibatch) lies on the device, so that one captured graph of
many steps can be replayed for any of them.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["begin_kernel", "gather_kernel", "tally_kernel"]


@triton.jit
def begin_kernel(clock, table, step, numbers, offset, count, size, BLOCK: tl.constexpr):
    """step = clock's + offset; numbers = the row of the table that belongs to the minibatch."""
    at = tl.arange(0, BLOCK)
    row = tl.load(clock + 1) + offset
    tl.store(numbers + at, tl.load(table + row * size + at, mask=at < size, other=0.0), mask=at < size)
    tl.store(step, tl.load(clock) + offset)


@triton.jit
def gather_kernel(
    inputs, targets, order, clock, inputs_out, targets_out, offset, length, rows, input_words, target_words,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy the rows of one minibatch for one particle, as words of four bytes."""
    row = tl.program_id(0)
    particle = tl.program_id(1).to(tl.int64)
    index = tl.load(clock + 1) + offset
    chosen = tl.load(order + particle * length + index * rows + row)
    out = particle * rows + row
    at = tl.arange(0, BLOCK)
    for start in range(0, input_words, BLOCK):
        inside = start + at < input_words
        word = tl.load(inputs + chosen * input_words + start + at, mask=inside, other=0)
        tl.store(inputs_out + out * input_words + start + at, word, mask=inside)
    for start in range(0, target_words, BLOCK):
        inside = start + at < target_words
        word = tl.load(targets + chosen * target_words + start + at, mask=inside, other=0)
        tl.store(targets_out + out * target_words + start + at, word, mask=inside)


@triton.jit
def tally_kernel(value, total, first_bad, step, particles, BLOCK: tl.constexpr):
    """total += value; first_bad = the first step whose value was not finite."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < particles
    found = tl.load(value + at, mask=mask, other=0.0)
    tl.store(total + at, tl.load(total + at, mask=mask, other=0.0) + found.to(tl.float64), mask=mask)
    bad = (found != found) | (tl.abs(found) == float("inf"))
    first = tl.load(first_bad + at, mask=mask, other=0)
    tl.store(first_bad + at, tl.where(bad, tl.minimum(first, tl.load(step)), first), mask=mask)
