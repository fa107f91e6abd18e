import dataclasses

import pytest

from bayesprop.experiments import pages
from bayesprop.experiments.pages import duration, provenance_section, write_page
from bayesprop.experiments.record import Record
from bayesprop.report import Plot, Section
from bayesprop.report.weight_figures import weight_densities


def made(**changes) -> Record:
    part = {"what": "2 squared", "seconds": 1.5, "device": "a CPU", "torch": "2", "date": "2026-01-01"}
    part |= {"commit": "c" * 40, "uncommitted": [], "result": {}, **changes}
    return Record("squares", "smoke", {"seeds": 2, "name": "x", "numbers": [1, 2]}, {"square-2": part}, ("sum",))


@pytest.mark.parametrize(("seconds", "text"), [(0.04, "0.0 s"), (99.0, "99.0 s"), (150.0, "2 min"), (9000.0, "2.5 h")])
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_how_a_record_was_made(experiment):
    section = provenance_section(experiment(), made())
    settings, parts = section.blocks
    assert list(settings.rows) == [("seeds", "2"), ("name", "x"), ("numbers", "[1, 2]")]
    assert parts.rows[0] == ("square-2", "2 squared", "1.5 s", "a CPU", "2", "cccccccc", "2026-01-01")
    assert section.text == "bayesprop reproduce squares --scale smoke. What squares are. Not run: sum."


def test_changed_sources_have_a_star(experiment):
    rows = provenance_section(experiment(), made(uncommitted=["src/a.py"])).blocks[1].rows
    assert rows[0][5] == "cccccccc*"
    assert provenance_section(experiment(), made(commit="")).blocks[1].rows[0][5] == "unknown"


def test_how_steps_were_taken_is_said_once(experiment):
    assert len(provenance_section(experiment(), made()).blocks) == 2, "no part has trained anything"
    section = provenance_section(experiment(), made(result={"engine": "in a graph"}))
    assert list(section.blocks[2].rows) == [("square-2", "in a graph")]


def test_the_page(experiment, tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "find", lambda name: experiment())
    text = write_page(made(), tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<h1>Squares</h1>" in text
    assert "What squares are. Scale smoke; compared with Euclid. It is smaller than" in text
    assert "1 parts" in text


def test_figures_are_files_of_their_own_if_asked_for(experiment, tmp_path, monkeypatch):
    figure = weight_densities({"a": ([0.0, 1.0], [3])})
    drawn = dataclasses.replace(experiment(), page=lambda record: [Section("Squares", [Plot("A density", figure)])])
    monkeypatch.setattr(pages, "find", lambda name: drawn)
    write_page(made(), tmp_path / "page.html", tmp_path / "figures")
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["01-a-density.png", "01-a-density.svg"]
