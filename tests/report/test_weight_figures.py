"""Figures of weights: what is drawn is what was given."""

import numpy as np
import pytest

from bayesprop.errors import DataError
from bayesprop.report.drawing import to_svg
from bayesprop.report.weight_figures import (
    decibel_histogram,
    density_ridges,
    histogram,
    pruning_figure,
    weight_densities,
)

EDGES = [-1.0, 0.0, 0.5, 1.0]


def test_a_histogram_counts_everything():
    edges, counts = histogram([-5.0, -1.0, 0.0, 0.49, 1.0, 7.0], EDGES)
    assert edges.tolist() == EDGES
    assert counts.tolist() == [2, 2, 2]


def test_densities_have_an_area_of_one():
    (axes,) = weight_densities({"SGD": (EDGES, [1, 2, 1]), "a $x$": (EDGES, [0, 0, 9])}).axes
    heights = [patch.get_data().values for patch in axes.patches]
    np.testing.assert_allclose(heights[0], [0.25, 1.0, 0.5])
    np.testing.assert_allclose(heights[1], [0.0, 0.0, 2.0])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["SGD", "a $x$"]
    assert axes.get_xlim() == (-1.0, 1.0)


def test_counts_have_a_logarithmic_axis():
    (axes,) = weight_densities({"all": (EDGES, [100, 2, 0])}, counts=True).axes
    assert axes.patches[0].get_data().values.tolist() == [100.0, 2.0, 0.5]
    assert (axes.get_yscale(), axes.get_ylabel(), axes.get_ylim()[0]) == ("log", "weights", 0.8)


def test_ridges_stand_above_one_another_in_their_order():
    (axes,) = density_ridges([("epoch 1", (EDGES, [1, 2, 1])), ("epoch 9", (EDGES, [4, 1, 1]))]).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["epoch 9", "epoch 1"]
    tops = [float(patch.get_data().values.max()) for patch in axes.patches]
    np.testing.assert_allclose(tops, [2.4, 2.4, 1.4, 1.4])


def test_decibels_with_their_cumulative_curve_and_cuts():
    upper, lower = decibel_histogram((EDGES, [1, 2, 1]), {"25 %": 0.0, "75 %": 0.5}).axes
    np.testing.assert_allclose(upper.patches[0].get_data().values, [0.25, 1.0, 0.5])
    curve, first, second = lower.get_lines()
    np.testing.assert_allclose(curve.get_ydata(), [0.0, 0.25, 0.75, 1.0])
    assert [line.get_xdata()[0] for line in (first, second)] == [0.0, 0.5]
    assert [text.get_text() for text in upper.get_legend().get_texts()] == ["25 %", "75 %"]
    assert decibel_histogram((EDGES, [1, 2, 1])).axes[0].get_legend() is None


def test_a_pruning_curve_is_drawn_against_what_is_left():
    points = [(0.0, 0.012), (0.75, 0.0125), (0.98, 0.014), (1.0, 0.9)]
    (axes,) = pruning_figure({"signal to noise": points, "nothing": [(1.0, 0.9)]}).axes
    (line,) = axes.get_lines()
    np.testing.assert_allclose(line.get_xydata(), [(0.02, 0.014), (0.25, 0.0125), (1.0, 0.012)])
    left, right = axes.get_xlim()
    assert left > 1.0 > 0.02 > right, "more is removed to the right"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0\xa0%", "75\xa0%", "98\xa0%"]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")
    steep = pruning_figure({"a": [(0.0, 0.01), (0.25, 0.02), (0.6, 0.5)]}).axes[0]
    assert steep.get_yscale() == "log"
    assert [label.get_text() for label in steep.get_xticklabels()] == ["0\xa0%", "60\xa0%"], "labels keep apart"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: weight_densities({}), "densities need at least one group of weights"),
        (lambda: density_ridges([]), "ridges need at least one histogram"),
        (lambda: pruning_figure({"a": [(1.0, 0.5)]}), "a pruning curve needs points"),
    ],
)
def test_nothing_to_draw_is_refused(make, message):
    with pytest.raises(DataError, match=message):
        make()


def test_all_of_them_can_stand_in_a_page():
    figures = [
        weight_densities({"<b>": (EDGES, [1, 2, 1])}),
        density_ridges([("<b>", (EDGES, [1, 2, 1]))]),
        decibel_histogram((EDGES, [1, 2, 1]), {"<b>": 0.0}),
        pruning_figure({"<b>": [(0.0, 1.0), (0.5, 2.0)]}, score="RMSE", shares=False),
    ]
    drawn = [to_svg(figure, f"f{number}", "text") for number, figure in enumerate(figures)]
    assert all("&lt;b&gt;" in text and "<b>" not in text for text in drawn)
