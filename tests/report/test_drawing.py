import base64
import io
import re
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from PIL import Image

from bayesprop.errors import DataError
from bayesprop.report.drawing import (
    PALETTE,
    canvas,
    legend,
    percent,
    printable,
    style,
    thousands,
    to_png,
    to_svg,
)


def drawn(label="a line", name="plot-1", description="A figure"):
    """A figure with everything that could go wrong: clipping, markers, bands, a legend and every colour."""
    with style():
        figure, (upper, lower) = canvas((2.0, 1.0))
        for place, (light, _dark) in enumerate(PALETTE.values()):
            upper.plot([0, 1], [place, 1], "-o", color=light, label=label if place == 0 else None)
            lower.fill_between([0, 1], [place, 0], [place + 1, 1], color=light, alpha=0.3)
        legend(upper)
    return to_svg(figure, name, description)


def test_every_colour_becomes_a_variable_of_the_page():
    svg = drawn()
    assert len(PALETTE) == 6
    for name in PALETTE:
        assert f"var(--{name})" in svg
    assert re.findall(r"#[0-9a-fA-F]{6}\b", svg) == []
    assert "<style" not in svg, "it would hold for the whole page"


def test_light_colours_can_be_told_apart_by_their_text():
    light = [pair[0] for pair in PALETTE.values()]
    assert len(set(light)) == len(light)
    # matplotlib writes colours in lower case with six digits; anything else would not be found again.
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in light)


def luminance(colour):
    """Relative luminance of sRGB, as WCAG 2 defines it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(("shade", "paper"), [(0, "#fdfdfc"), (1, "#17191c")])
def test_text_and_curves_stand_out_from_the_paper(shade, paper):
    """WCAG 2 asks for a contrast of 4.5 for text and 3 for what has to be seen in a drawing."""
    for name, least in {"ink": 4.5, "muted": 4.5, "first": 4.5, "second": 3.0, "third": 3.0}.items():
        light, dark = sorted((luminance(PALETTE[name][shade]), luminance(paper)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= least, name


def test_ids_of_two_figures_do_not_meet():
    first, second = drawn(name="plot-1"), drawn(name="plot-2")
    ids = [set(re.findall(r'\bid="([^"]*)"', svg)) for svg in (first, second)]
    assert min(len(found) for found in ids) > 5
    assert not ids[0] & ids[1]
    for svg, found in zip((first, second), ids):
        used = set(re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', svg))
        assert len(used) > 3
        assert {a or b for a, b in used} <= found


def test_a_figure_is_the_same_every_time():
    assert drawn() == drawn()


def test_a_drawing_is_xml_and_describes_itself():
    root = ElementTree.fromstring(drawn(description='a "b" & <c>\x00'))
    assert root.get("aria-label") == 'a "b" & <c>'
    assert root.get("role") == "img"
    assert root.get("viewBox") == "0 0 360 252"
    assert root.get("width") is None


@pytest.mark.parametrize("label", ["<script>x</script>", "$\\frac{1$ and $x", "a -- b ]]> &amp;", "数字", "\x07bell"])
def test_text_of_users_stays_text(label):
    """Neither a tag nor a formula; the font of the page draws what matplotlib's own has not (warnings are errors)."""
    root = ElementTree.fromstring(drawn(label=label))
    assert label.replace("\x07", "") in [text.text for text in root.iter("text")]
    assert not list(root.iter("script"))


def test_the_users_settings_are_neither_used_nor_changed():
    plain = drawn()
    with matplotlib.rc_context({"font.size": 40.0, "lines.linewidth": 9.0, "svg.fonttype": "path"}):
        assert drawn() == plain
        assert matplotlib.rcParams["font.size"] == 40.0
        assert matplotlib.rcParams["svg.fonttype"] == "path"


def labels(function, values):
    with style():
        _figure, (axes,) = canvas()
        function(axes.yaxis)
        return [axes.yaxis.get_major_formatter()(value, 0) for value in values]


def test_numbers_on_axes():
    assert labels(thousands, [0, 0.5, -0.25, 12345.0, -1000000]) == ["0", "0.5", "−0.25", "12,345", "−1,000,000"]
    assert labels(percent, [0, 0.25, 0.005, 1]) == ["0\xa0%", "25\xa0%", "0.5\xa0%", "100\xa0%"]


def test_what_cannot_be_printed_is_left_out():
    assert printable("a\tb\nc d\xa0é数😀") == "a\tb\nc d\xa0é数😀"
    assert printable("\x00a\x1f\x7f\x85\ud800\uffff") == "a"


def pixels(address):
    kind, data = address.split(",")
    assert kind == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))


def test_a_grey_picture():
    found = pixels(to_png([[-1.0, 0.0, 1.0], [3.0, 2.0, -9.0]], low=-1.0, high=3.0))
    # Levels (v + 1) / 4 of 255, rounded; below black is black.
    expected = np.array([[0, 64, 128], [255, 191, 0]])
    np.testing.assert_array_equal(found, np.repeat(expected[:, :, None], 3, axis=2))


def test_a_picture_in_colour():
    colours = np.random.default_rng(0).uniform(size=(4, 5, 3))
    np.testing.assert_array_equal(pixels(to_png(colours, 0.0, 1.0)), np.round(255 * colours))


def test_a_picture_of_one_level_is_black():
    assert pixels(to_png(np.full((2, 2), 7.0), 7.0, 7.0)).max() == 0


@pytest.mark.parametrize("shape", [(4,), (2, 2, 4), (1, 2, 2, 3)])
def test_what_is_no_picture_is_refused(shape):
    with pytest.raises(DataError) as caught:
        to_png(np.zeros(shape), 0.0, 1.0)
    assert str(caught.value).splitlines() == [
        "a picture is grey or has three colours",
        f"  received: shape {shape}",
        "  expected: (height, width) or (height, width, 3)",
    ]


@pytest.mark.parametrize(
    ("labels", "columns"),
    [
        (["short", "words", "only"], 3),
        (["signal to noise, means", "signal to noise, draws", "magnitude, means", "magnitude, draws"], 2),
        (["a very long name of something that was measured", "and another one of those"], 1),
    ],
)
def test_a_legend_has_as_many_columns_as_fit(labels, columns):
    with style():
        figure, (axes,) = canvas()
        for label in labels:
            axes.plot([0, 1], [0, 1], label=label)
        legend(axes)
        figure.canvas.draw()
        made = axes.get_legend()
        assert made._ncols == columns
        assert made.get_window_extent().width < figure.bbox.width
