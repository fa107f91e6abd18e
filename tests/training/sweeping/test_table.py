"""What a sweep returns: rows from best to worst, printed, as dicts and as a file."""

from __future__ import annotations

import csv
import io

import pytest
from rich.console import Console

import bayesprop as bp
from bayesprop import priors
from bayesprop.errors import ConfigurationError
from bayesprop.training.sweeping.members import Score
from bayesprop.training.sweeping.table import Sweep


@pytest.fixture
def made(members):
    found = members(
        [{"learning_rate": 0.1}, {"learning_rate": 0.01}, {"prior": priors.Laplace()}, {"learning_rate": 0.001}]
    )
    early = [Score(1, 3, 0.9, 0.30), Score(1, 3, 0.8, 0.20), Score(1, 3, 0.7, 0.25), Score(1, 3, 0.6, 0.1)]
    for member, score in zip(found, early, strict=True):
        member.scores, member.steps = [score], 3
    for number, nll, fate in ((2, 0.5, "finished, place 2 of 2"), (1, 0.4, "finished, place 1 of 2, chosen")):
        found[number].scores.append(Score(3, 9, nll, 0.125))
        found[number].steps, found[number].fate = 9, fate
    found[0].fate = "dropped at epoch 1: place 4 of 4, 3 go on"
    found[3].fate = "diverged: the log-likelihood was not finite first at step 5"
    return Sweep.of(found, [], "nll", task="classification", plan="the plan", seconds=1.25)


def test_rows_are_ordered_by_how_far_and_how_well(made):
    assert [row.number for row in made.rows] == [1, 2, 0, 3]
    assert len(made) == 4
    assert made.best_values == {"learning_rate": 0.01}


def test_the_table_says_everything(made):
    text = str(made)
    for part in ("learning_rate", "prior", "NLL", "epoch 1", "epoch 3", "Laplace(0, 1)", "12.50%", "0.4", "chosen"):
        assert part in text
    assert "4 settings by validation NLL: 1 dropped, 1 diverged, 24 steps in 1.2 s" in text
    console = Console(width=200, color_system=None, record=True, file=io.StringIO())
    console.print(made)
    assert "Laplace(0, 1)" in console.export_text()
    assert repr(made).startswith("Sweep(4 settings by validation NLL")


def test_a_long_table_is_cut_and_says_so(made):
    console = Console(width=200, color_system=None)
    with console.capture() as captured:
        console.print(made.table(rows=2))
    assert "and 2 more: sweep.to_dicts(), sweep.to_csv(path)" in captured.get()
    assert "0.001" not in captured.get()
    assert len(made.table(rows=None).rows) == 4


def test_dicts_are_flat(made):
    first, second, *_ = made.to_dicts()
    assert first == {
        "number": 1,
        "learning_rate": 0.01,
        "nll@1": 0.8,
        "error@1": 0.2,
        "nll@3": 0.4,
        "error@3": 0.125,
        "steps": 9,
        "fate": "finished, place 1 of 2, chosen",
    }
    assert second["prior"] == priors.Laplace()


def test_a_file_for_spreadsheets(made, tmp_path):
    path = tmp_path / "sweep.csv"
    made.to_csv(path)
    with open(path, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        "number",
        "learning_rate",
        "nll@1",
        "error@1",
        "nll@3",
        "error@3",
        "prior",
        "steps",
        "fate",
    ]
    assert [row["prior"] for row in rows] == ["", "Laplace(0, 1)", "", ""]
    assert float(rows[1]["nll@3"]) == 0.5
    assert rows[3]["nll@3"] == ""


def test_no_posterior_is_no_best_one(made):
    with pytest.raises(ConfigurationError, match="this sweep has no posterior") as caught:
        made.best  # noqa: B018
    assert "write: bp.sweep(..., checkpoint=" in str(caught.value)


def test_quantities_have_no_error_rate(sweep):
    found = sweep({"learning_rate": [0.01, 0.02]}, epochs=1)
    assert "RMSE" in str(found)
    assert "%" not in str(found)
    assert {"nll@1", "rmse@1"} <= found.to_dicts()[0].keys()
    assert isinstance(found, bp.training.Sweep)
