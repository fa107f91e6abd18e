"""A whole sweep in a file: what is written is what is read, and files of other runs are refused."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from bayesprop.errors import CheckpointError
from bayesprop.inference.method import state_tensors
from bayesprop.training.checkpoint import describe_run
from bayesprop.training.sweeping.members import Score, park
from bayesprop.training.sweeping.storage import Place, load, load_flight, save


@pytest.fixture
def run(model, method, pair):
    from bayesprop.data import as_data

    return describe_run(model(), method(), as_data(pair()), keep=0.5)


def test_members_place_and_the_population_in_flight(members, started, run, path, model):
    found, now = members([{"seed": i} for i in range(2)]), started()
    park(found, now.state)
    found[0].scores, found[0].steps = [Score(1, 3, math.inf, 0.5), Score(2, 6, 0.25, 0.5)], 6
    found[1].drop("diverged")
    now.epoch, now.index, now.step = 2, 1, 7
    save(path, run, Place(1, [[0], [1]], 2.5), found, now)
    fresh, other = members([{"seed": i} for i in range(2)]), started(seed=1)
    place = load(path, run, fresh, model().layout)
    assert (place.rung, place.waves, place.seconds) == (1, [[0], [1]], 2.5)
    assert fresh[0].scores == found[0].scores
    assert (fresh[0].steps, fresh[1].fate) == (6, "diverged")
    assert_close(fresh[0].state, found[0].state, rtol=0.0, atol=0.0)
    assert fresh[1].state == {}
    assert not torch.equal(other.state.mean, now.state.mean)
    load_flight(path, place, other)
    assert_close(state_tensors(other.state), state_tensors(now.state), rtol=0.0, atol=0.0)
    assert_close(other.total, now.total, rtol=0.0, atol=0.0)
    assert (other.epoch, other.index, other.step) == (2, 1, 7)
    assert place.flight == {}


def test_another_run_is_refused_with_what_differs(members, run, path, model):
    save(path, run, Place(), members([{"seed": 0}]), None)
    with pytest.raises(CheckpointError, match="belongs to another run") as caught:
        load(path, {**run, "keep": 0.25}, members([{"seed": 0}]), model().layout)
    assert "keep: 0.5 in the file, 0.25 now" in str(caught.value)


def test_a_file_of_fit_holds_no_sweep(members, run, path, model, fit):
    fit(checkpoint=path, epochs=1)
    with pytest.raises(CheckpointError, match="holds no sweep") as caught:
        load(path, run, members([{"seed": 0}]), model().layout)
    assert "received: a file of kind 'training'" in str(caught.value)
