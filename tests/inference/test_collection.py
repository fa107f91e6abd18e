"""Which steps are kept, where, and what that costs."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.errors import MemoryBudgetError
from bayesprop.inference.collection import check_budget, keep, kept_bytes, kept_samples, make_kept, place_of
from bayesprop.inference.method import state_tensors
from bayesprop.model import Place


def model() -> bp.Model:
    return bp.Model(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), likelihood=likelihoods.Gaussian(0.5))


def places(epochs: int, count: int, share, samples: int, **options) -> list[int]:
    return [
        place_of(Place(index=i, count=count, epoch=e, epochs=epochs), share, samples, **options)
        for e in range(epochs)
        for i in range(count)
    ]


def half(progress: float) -> float:
    return max(0.0, progress - 0.5) / 0.5


@pytest.mark.parametrize(("epochs", "count"), [(10, 10), (7, 13), (200, 1), (1, 101)])
@pytest.mark.parametrize("samples", [1, 5, 20])
def test_samples_are_spread_evenly_over_the_collecting_part(epochs, count, samples):
    found = places(epochs, count, half, samples)
    kept = [step for step, slot in enumerate(found) if slot >= 0]
    assert [found[step] for step in kept] == list(range(samples))
    assert kept[-1] == epochs * count - 1
    assert kept[0] >= epochs * count // 2 - 1
    gaps = {b - a for a, b in zip(kept, kept[1:])}
    assert not gaps or max(gaps) - min(gaps) <= 1


def test_fewer_steps_than_places_leave_places_empty():
    found = places(6, 1, half, 10)
    assert [slot >= 0 for slot in found] == [False, False, False, True, True, True]
    assert len({slot for slot in found if slot >= 0}) == 3


def test_thinning_keeps_steps_apart_and_the_newest_stay():
    found = places(100, 1, half, 4, portion=0.5, thinning=5)
    kept = [step for step, slot in enumerate(found) if slot >= 0]
    assert len(kept) == 10
    assert min(b - a for a, b in zip(kept, kept[1:])) >= 5
    assert [found[step] for step in kept] == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]


@pytest.mark.parametrize("kind", [int, lambda slot: torch.full((2,), float(slot))])
def test_what_is_kept_comes_back_with_its_buffers(kind):
    made = model()
    kept = make_kept(made, 2, 3)
    theta, buffers = torch.zeros(2, made.layout.size), made.initial_buffers(2)
    alone, own = kept_samples(kept, theta, buffers)
    assert alone.shape == (2, 1, made.layout.size)
    assert own["1.running_mean"].shape == (2, 1, 3)
    for step, slot in enumerate([-1, 0, -1, 2]):
        theta.fill_(step)
        buffers["1.running_mean"].fill_(10.0 * step)
        keep(kept, kind(slot), theta, buffers)
    found, own = kept_samples(kept, theta, buffers)
    assert_close(found[:, :, 0], torch.tensor([[1.0, 3.0]]).expand(2, 2), rtol=0.0, atol=0.0)
    assert_close(own["1.running_mean"][:, :, 1], torch.tensor([[10.0, 30.0]]).expand(2, 2), rtol=0.0, atol=0.0)
    theta.fill_(7.0)
    assert float(found.max()) == 3.0


def test_bytes_are_those_of_the_tensors():
    made = model()
    kept = make_kept(made, 2, 5)
    held = sum(t.numel() * t.element_size() for t in state_tensors(kept).values())
    kept.filled[:] = True
    theta, own = kept_samples(kept, kept.theta[:, 0], {})
    copied = sum(t.numel() * t.element_size() for t in (theta, *own.values()))
    assert kept_bytes(made, 2, 5) == held + copied + 2 * 5  # which samples are there is one byte each


def test_too_many_samples_are_refused_before_they_are_made():
    made = model()
    budget = kept_bytes(made, 2, 7) / 2**30
    check_budget(made, 2, 7, budget, "SGLD")
    with pytest.raises(MemoryBudgetError, match="SGLD: the samples to keep do not fit") as caught:
        check_budget(made, 2, 8, budget, "SGLD")
    message = str(caught.value)
    assert "8 samples of 15 columns for each of 2 particles" in message
    assert "which holds 7 samples" in message
    assert "write: SGLD(samples=7)" in message
    with pytest.raises(MemoryBudgetError, match="does not hold a single one"):
        check_budget(made, 2, 8, 1e-12, "SGLD")
