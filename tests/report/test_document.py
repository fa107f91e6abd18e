import sys

import pytest

import bayesprop as bp
from bayesprop.errors import ConfigurationError
from bayesprop.report.document import page_sections, subtitle


def headings(root, level):
    return ["".join(element.itertext()) for element in root.iter(level)]


def test_a_page_of_classes(class_posterior, blobs, tmp_path, parsed):
    path = bp.report.write(class_posterior, blobs, tmp_path / "new" / "page.html", foreign={"turned": blobs[0].flip(1)})
    assert path == tmp_path / "new" / "page.html"
    root = parsed(path.read_text(encoding="utf-8"))
    assert headings(root, "h1") == ["Classification"]
    assert len(headings(root, "h2")) == 8
    assert "turned: the most certain" in headings(root, "h3")
    (lead,) = [element.text for element in root.iter() if element.get("class") == "lead"]
    assert lead == subtitle(class_posterior, 60)


def test_a_page_of_quantities(line, points, tmp_path, parsed):
    path = bp.report.write(line, points, str(tmp_path / "page.html"), title="A <line>", draws=3, seed=11)
    root = parsed(path.read_text(encoding="utf-8"))
    assert headings(root, "h1") == ["A <line>"]
    rows = {cells[0].text: cells[1].text for row in root.iter("tr") if len(cells := list(row)) == 2}
    assert (rows["draws of the weights"], rows["seed of the draws"], rows["rows of this page"]) == ("1", "11", "40")


def test_the_same_page_every_time(line, points, tmp_path):
    first, second = (bp.report.write(line, points, tmp_path / f"{i}.html", draws=3) for i in range(2))
    assert first.read_bytes() == second.read_bytes()


def test_subtitle(class_posterior, line):
    assert subtitle(class_posterior, 1234) == (
        "A DiagonalGaussian posterior over 195 weights, fitted to 300 rows by BayesByBackprop. "
        "What follows is judged by 1,234 rows."
    )
    assert subtitle(line, 1).startswith("A Delta posterior over 2 weights, fitted to 100 rows. What")


def test_sections_can_be_changed_before_they_are_saved(line, points, tmp_path, parsed):
    sections = page_sections(line, points, draws=2)
    own = bp.report.Section("Mine", [bp.report.Headline([bp.report.Number("Answer", "42")])])
    path = bp.report.save([own, *sections[:1]], tmp_path / "page.html", title="Page")
    assert headings(parsed(path.read_text(encoding="utf-8")), "h2") == ["Mine", "At a glance"]


def test_draws_and_pictures_reach_the_page(class_posterior, blobs):
    sections = page_sections(class_posterior, blobs, picture_shape=(4, 16), draws=7, seed=2)
    rows = dict(sections[-1].blocks[0].rows)
    assert (rows["draws of the weights"], rows["seed of the draws"]) == ("7", "2")
    with pytest.raises(bp.errors.DataError, match="the inputs are no pictures of this shape"):
        page_sections(class_posterior, blobs, picture_shape=(3, 3), draws=2)


@pytest.mark.parametrize("argument", [{"foreign": {"noise": 0}}, {"picture_shape": (1, 1)}])
def test_what_is_shown_with_classes_only_is_refused(line, points, argument):
    with pytest.raises(ConfigurationError) as caught:
        page_sections(line, points, **argument)
    assert str(caught.value).splitlines() == [
        "foreign inputs and pictures are shown with classes only",
        "  received: Gaussian(scale=0.5), a regression",
        "  write: report.write(posterior, data, path)",
    ]


def test_a_missing_library_is_named_before_anything_is_computed(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigurationError) as caught:
        bp.report.write(None, None, tmp_path / "page.html")
    assert str(caught.value).splitlines() == [
        "a report needs jinja2, which is not installed",
        '  expected: the extra "report"',
        '  write: pip install "bayesprop[report]"',
    ]
    assert not list(tmp_path.iterdir())


def test_pruning_and_figures_are_added(class_posterior, blobs, tmp_path, parsed):
    scores = bp.decisions.pruning_curve(class_posterior, blobs, (0.0, 0.5, 0.9), draws=5)
    path = bp.report.write(class_posterior, blobs, tmp_path / "page.html", pruning=scores, figures=tmp_path / "figures")
    assert headings(parsed(path.read_text(encoding="utf-8")), "h2")[-2:] == ["What can be pruned", "How it was made"]
    drawn = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert len(drawn) == 18
    assert drawn[-2:] == ["09-pruning.png", "09-pruning.svg"]


def test_what_pruning_costs_quantities_is_no_share(line, points):
    scores = bp.decisions.pruning_curve(line, points, (0.0, 0.5), by=("magnitude",), draws=5)
    section = page_sections(line, points, draws=2, pruning=scores)[-2]
    assert section.title == "What can be pruned"
    assert section.blocks[1].header[3] == "RMSE of the means"
