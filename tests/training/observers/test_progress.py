"""The progress bar: about ten lines of numbers, whatever the number of epochs is."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from bayesprop.training.observers import Event, ProgressBar
from bayesprop.training.observers.progress import COLUMNS

METRICS = {
    "epoch": 7,
    "step": 21,
    "log_likelihood": -1234.56,
    "kl": 78.91,
    "elbo": -1313.47,
    "validation_nll": 0.12345,
    "validation_error": 0.0625,
    "validation_rmse": 1.5,
    "epistemic_share": 0.25,
}


def told(kind: str, epoch: int, epochs: int, metrics: dict | None = None) -> Event:
    return Event(kind, epoch, epochs, 3 * epoch, 3, 0.0, metrics or {})


@pytest.fixture
def screen() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def bar(screen) -> ProgressBar:
    """On a terminal of 200 columns."""
    return ProgressBar(Console(file=screen, force_terminal=True, width=200, color_system=None))


def lines(screen: io.StringIO) -> list[str]:
    """What is left to read of it: the lines that report an epoch."""
    return re.findall(r"epoch +\d+/\d+  .*?(?=\r|\n)", screen.getvalue())


def run(bar: ProgressBar, epochs: int, *, first: int = 0, every: int = 1) -> None:
    bar(told("start", first, epochs))
    for epoch in range(first, epochs):
        bar(told("step", epoch, epochs))
        reports = (epoch + 1) % every == 0 or epoch + 1 == epochs
        bar(told("epoch", epoch, epochs, {"elbo": -float(epoch)} if reports else {}))
    bar(told("end", epochs, epochs))


def test_a_line_has_the_numbers_with_their_names():
    assert ProgressBar.line(told("epoch", 6, 20, METRICS)) == (
        "epoch    7/20  ELBO -1,313.5  data term -1,234.6  KL 78.9  val NLL 0.1235  val error 6.25%  val RMSE 1.5000  "
        "epistemic 25.0%"
    )
    assert set(COLUMNS) == METRICS.keys() - {"epoch", "step"}


def test_a_line_has_only_what_there_is():
    assert ProgressBar.line(told("epoch", 0, 5, {"log_likelihood": -2.0})) == "epoch    1/5  data term -2.0"


@pytest.mark.parametrize(("epochs", "count"), [(1, 1), (7, 7), (10, 10), (19, 19), (25, 13), (1000, 10)])
def test_about_ten_lines_remain(bar, screen, epochs, count):
    run(bar, epochs)
    found = lines(screen)
    assert len(found) == count
    assert found[-1].startswith(f"epoch {epochs:>4}/{epochs}  ELBO {-(epochs - 1.0):,.1f}")


def test_epochs_without_a_report_leave_no_line(bar, screen):
    run(bar, 10, every=5)
    assert [line.split()[1] for line in lines(screen)] == ["5/10", "10/10"]


def test_no_observer_ever_asks_to_stop(bar):
    events = [told("start", 0, 2), told("step", 0, 2), told("epoch", 0, 2, METRICS), told("end", 2, 2)]
    assert [bar(event) for event in events] == [None] * 4


def test_the_bar_counts_epochs(bar):
    bar(told("start", 2, 8))
    (task,) = bar._bar.tasks
    assert (task.completed, task.total) == (2, 8)
    bar(told("epoch", 4, 8))
    assert task.completed == 5
    bar(told("end", 5, 8))
    assert bar._bar.finished is False


def test_it_can_be_used_again(bar, screen):
    run(bar, 3)
    run(bar, 2)
    assert len(bar._bar.tasks) == 1
    assert len(lines(screen)) == 5


def test_an_end_without_a_start_is_fine(bar, screen):
    bar(told("end", 0, 3))
    bar(told("epoch", 0, 3, METRICS))
    assert lines(screen) == []


def test_it_writes_to_standard_error(capsys):
    run(ProgressBar(), 2)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "epoch    2/2" in captured.err
