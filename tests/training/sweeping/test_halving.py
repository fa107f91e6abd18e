"""When settings are compared, and who goes on."""

from __future__ import annotations

import math

import pytest

from bayesprop.errors import ConfigurationError
from bayesprop.training.sweeping.halving import check_keep, check_rungs, cut, ranked, stops
from bayesprop.training.sweeping.members import Score


@pytest.fixture
def scored(members):
    def make(nlls):
        found = members([{"seed": i} for i in range(len(nlls))])
        for member, nll in zip(found, nlls, strict=True):
            member.scores = [Score(1, 3, 9.0, 0.5), Score(3, 9, nll, 1.0 - nll)]
        return found

    return make


@pytest.mark.parametrize(
    ("rungs", "epochs", "expected"),
    [((), 5, [5]), ((1 / 9, 1 / 3), 90, [10, 30, 90]), ((1 / 6,), 600, [100, 600]), ((0.1, 0.5), 2, [1, 1, 2])],
)
def test_stops_are_shares_of_the_training_and_never_nothing(rungs, epochs, expected):
    assert stops(rungs, epochs) == expected


def test_the_best_by_the_newest_score_and_ties_by_number(scored):
    found = scored([0.3, 0.1, 0.3, 0.2])
    assert [member.number for member in ranked(found, "nll")] == [1, 3, 0, 2]
    assert [member.number for member in ranked(found, "error")] == [0, 2, 3, 1]


@pytest.mark.parametrize(
    ("keep", "least", "left"),
    [
        (1 / 3, 1, [1, 3]),
        (1 / 3, 3, [0, 1, 3]),
        (0.01, 1, [1]),
        (1.0, 1, [0, 1, 2, 3, 4, 5]),
        (0.5, 6, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_the_best_share_goes_on_and_the_others_say_why_not(scored, keep, least, left):
    found = scored([0.3, 0.1, 0.4, 0.2, 0.5, math.inf])
    for member in found:
        member.state = {"mean": None}
    cut(found, keep, least, "nll")
    assert [member.number for member in found if member.alive] == left
    gone = [member for member in found if not member.alive]
    assert all(member.state == {} for member in gone)
    if gone:
        assert gone[-1].fate == f"dropped at epoch 3: place 6 of 6, {len(left)} go on"


def test_good_rungs_and_shares():
    assert check_rungs([0.1, 0.5]) == (0.1, 0.5)
    assert check_rungs(()) == ()
    assert check_keep(1) == 1.0


@pytest.mark.parametrize("rungs", [None, 0.5, (0.5, 0.1), (0.1, 0.1), (0.0,), (1.0,), (10,), ("a",), (True,)])
def test_bad_rungs_are_refused(rungs):
    with pytest.raises(ConfigurationError, match="rungs are the shares of the training") as caught:
        check_rungs(rungs)
    assert f"received: {rungs!r}" in str(caught.value)
    assert "write: rungs=(1/6, 1/2)" in str(caught.value)


@pytest.mark.parametrize("keep", [0, 0.0, -0.1, 1.5, 3, "half", True, None])
def test_bad_shares_are_refused(keep):
    with pytest.raises(ConfigurationError, match="keep is the share of the settings") as caught:
        check_keep(keep)
    assert "write: keep=1/3" in str(caught.value)
