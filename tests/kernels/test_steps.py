"""What surrounds the steps of a captured run, element by element."""

from __future__ import annotations

import pytest
import torch

from bayesprop.kernels import steps


def test_numbers_of_a_run(interpreter):
    table = torch.arange(7 * 5 * 3, dtype=torch.float32, device=interpreter).view(7, 5, 3)
    clock = torch.tensor([40, 2], device=interpreter)
    numbers = torch.zeros(4, 5, 3, device=interpreter)
    found = torch.zeros(4, dtype=torch.int64, device=interpreter)
    steps.begin(clock, table, found, numbers)
    assert found.tolist() == [40, 41, 42, 43]
    assert torch.equal(numbers, table[2:6])


@pytest.mark.parametrize("width", [1, 3, 1025])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_rows_of_minibatches(interpreter, width, dtype):
    """Three minibatches of four rows for two particles, from the second minibatch after the clock's on."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(30, width, generator=generator).to(interpreter)
    targets = (100 * torch.randn(30, generator=generator)).to(dtype).to(interpreter)
    order = torch.stack([torch.randperm(30, generator=generator)[:28] for _ in range(2)]).to(interpreter)
    clock = torch.tensor([5, 1], device=interpreter)
    out, labels = inputs.new_zeros(3, 2, 4, width), targets.new_zeros(3, 2, 4)
    words = steps.words(inputs), steps.words(targets)
    assert words[0] is not None
    assert words[1] is not None
    rooms = out.view(torch.int32), labels.view(3, 2, 4, 1).view(torch.int32)
    steps.gather(*words, order, clock, *rooms, 1)
    chosen = order[:, 8:20].view(2, 3, 4).movedim(0, 1)
    assert torch.equal(out, inputs[chosen])
    assert torch.equal(labels, targets[chosen])


@pytest.mark.parametrize(
    ("rows", "width"),
    [(torch.zeros(5, 3, 2), 6), (torch.zeros(5, dtype=torch.int64), 2), (torch.zeros(5, 8, dtype=torch.uint8), 2)],
)
def test_rows_are_words(rows, width):
    found = steps.words(rows)
    assert found is not None
    assert found.shape == (5, width)
    assert found.dtype == torch.int32


def test_rows_that_are_no_whole_words():
    assert steps.words(torch.zeros(5, 3, dtype=torch.uint8)) is None


def test_what_is_kept_of_a_run(interpreter):
    """Sums in double precision: a float32 total of a long epoch would lose a step's share."""
    nan, infinite = float("nan"), float("inf")
    values = torch.tensor([[1.0, 2.0, 3.0], [4.0, nan, 6.0], [7.0, infinite, -infinite]], device=interpreter)
    total = torch.tensor([2.0**30, 0.0, 0.0], dtype=torch.float64, device=interpreter)
    first_bad = torch.full((3,), 2**62, device=interpreter)
    now = torch.tensor([11, 12, 13], device=interpreter)
    steps.tally(values, total, first_bad, now)
    assert float(total[0]) == 2.0**30 + 12.0
    assert not bool(total[1:].isfinite().any())
    assert first_bad.tolist() == [2**62, 12, 13]
    steps.tally(values, total, first_bad, now + 3)
    assert first_bad.tolist() == [2**62, 12, 13]
