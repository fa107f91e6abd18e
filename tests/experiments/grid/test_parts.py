import dataclasses

import pytest
import torch

from bayesprop.experiments.experiment import Bench, Unfinished
from bayesprop.experiments.grid.parts import grid, parts, search, setup
from bayesprop.experiments.grid.settings import GRID, PAPER, SMOKE
from bayesprop.training.observers import Stop

FEW = dataclasses.replace(SMOKE, width=4, train_rows=200, held_out_rows=50, epochs=4)


def test_the_winner_needs_the_sweep():
    sweep, winner = parts(PAPER)
    assert sweep.what == "324 settings, 600 epochs"
    assert winner.needs == ("sweep",)


def test_rates_of_plain_steps_are_those_of_a_sum():
    assert grid(PAPER) == GRID
    plain = grid(dataclasses.replace(PAPER, optimizer="sgd"))
    assert plain["learning_rate"] == pytest.approx([0.128, 0.0128, 0.00128])
    assert plain["samples"] == GRID["samples"]


def test_the_kl_is_the_papers(data):
    method = setup(SMOKE)[2]
    assert (method.kl_weights, method.temperature, method.optimizer) == ("uniform", 1.0, "adam")


def test_every_setting_has_scores_and_a_fate(data, tmp_path):
    bench = Bench(tmp_path, torch.device("cpu"), {}, tmp_path)
    found = search(FEW, bench)
    assert len(found["rows"]) == 8
    assert [len(row["scores"]) for row in found["rows"]] == [2] * 2 + [1] * 6
    assert found["rows"][0]["values"] == found["best"]
    assert found["steps_per_epoch"] == 2
    assert found["member_steps"] == 2 * 2 * 8 + 2 * 2 * 2


def test_a_sweep_that_is_stopped_goes_on(data, tmp_path):
    class Stopping(Bench):
        def watch(self, event):
            return Stop if event.kind == "step" and event.step == 3 else None

    with pytest.raises(Unfinished, match="stopped after"):
        search(FEW, Stopping(tmp_path / "a", torch.device("cpu"), {}, tmp_path))
    again = search(FEW, Bench(tmp_path / "a", torch.device("cpu"), {}, tmp_path))
    whole = search(FEW, Bench(tmp_path / "b", torch.device("cpu"), {}, tmp_path))
    assert again["rows"] == whole["rows"]
