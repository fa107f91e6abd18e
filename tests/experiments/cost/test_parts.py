import dataclasses
import time

import pytest
import torch

from bayesprop.errors import ConfigurationError
from bayesprop.experiments.cost.parts import KINDS, Clock, parts, setup, timed
from bayesprop.experiments.cost.settings import PAPER, SMOKE
from bayesprop.experiments.experiment import Bench, Unfinished
from bayesprop.inference import BayesByBackprop
from bayesprop.training.observers import Event, Stop


def bench(tmp_path, ends=None):
    return Bench(tmp_path, torch.device("cpu"), {}, tmp_path, ends=ends)


def test_a_part_for_each_time():
    names = [part.name for part in parts(PAPER)]
    assert len(names) == 2 * len(KINDS) * (1 + 2)
    assert names[0] == "cpu-sgd-400-of-1"
    assert "cuda-mixture-2-1200-of-5" in names


def test_the_clock_leaves_the_first_epoch_out():
    clock = Clock(2, torch.device("cpu"))
    answers = [clock(Event("epoch", epoch, 9, epoch, 1, 0.0)) for epoch in range(3)]
    assert answers == [None, None, Stop]
    assert clock(Event("step", 3, 9, 3, 1, 0.0)) is None
    assert len(clock.seconds) == 2
    assert all(seconds >= 0.0 for seconds in clock.seconds)


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_is_timed(kind, data, tmp_path):
    few = dataclasses.replace(SMOKE, train_rows=100, held_out_rows=20)
    found = timed(few, "cpu", 4, kind, 1, bench(tmp_path))
    assert len(found["epoch_seconds"]) == few.cpu_epochs
    assert found["epochs_an_hour"] == pytest.approx(3600.0 / found["seconds"])
    assert found["microseconds_a_step"] == pytest.approx(1e6 * found["seconds"])
    assert found["engine"]


def test_two_samples_are_two_samples():
    methods = [setup(kind, 4)[1] for kind in ("gaussian", "mixture", "mixture-2")]
    assert all(isinstance(method, BayesByBackprop) for method in methods)
    assert [method.estimator.samples for method in methods] == [1, 1, 2]


def test_what_cannot_be_timed(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigurationError, match=r"no CUDA device to time[\s\S]*--parts \"cpu-\*\""):
        timed(PAPER, "cuda", 4, "sgd", 1, bench(tmp_path))
    with pytest.raises(Unfinished, match="the time is over"):
        timed(PAPER, "cpu", 4, "sgd", 1, bench(tmp_path, time.monotonic() - 1.0))
