"""The page of a run: published values only beside networks of their size, and a fair count of who wins."""

import copy

from bayesprop.experiments.pruning.page import lost, measured, page
from bayesprop.experiments.record import Record
from bayesprop.report import render


def tables(sections):
    return {block.title: block for section in sections for block in section.blocks if block.kind == "table"}


def as_paper(record):
    """The same results under the settings of the paper's size."""
    settings = copy.deepcopy(dict(record.settings))
    for name, width in (("paper", 1200), ("short", 1200), ("full", 1200), ("source", 400)):
        settings["networks"][name]["width"] = width
    return Record(record.name, "paper", settings, record.parts, ())


def test_a_page(record):
    sections = page(record)
    assert [section.title for section in sections] == [
        "The paper's network, tempered",
        "The paper's network, tempered, a sixth of the epochs",
        "The paper's network, full KL",
        "Source 000's network",
        "What others published",
        "Which order wins when",
    ]
    text = render(sections, title="Pruning")
    assert text.count('<svg class="plot"') == 4 * 4
    first = sections[0].blocks[1]
    assert [row[0] for row in first.rows] == ["signal to noise"] * 3 + ["magnitude"] * 3
    assert {row[3] for row in first.rows} == {"–"}, "nobody published anything for so small a network"


def test_published_values_stand_beside_networks_of_their_size(record):
    sections = page(as_paper(record))
    assert sections[-1].title == "Where we differ"
    paper, _, _, source = (section.blocks[1] for section in sections[:4])
    assert [row[3] for row in paper.rows] == ["1.24 [P]", "1.24 [P]", "1.39 [P]", "–", "–", "–"]
    assert [row[3] for row in source.rows] == ["2.03 [S]", "5.89 [S]", "–", "2.03 [S]", "5.33 [S]", "–"]
    differences = tables(sections[-1:])[""]
    assert all(row[-2].endswith("]") for row in differences.rows)
    assert len(differences.rows) > 4, "these networks are far from those of the paper"


def test_points_are_lost_by_each_seed_for_itself():
    result = {"curves": [{"magnitude": {"means": [0.01, 0.03]}}, {"magnitude": {"means": [0.02, 0.02]}}]}
    assert measured(result, "magnitude", 1).values == (3.0, 2.0)
    assert [round(value, 9) for value in lost(result, "magnitude", 1).values] == [2.0, 0.0]
