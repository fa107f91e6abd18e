"""The page: heights are those of densities, and published ones stand beside networks of their size only."""

import copy

import pytest

from bayesprop.experiments.densities.page import page, peak
from bayesprop.experiments.record import Record
from bayesprop.report import render


def test_a_peak_is_the_height_of_a_density_without_the_ends():
    # Ten weights in bins of a tenth: 4 / (10 * 0.1) is the highest of the inner ones.
    assert peak([0.0, 0.1, 0.2, 0.3, 0.4], [5, 4, 1, 0]) == pytest.approx(4.0)


def test_a_page(record):
    sections = page(record)
    assert [section.title for section in sections] == [
        "Densities of the weights (figure 3)",
        "Early in the training (source 004)",
        "Over the epochs (source 000, figure 1)",
    ]
    assert render(sections, title="Densities").count('<svg class="plot"') == 1 + 1 + 4
    heights = sections[0].blocks[2]
    assert [row[0] for row in heights.rows] == [
        "SGD",
        "SGD, dropout",
        "Bayes by Backprop, scale mixture",
        "Bayes by Backprop, Gaussian",
    ]
    assert {row[1] for row in heights.rows} == {"–"}
    ridges = sections[2].blocks[0].figure.axes[0]
    assert [label.get_text() for label in ridges.get_yticklabels()] == ["3", "1"]


def test_published_heights_stand_beside_networks_of_their_size(record):
    settings = copy.deepcopy(dict(record.settings))
    for network in settings["networks"].values():
        network["width"] = 1200
    heights = page(Record(record.name, "paper", settings, record.parts, ()))[0].blocks[2]
    assert [row[1] for row in heights.rows] == ["15.0 [F]", "9.0 [F]", "4.0 [F]", "–"]


def test_a_run_of_some_parts_has_a_page(record):
    some = {name: record.parts[name] for name in ("source-gaussian",)}
    sections = page(Record(record.name, "smoke", record.settings, some, ("sgd",)))
    assert [section.title for section in sections] == ["Over the epochs (source 000, figure 1)"]
