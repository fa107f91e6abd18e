"""Steps one by one: what is counted, what is kept of them, and the precision in which they multiply."""

from __future__ import annotations

import contextlib

import pytest
import torch

from bayesprop.data import Data
from bayesprop.rng import Rng
from bayesprop.training.source import Source
from bayesprop.training.stepping import OneByOne, precision

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_an_epoch_is_counted_step_by_step(model, method, pair, started):
    made, seeds = model(), Rng.create(0, 2)
    source = Source(Data(*pair()), made, batch_size=8, epochs=2, rng=seeds)
    source.probe()
    now = started()
    now.total.zero_()
    steps = OneByOne(made, method(), source, seeds, precision(CPU, None, True), "as told")
    assert steps.description == "as told"
    before, counted = now.state.mean.clone(), []
    for _ in steps.epoch(now):
        counted.append((now.step, now.index, now.total.clone()))
    assert [(step, index) for step, index, _ in counted] == [(1, 1), (2, 2), (3, 3)]
    assert not torch.equal(now.state.mean, before)
    totals = torch.stack([total for *_, total in counted])
    assert bool((totals.diff(dim=0) != 0.0).all())
    assert now.first_bad.tolist() == [2**62, 2**62]


def test_the_first_step_that_is_not_finite_is_remembered(model, method, pair, started):
    made, seeds, now = model(), Rng.create(0, 2), started()
    source = Source(Data(*pair()), made, batch_size=8, epochs=2, rng=seeds)
    source.probe()
    steps = OneByOne(made, method(), source, seeds, precision(CPU, None, True), "")
    for _ in steps.epoch(now):
        if now.step == 1:
            now.state.mean[1] = float("nan")
    assert now.first_bad.tolist() == [2**62, 1]


@pytest.mark.parametrize(
    ("device", "autocast", "tf32", "inside", "halved"),
    [
        (CPU, None, True, "highest", False),
        (CPU, torch.bfloat16, True, "highest", True),
        (CUDA, None, True, "high", False),
        (CUDA, None, False, "highest", False),
    ],
    ids=["cpu", "cpu autocast", "gpu", "gpu without tf32"],
)
def test_precision_of_products_is_put_back(device, autocast, tf32, inside, halved):
    assert torch.get_float32_matmul_precision() == "highest"
    with precision(device, autocast, tf32)():
        assert torch.get_float32_matmul_precision() == inside
        product = torch.ones(2, 2) @ torch.ones(2, 2)
        assert product.dtype == (torch.bfloat16 if halved else torch.float32)
    assert torch.get_float32_matmul_precision() == "highest"


def test_precision_is_put_back_after_an_error():
    with pytest.raises(ZeroDivisionError), precision(CUDA, None, True)():
        1 / 0  # noqa: B018
    assert torch.get_float32_matmul_precision() == "highest"


def test_what_a_user_has_set_stays():
    torch.set_float32_matmul_precision("medium")
    try:
        with precision(CUDA, None, True)():
            assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_without_any_wish_there_is_no_context():
    assert precision(CPU, None, True) is contextlib.nullcontext
