import pytest

from bayesprop.errors import ConfigurationError
from bayesprop.report.blocks import Headline, Number, Picture, Pictures, Plot, Section, Table
from bayesprop.report.drawing import PALETTE, to_png
from bayesprop.report.figures import learning_curve
from bayesprop.report.page import render, save

from .conftest import HISTORY

HOSTILE = "<script>alert('1')</script> & \"quoted\" ]]> -- {{ 7 * 7 }} \x00\ud800"
SEEN = HOSTILE.replace("\x00\ud800", "")


def sections(text="text"):
    """One of each block, with `text` wherever a user's text may stand."""
    address = to_png([[0.0, 1.0]], 0.0, 1.0)
    return [
        Section(
            text,
            [
                Headline([Number(text, text, text), Number("without", "note")]),
                Plot(text, learning_curve(HISTORY), text),
                Plot("without caption", learning_curve(HISTORY)),
            ],
            text,
        ),
        Section(
            "second",
            [
                Table((text, "b"), [(text, text), ("x", "y")], title=text, caption=text, numeric=(1,)),
                Table(("", ""), [("bare", "1")], beside=True),
                Pictures(text, [Picture(address, text, text), Picture(address, "bare")], text),
            ],
        ),
    ]


def texts(root):
    return ["".join(element.itertext()) for element in root.iter()]


def test_everything_is_there_once(parsed):
    root = parsed(render(sections(), title="Title", subtitle="Subtitle"))
    assert [element.text for element in root.iter("h1")] == ["Title"]
    assert [element.text for element in root.iter("title")] == ["Title"]
    assert [element.text for element in root.iter("h2")] == ["text", "second"]
    assert len(list(root.iter("section"))) == 2
    drawings = [element for element in root.iter() if element.get("class") == "plot"]
    assert [drawing.get("aria-label") for drawing in drawings] == ["text", "without caption"]
    assert len(list(root.iter("figure"))) == 2
    assert len(list(root.iter("figcaption"))) == 1
    assert len(list(root.iter("table"))) == 2
    assert len(list(root.iter("img"))) == 2
    assert [len(list(row)) for row in root.iter("tr")] == [2] * 4
    assert len(list(root.iter("thead"))) == 1, "a header without words is left out"
    numeric = [cell.text for cell in root.iter() if cell.get("class") == "number"]
    assert numeric == ["b", "text", "y"]
    assert len(list(root.iter("dt"))) == 2
    assert len(list(root.iter("dd"))) == 3


def test_text_of_users_is_text_everywhere(parsed):
    plain, hostile = (render(sections(text), title=text, subtitle=text) for text in ("a plain text", HOSTILE))
    expected = texts(parsed(plain)).count("a plain text")
    assert expected >= 18
    assert texts(parsed(hostile)).count(SEEN) == expected
    assert "<script" not in hostile
    assert "\x00" not in hostile
    assert hostile.encode("utf-8"), "halves of surrogate pairs cannot be written"


def test_light_and_dark_are_decided_by_the_reader(parsed):
    text = render(sections(), title="Title")
    parsed(text)
    style = text[text.index("<style>") : text.index("</style>")]
    light, dark = style[: style.index("@media")], style[style.index("@media screen and (prefers-color-scheme: dark)") :]
    assert len(PALETTE) == 6
    for name, shades in PALETTE.items():
        assert f"--{name}: {shades[0]};" in light
        assert f"--{name}: {shades[1]};" in dark
        assert f"var(--{name})" in text
    body = text[text.index("<body>") :]
    assert not [shade for shades in PALETTE.values() for shade in shades if shade in body]
    for variable in ("paper", "panel"):
        assert f"--{variable}:" in light
        assert f"--{variable}:" in dark


def test_a_page_says_how_wide_it_is_and_what_language_it_is_in(parsed):
    root = parsed(render(sections(), title="Title"))
    assert root.get("lang") == "en"
    content = {element.get("name"): element.get("content") for element in root.iter("meta") if element.get("name")}
    assert content == {"viewport": "width=device-width, initial-scale=1", "color-scheme": "light dark"}


def test_a_page_is_the_same_every_time():
    assert render(sections(), title="Title") == render(sections(), title="Title")


def test_a_page_without_sections_is_refused():
    with pytest.raises(ConfigurationError) as caught:
        render([], title="Title")
    assert str(caught.value).splitlines() == [
        "a report needs at least one section",
        "  received: none",
        "  write: report.Section(...)",
    ]


def test_save_makes_the_folders_and_returns_the_path(tmp_path, parsed):
    path = save(sections("数"), str(tmp_path / "new" / "folder" / "page.html"), title="Title")
    assert path == tmp_path / "new" / "folder" / "page.html"
    text = path.read_text(encoding="utf-8")
    assert text == render(sections("数"), title="Title")
    parsed(text)
