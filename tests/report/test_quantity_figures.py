import numpy as np
import pytest
import torch

from bayesprop.errors import DataError
from bayesprop.report.quantity_figures import (
    POINTS,
    coverage_curve,
    prediction_band,
    rank_histogram,
    residual_plot,
    target_plot,
    thinned,
)


def test_coverage_curve_and_the_band_of_chance():
    levels, shares = [0.25, 0.5, 0.75], [0.3, 0.5, 0.6]
    (axes,) = coverage_curve(levels, shares, rows=100).axes
    diagonal, curve = (line.get_xydata() for line in axes.get_lines())
    np.testing.assert_array_equal(diagonal, [[0, 0], [1, 1]])
    np.testing.assert_allclose(curve, np.stack([levels, shares], axis=1))
    (band,) = axes.collections
    vertices = band.get_paths()[0].vertices
    at_half = vertices[np.isclose(vertices[:, 0], 0.5), 1]
    # 1.96 standard errors of a share of 1/2 in 100 rows, sqrt(1/4 / 100) = 0.05.
    np.testing.assert_allclose([at_half.min(), at_half.max()], [0.5 - 0.098, 0.5 + 0.098])
    assert (axes.get_xlim(), axes.get_ylim()) == ((0, 1), (0, 1))


def test_rank_histogram_has_shares_and_the_band_of_chance():
    (axes,) = rank_histogram(torch.tensor([0.0, 0.05, 0.55, 1.0]), bins=4).axes
    bars = [patch for patch in axes.patches if patch.get_width() < 0.5]
    np.testing.assert_allclose([bar.get_height() for bar in bars], [0.5, 0, 0.25, 0.25])
    (band,) = [patch for patch in axes.patches if patch not in bars]
    spread = 1.96 * (0.25 * 0.75 / 4) ** 0.5
    bottom, top = band.get_xy()[1], band.get_xy()[1] + band.get_height()
    np.testing.assert_allclose([bottom, top], [0.0, 0.25 + spread])
    assert axes.get_lines()[0].get_ydata()[0] == 0.25


def test_ranks_of_nothing_are_refused():
    with pytest.raises(DataError, match="a histogram of ranks needs rows\n  received: none\n  expected: at least one"):
        rank_histogram([])


def test_prediction_band_holds_the_mean_two_bands_and_the_data():
    x = np.linspace(0, 1, 5)
    figure = prediction_band(x, x, (x - 2, x + 2), (x - 1, x + 1), ([0.5, 0.25], [3.0, -3.0]))
    (axes,) = figure.axes
    mean, data = (line.get_xydata() for line in axes.get_lines())
    np.testing.assert_array_equal(mean, np.stack([x, x], axis=1))
    np.testing.assert_array_equal(data, [[0.5, 3.0], [0.25, -3.0]])
    heights = [np.ptp(band.get_paths()[0].vertices[:, 1]) for band in axes.collections]
    np.testing.assert_allclose(heights, [5.0, 3.0])  # from -2 to 3, and from -1 to 2
    assert axes.get_xlim() == (0, 1)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "90 % of targets",
        "90 % of functions",
        "data",
    ]


def test_target_plot():
    (axes,) = target_plot([1.0, 2.0], [1.5, 3.0], [0.5, 0.25]).axes
    points, diagonal = (line.get_xydata() for line in axes.get_lines())
    np.testing.assert_array_equal(points, [[1.0, 1.5], [2.0, 3.0]])
    np.testing.assert_array_equal(diagonal, [[1, 1], [3, 3]])
    (bars,) = axes.collections
    np.testing.assert_array_equal(bars.get_segments(), [[[0.5, 1.5], [1.5, 1.5]], [[1.75, 3.0], [2.25, 3.0]]])


def test_residual_plot_has_lines_at_two_deviations():
    (axes,) = residual_plot([1.0, 3.0], [0.5, -4.0]).axes
    points, low, high, zero = (line.get_xydata() for line in axes.get_lines())
    np.testing.assert_array_equal(points, [[1.0, 0.5], [3.0, -4.0]])
    np.testing.assert_allclose(low[:, 1], -1.96 * low[:, 0])
    np.testing.assert_allclose(high[:, 1], 1.96 * high[:, 0])
    np.testing.assert_allclose(axes.get_xlim(), (0.9, 3.1))
    assert set(zero[:, 1]) == {0.0}


@pytest.mark.parametrize("std", [2.0, 0.0])
def test_residuals_of_one_size_have_an_axis_all_the_same(std):
    low, high = residual_plot([std, std], [0.5, -0.5]).axes[0].get_xlim()
    assert 0 <= low <= std < high


def test_many_rows_are_thinned_evenly():
    assert thinned(torch.arange(6).reshape(2, 3)).tolist() == [0, 1, 2, 3, 4, 5]
    many = thinned(np.arange(100_000))
    assert len(many) == POINTS == 600
    assert (many[0], many[-1]) == (0, 99_999)
    gaps = np.diff(many)
    assert gaps.max() - gaps.min() <= 1


def test_a_band_beside_another_one():
    x = np.linspace(0, 1, 5)
    figure = prediction_band(
        x, x, (x - 2, x + 2), (x - 1, x + 1), ([0.5], [0.5]), names=("wide", "narrow"), against=("theirs", x - 3, x + 3)
    )
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["wide", "narrow", "theirs", "data"]
    lines = [line.get_ydata() for line in axes.get_lines() if line.get_linestyle() == "--"]
    np.testing.assert_allclose(lines, [x - 3, x + 3])
