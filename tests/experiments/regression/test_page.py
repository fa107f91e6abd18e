"""The page says what the results say, and compares with HMC where it was run."""

import copy

import pytest

from bayesprop.experiments.record import Record
from bayesprop.experiments.regression.page import page
from bayesprop.report import render


def test_a_page(record_of):
    sections = page(record_of("curve", "curve-plain", "source", "gap-hmc", "gap-map", "gap-nngp"))
    assert [section.title for section in sections] == [
        "The paper's curve (figure 5)",
        "Source 001's version",
        "The gap between two clusters",
    ]
    assert render(sections, title="Regression").count('<svg class="plot"') == 2 + 1 + 3
    table = sections[2].blocks[0]
    assert [row[0] for row in table.rows] == ["HMC", "NNGP (infinitely wide)", "MAP"]
    assert [row[4] for row in table.rows][::2] == ["–", "0.00"]
    assert table.rows[0][7] != "–", "chains have an R-hat"
    legends = [
        [text.get_text() for text in plot.figure.axes[0].get_legend().get_texts()] for plot in sections[2].blocks[1:]
    ]
    assert ["HMC's 90 %" in legend for legend in legends] == [False, True, True]


def test_who_is_like_hmc_in_the_gap(record_of):
    record = record_of("gap-hmc", "gap-map", "gap-nngp")
    results = copy.deepcopy({name: part["result"] for name, part in record.parts.items()})
    results["gap-hmc"]["gap"], results["gap-map"]["gap"], results["gap-nngp"]["gap"] = 0.3, 0.1, 0.5
    parts = {name: {"what": "", "seconds": 1.0, "result": result} for name, result in results.items()}
    (section,) = page(Record("regression", "smoke", record.settings, parts, ()))
    assert section.text.endswith("Within a factor of two of HMC's deviation in the gap: NNGP (infinitely wide).")
    assert [row[4] for row in section.blocks[0].rows] == ["–", "1.67", "0.33"]


def test_without_hmc_nothing_is_compared(record_of):
    (section,) = page(record_of("gap-map"))
    assert "factor of two" not in section.text
    assert section.blocks[0].rows[0][4:6] == ("–", "–")


def test_the_growth_is_that_of_the_band(record_of):
    record = record_of("source")
    result = copy.deepcopy(record.result("source"))
    result["band"]["deviation"] = [0.1 if x <= 0.5 else 0.4 for x in result["band"]["inputs"]]
    part = {"what": "", "seconds": 1.0, "result": result}
    (section,) = page(Record("regression", "smoke", record.settings, {"source": part}, ()))
    assert "0.100 among them and 0.400 on [1, 1.2], 4 times" in section.text
    rows = section.blocks[1].rows
    assert rows[0][0] == "−0.2"
    assert [float(row[1]) for row in rows] == pytest.approx([0.1] * 4 + [0.4] * 4, abs=1e-9)
