import pytest

from bayesprop.errors import DataError
from bayesprop.experiments.plots import Line, bars_figure, curve_line, lines_figure, strip_figure


def curves():
    return [
        [{"epoch": 1, "error": 0.3, "kl": 5.0}, {"epoch": 2, "error": 0.1, "kl": 6.0}],
        [{"epoch": 1, "error": 0.5, "kl": 5.0}, {"epoch": 2, "error": 0.1, "kl": 6.0}],
    ]


def test_a_curve_of_several_seeds():
    line = curve_line("a", curves())
    assert line is not None
    assert (line.x, line.y) == ([1, 2], pytest.approx([0.4, 0.1]))
    assert line.spread == pytest.approx([0.1, 0.0])
    assert curve_line("a", [[], []]) is None
    assert curve_line("a", curves(), "nll") is None


def test_lines_and_what_was_published():
    ours = curve_line("ours", curves(), published=[((1.0, 2.0), 0.2), (2.0, 0.1)])
    assert ours is not None
    figure = lines_figure([ours, Line("b", [1, 2], [0.2, 0.3])], xlabel="epoch", ylabel="error", shares=True, top=0.45)
    (axes,) = figure.axes
    assert len(axes.lines) == 4, "two of ours, a bar and a diamond"
    assert len(axes.collections) == 1, "one band"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["ours", "b"]
    assert axes.get_ylim()[1] == 0.45
    assert axes.get_ylabel() == "error"


def test_a_logarithmic_axis_with_dots():
    (axes,) = lines_figure([Line("a", [1, 10], [1, 2])], xlabel="x", ylabel="y", log_x=True, marks=True).axes
    assert axes.get_xscale() == "log"
    assert axes.lines[0].get_marker() == "o"


def test_too_many_lines():
    with pytest.raises(DataError, match="a figure shows a few lines"):
        lines_figure([], xlabel="x", ylabel="y")


def test_a_strip_of_dots_for_each_group():
    figure = strip_figure({"1": [0.1, 0.2, 0.9], "2": [0.3]}, xlabel="x", ylabel="y", top=0.5)
    (axes,) = figure.axes
    assert [sorted(line.get_ydata()) for line in axes.lines[:2]] == [[0.1, 0.2, 0.5], [0.3]]
    assert list(axes.lines[2].get_ydata()) == [0.2, 0.3], "medians"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2"]
    with pytest.raises(DataError, match="values in each group"):
        strip_figure({"1": []}, xlabel="x", ylabel="y")


def test_bars_of_ours_and_hollow_ones():
    figure = bars_figure({"ours": 5000.0}, xlabel="epochs an hour", published={"theirs": 75.0})
    (axes,) = figure.axes
    assert [bar.get_width() + bar.get_x() for bar in axes.patches] == [5000.0, 75.0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ours", "theirs"]
    assert [text.get_text() for text in axes.texts] == ["5,000", "75"]
    with pytest.raises(DataError, match="need positive values"):
        bars_figure({"ours": 0.0}, xlabel="")
