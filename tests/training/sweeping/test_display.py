"""What is shown while a sweep runs."""

from __future__ import annotations

import io

from rich.console import Console

from bayesprop.training.observers import Event
from bayesprop.training.sweeping.display import SweepBar


def test_the_plan_comes_first_and_each_rung_has_a_line(sweep):
    console = Console(file=io.StringIO(), width=200)
    bar = SweepBar(console)
    for _ in range(2):  # one bar may serve two sweeps
        sweep({"learning_rate": [0.01, 0.02, 0.005]}, rungs=(0.3,), keep=0.5, observers=[bar])
    lines = [line for line in console.file.getvalue().splitlines() if line.strip()]
    assert len(lines) == 6
    assert lines[0].startswith("3 settings of one structure, at most 3 at a time in one population")
    assert lines[1].startswith("rung 1/2 after")
    assert "2 settings left, the best is number" in lines[1]
    assert lines[2].startswith("rung 2/2 after")


def test_what_is_trained_in_words():
    metrics = {"rung": 2, "rungs": 3, "wave": 1, "waves": 4, "settings": 12}
    event = Event("epoch", 3, 9, 12, None, 1.0, metrics)
    assert SweepBar.description(event) == "rung 2/3, population 1/4 of 12 settings"
