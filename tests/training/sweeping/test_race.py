"""Races that are stopped: what there is comes back, and a resumed race ends as one that was not stopped."""

from __future__ import annotations

import os
import signal
import warnings

import pytest
import torch
from torch.testing import assert_close

import bayesprop as bp
from bayesprop.errors import BayespropWarning, CheckpointError
from bayesprop.training.observers import Stop

GRID = {"learning_rate": [0.001, 0.01, 0.02], "samples": [1, 2]}
RACE = {"rungs": (1 / 3,), "keep": 0.5, "winners": 2}


def same(first: bp.training.Sweep, second: bp.training.Sweep) -> None:
    assert first.rows == second.rows
    assert len(first.posteriors) == len(second.posteriors)
    for mine, theirs in zip(first.posteriors, second.posteriors, strict=True):
        assert_close(dict(mine.tensors()), dict(theirs.tensors()), rtol=0.0, atol=0.0)
        assert mine.context.history == theirs.context.history


def after(count: int, kind: str):
    """An observer that stops at event number `count` of a kind."""
    seen = []

    def watch(event):
        seen.append(event.kind == kind)
        return Stop if sum(seen) == count else None

    return watch


@pytest.mark.parametrize(
    ("kind", "count"), [("step", 1), ("step", 2), ("step", 4), ("step", 9), ("epoch", 1), ("epoch", 3), ("rung", 1)]
)
def test_a_resumed_race_ends_as_if_it_had_not_been_stopped(sweep, path, kind, count):
    whole = sweep(GRID, **RACE)
    with pytest.warns(BayespropWarning, match="the sweep was stopped"):
        part = sweep(GRID, **RACE, checkpoint=path, observers=[after(count, kind)])
    assert part.interrupted
    again = sweep(GRID, **RACE, checkpoint=path, resume=True)
    same(again, whole)
    assert not again.interrupted


def test_stopped_again_and_again(sweep, path):
    whole, stops = sweep(GRID, **RACE), 0
    while True:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BayespropWarning)
            found = sweep(GRID, **RACE, checkpoint=path, resume=True, observers=[after(2, "step")])
        if not found.interrupted:
            break
        stops += 1
    assert stops > 3
    same(found, whole)


def test_a_race_that_is_over_is_not_run_again(sweep, path):
    whole = sweep(GRID, **RACE, checkpoint=path)
    events = []
    same(sweep(GRID, **RACE, checkpoint=path, resume=True, observers=[events.append]), whole)
    assert [event.kind for event in events] == ["start", "end"]


def test_behind_the_last_rung_there_is_nothing_to_stop(sweep):
    same(sweep(GRID, **RACE, observers=[after(2, "rung")]), sweep(GRID, **RACE))


def test_control_c_returns_what_there_is(sweep, held_out):
    def interrupt(event):
        if event.kind == "step" and event.metrics["rung"] == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.warns(BayespropWarning, match="the sweep was stopped at rung 2 of 2; this is what there is so far"):
        found = sweep(GRID, **RACE, observers=[interrupt])
    assert found.interrupted
    assert "interrupted" in found.summary()
    fates = [row.fate for row in found.rows]
    assert sum(fate.startswith("stopped early") for fate in fates) == 3
    assert sum(fate.startswith("dropped") for fate in fates) == 3
    assert fates[0].endswith("chosen")
    nll = -float(found.best.predict(held_out[0], 4).log_prob(held_out[1]).mean())
    assert nll == pytest.approx(found.rows[0].scores[-1].nll, rel=1e-9)


def test_before_the_first_score_there_is_a_word_for_all(sweep):
    with pytest.warns(BayespropWarning, match="the sweep was stopped at rung 1 of 2"):
        found = sweep(GRID, **RACE, observers=[after(1, "step")])
    trained = [row for row in found.rows if row.steps]
    assert [row.steps for row in trained] == [1] * 3  # the population in flight was scored where it was
    assert [row.fate for row in found.rows[3:]] == ["not trained"] * 3
    assert len(found.posteriors) == 2


def test_a_file_of_another_sweep_is_refused(sweep, path):
    sweep(GRID, **RACE, checkpoint=path)
    with pytest.raises(CheckpointError, match="belongs to another run") as caught:
        sweep({**GRID, "samples": [1, 3]}, **RACE, checkpoint=path, resume=True)
    assert "grid" in str(caught.value)


def test_a_place_that_cannot_be_written_to_is_found_out_before_the_first_step(sweep, tmp_path):
    (tmp_path / "file").write_text("")
    events = []
    with pytest.raises(CheckpointError, match="could not write"):
        sweep(GRID, **RACE, checkpoint=tmp_path / "file" / "sweep.ckpt", observers=[events.append])
    assert [event.kind for event in events] == ["start", "end"]


def test_a_disk_that_is_full_later_stops_nothing(sweep, path, monkeypatch):
    from bayesprop.training.sweeping import storage

    write, count = storage.save, []

    def full(*arguments):
        count.append(1)
        if len(count) > 1:
            raise CheckpointError("the disk is full")
        write(*arguments)

    monkeypatch.setattr(storage, "save", full)
    with pytest.warns(BayespropWarning, match="the disk is full\n  the sweep goes on without it"):
        found = sweep(GRID, **RACE, checkpoint=path)
    assert found.rows[0].fate.endswith("chosen")


def test_a_population_that_does_not_fit_is_halved(sweep, monkeypatch):
    """Until it does; the result is the same. One setting that does not fit is an error."""
    from bayesprop.training.sweeping.groups import Group

    grid, of, most = {"learning_rate": [0.001, 0.01, 0.02, 0.03]}, Group.of, [1]

    def full(self, members):
        if len(members) > most[0]:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
        return of(self, members)

    whole = sweep(grid, rungs=(1 / 3,), winners=2)
    with monkeypatch.context() as patch:
        patch.setattr(Group, "of", full)
        with pytest.warns(BayespropWarning) as caught:
            halved = sweep(grid, rungs=(1 / 3,), winners=2)
        most[0] = 0
        with pytest.warns(BayespropWarning), pytest.raises(torch.OutOfMemoryError):
            sweep(grid, rungs=(1 / 3,), winners=2)
    told = [str(warning.message) for warning in caught]
    assert told[0].startswith("sweep: 4 settings at a time do not fit, half of them are tried: CUDA out of memory")
    assert [text[7:17] for text in told] == ["4 settings", "2 settings", "2 settings", "2 settings"]
    assert [row.number for row in halved.rows] == [row.number for row in whole.rows]
    for mine, theirs in zip(halved.posteriors, whole.posteriors, strict=True):
        assert_close(dict(mine.tensors()), dict(theirs.tensors()), rtol=1e-9, atol=1e-9)
