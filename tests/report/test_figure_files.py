"""Figures as files: whole, on white, the same every time, and the page's figure is not changed."""

from xml.etree import ElementTree

import pytest
from matplotlib import image

from bayesprop.errors import ConfigurationError
from bayesprop.report.blocks import Headline, Number, Plot, Section
from bayesprop.report.drawing import to_svg
from bayesprop.report.figure_files import file_name, save_figures
from bayesprop.report.figures import learning_curve

from .conftest import HISTORY


@pytest.fixture
def sections():
    plots = [Plot("Learning curve", learning_curve(HISTORY)), Plot("Fehler: 数 & <b>", learning_curve(HISTORY))]
    return [Section("a", [Headline([Number("x", "1")]), plots[0]]), Section("b", plots[1:])]


def test_each_plot_is_a_drawing_and_a_picture(sections, tmp_path):
    paths = save_figures(sections, tmp_path / "new" / "figures")
    assert [path.name for path in paths] == [
        "01-learning-curve.svg",
        "01-learning-curve.png",
        "02-fehler-b.svg",
        "02-fehler-b.png",
    ]
    root = ElementTree.parse(paths[0]).getroot()
    assert root.tag.endswith("svg")
    assert "epoch" in "".join(root.itertext()), "text stays text"
    pixels = image.imread(paths[1])
    assert pixels.shape == (840, 1200, 4)
    assert pixels[0, 0].tolist() == [1.0, 1.0, 1.0, 1.0]
    assert pixels[..., :3].min() < 0.5


def test_the_same_file_every_time_and_the_same_page_afterwards(sections, tmp_path):
    before = to_svg(sections[0].blocks[1].figure, "plot", "text")
    first, second = (save_figures(sections, tmp_path / name) for name in "ab")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert to_svg(sections[0].blocks[1].figure, "plot", "text") == before


def test_one_format(sections, tmp_path):
    assert [path.suffix for path in save_figures(sections, tmp_path, formats=["png"])] == [".png", ".png"]
    assert save_figures([], tmp_path) == []


def test_formats_that_are_not_known(sections, tmp_path):
    with pytest.raises(ConfigurationError) as caught:
        save_figures(sections, tmp_path, formats=["gif"])
    assert str(caught.value).splitlines() == [
        "figures are written as drawings or as pictures",
        "  received: formats=['gif']",
        '  expected: "svg" or "png"',
    ]


def test_names_of_files():
    assert [file_name(title) for title in ("Signal to noise, in dB", "数", "a" * 80)] == [
        "signal-to-noise-in-db",
        "figure",
        "a" * 60,
    ]
