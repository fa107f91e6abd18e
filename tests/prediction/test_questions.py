import numpy as np
import pytest
import torch

from bayesprop.errors import ConfigurationError, DataError, MemoryBudgetError
from bayesprop.prediction.questions import interval_levels, quantile_levels, refuse_if_large, row_numbers


@pytest.mark.parametrize("q", [0.25, np.float32(0.25), torch.tensor(0.25)])
def test_one_level(q):
    assert quantile_levels(q) == ((0.25,), True)


@pytest.mark.parametrize("q", [[0.25, 0.5], (0.25, 0.5), np.array([0.25, 0.5]), torch.tensor([0.25, 0.5])])
def test_several_levels(q):
    assert quantile_levels(q) == ((0.25, 0.5), False)


@pytest.mark.parametrize(("q", "write"), [(95, r"quantile\(0\.95\)"), (0.0, r"quantile\(0\.5\)"), (-1, "quantile")])
def test_levels_outside_of_0_and_1(q, write):
    with pytest.raises(ConfigurationError, match=r"level between 0 and 1(.|\n)*write: prediction\." + write):
        quantile_levels(q)
    with pytest.raises(ConfigurationError, match="needs a level"):
        quantile_levels([])


def test_intervals_have_equal_tails():
    assert interval_levels(0.9) == pytest.approx((0.05, 0.95))
    with pytest.raises(ConfigurationError, match=r"write: prediction\.interval\(0\.9\)"):
        interval_levels(90)
    with pytest.raises(ConfigurationError, match="probability between 0 and 1"):
        interval_levels(1.0)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (slice(1, 4), [1, 2, 3]),
        (slice(None, None, 2), [0, 2, 4]),
        (-1, [4]),
        ([0, 3], [0, 3]),
        (torch.tensor([True, False, False, True, True]), [0, 3, 4]),
        (np.array([False, True, False, False, False]), [1]),
    ],
)
def test_rows(rows, expected):
    assert row_numbers(rows, 5).tolist() == expected


@pytest.mark.parametrize(
    ("rows", "message"), [([3, 1], "go back"), ([1, 1], "repeat"), (slice(5, 9), "received: no rows")]
)
def test_rows_that_are_refused(rows, message):
    with pytest.raises(DataError, match=message):
        row_numbers(rows, 5)


def test_memory_is_told_in_gigabytes_with_what_to_do():
    piece = torch.zeros(100, 2, 10)
    assert refuse_if_large("prediction.draws", piece, 1000, 1_000_000) is None
    with pytest.raises(MemoryBudgetError) as caught:
        refuse_if_large("prediction.draws", piece, 1_000_000, 25_000_000)
    message = str(caught.value)
    assert "prediction.draws would hold 100 x 1000000 rows x 10 numbers" in message
    assert "received: 4 GB" in message
    assert "at most 0.1 GB (a budget of 25000000 numbers)" in message
    assert ".interval(level), which need no draws in memory; or prediction[:25000]" in message
