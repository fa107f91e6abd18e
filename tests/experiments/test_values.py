import math

import pytest

from bayesprop.errors import ConfigurationError
from bayesprop.experiments.values import MARKS, Comparison, Measured, Published, comparison_table, difference_table


def test_a_published_value_says_how_it_was_read():
    assert Published(1.363, "a paper", "P").shown() == "1.36 [P]"
    assert set(MARKS) == set("PRSCFM")
    with pytest.raises(ConfigurationError, match=r"says how it was read\n  received: mark='X'"):
        Published(1.0, "a paper", "X")


def test_mean_and_standard_error():
    ours = Measured.of([0.01, 0.02, 0.03], 100.0)
    assert (ours.seeds, ours.mean) == (3, pytest.approx(2.0))
    assert ours.standard_error == pytest.approx(1.0 / math.sqrt(3.0))
    assert ours.shown() == "2.00 ± 0.58"


def test_nobody_knows_the_spread_of_one_seed():
    assert Measured((1.25,)).standard_error is None
    assert Measured((1.25,)).shown() == "1.25"


@pytest.mark.parametrize("values", [(), (1.0, math.nan), (math.inf,)])
def test_numbers_that_are_none_are_refused(values):
    with pytest.raises(ConfigurationError, match="one finite number for each seed"):
        Measured(values)


def test_ours_stands_beside_the_published():
    lines = [
        Comparison(
            ("a", "400"), [Published(1.36, "a paper", "P"), Published(1.4, "a figure", "F")], Measured((1.2, 1.4))
        ),
        Comparison(("b", "400"), [], Measured((2.0,))),
        Comparison(("c", "400"), [Published(3.0, "a paper", "P")], None),
    ]
    table = comparison_table("Errors", ("method", "units"), lines, unit="%")
    assert table.header == ("method", "units", "published, %", "here, % ± standard error", "seeds", "difference")
    assert list(table.rows) == [
        ("a", "400", "1.36 [P], 1.40 [F]", "1.30 ± 0.10", "2", "−0.06"),
        ("b", "400", "–", "2.00", "1", "–"),
        ("c", "400", "3.00 [P]", "not run", "–", "–"),
    ]
    assert "a paper [P]; a figure [F]" in table.caption
    assert "[F] read off a figure" in table.caption


def test_notes_have_a_column_where_there_are_any():
    table = comparison_table("", ("method",), [Comparison(("a",), [], None, "slow")], unit="s")
    assert table.rows[0] == ("a", "–", "not run", "–", "–", "slow")
    assert len(table.header) == 6


def test_differences_beyond_chance():
    """A single network with 1 % on 10,000 rows has a deviation of 0.0995 points, so two of them are 0.199."""
    theirs = [Published(1.0, "a paper", "P")]
    lines = [
        Comparison(("near",), theirs, Measured((1.19, 1.19))),
        Comparison(("far",), theirs, Measured((1.21, 1.21))),
        Comparison(("one seed",), theirs, Measured((1.25,))),
        Comparison(("not run",), theirs, None),
        Comparison(("nobody",), [], Measured((9.0,))),
    ]
    table, compared = difference_table(("what",), lines, rows=10_000)
    assert compared == 3
    assert table is not None
    assert list(table.rows) == [("far", "0.21 points higher", "0.20")]
    assert difference_table(("what",), lines[:1], rows=10_000) == (None, 1)
