import sys
from pathlib import Path

import pytest

from bayesprop.errors import CheckpointError, ConfigurationError
from bayesprop.experiments import commands, pages
from bayesprop.experiments.commands import changes_of, list_experiments, reproduce, show, unfinished


@pytest.fixture
def squares(experiment, monkeypatch, tmp_path):
    """The experiment of this folder is the only one, and this folder is empty."""
    made = experiment()
    for module in (commands, pages):
        monkeypatch.setattr(module, "find", lambda name: made)
    monkeypatch.setattr(commands, "stored_path", lambda name, scale: tmp_path / "kept" / f"{name}-{scale}.json")
    monkeypatch.chdir(tmp_path)
    return made


def test_record_and_page(squares, tmp_path, console):
    record = reproduce("squares", "smoke", console=console)
    folder = tmp_path / "runs" / "reproduce" / "squares-smoke"
    assert record.missing == ()
    assert (folder / "record.json").is_file()
    assert "<h1>Squares</h1>" in (folder / "page.html").read_text()
    assert "page.html" in console.file.getvalue()


def test_a_record_without_a_page_needs_no_further_library(squares, tmp_path, console, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigurationError, match="the page of an experiment needs jinja2"):
        reproduce("squares", "smoke", folder=tmp_path / "run", console=console)
    assert not (tmp_path / "run").exists()
    reproduce("squares", "smoke", folder=tmp_path / "run", page=False, console=console)
    assert (tmp_path / "run" / "record.json").is_file()
    assert not (tmp_path / "run" / "page.html").exists()


def test_the_page_again(squares, tmp_path, console):
    reproduce("squares", "smoke", folder=tmp_path / "run", page=False, console=console)
    assert show(tmp_path / "run") == tmp_path / "run" / "page.html"
    assert show(tmp_path / "run" / "record.json") == tmp_path / "run" / "record.html"
    assert show(tmp_path / "run", page=tmp_path / "other.html").is_file()


def test_kept_records_are_found_by_the_name(squares, tmp_path, console):
    with pytest.raises(CheckpointError, match="there is no record of squares\n"):
        show("squares")
    record = reproduce("squares", "paper", folder=tmp_path / "run", page=False, console=console)
    record.save(tmp_path / "kept" / "squares-paper.json")
    assert show("squares") == Path("runs/reproduce/squares-paper/page.html")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["squares-paper.json"]
    assert show("squares") == Path("runs/reproduce/squares-paper/page.html"), "a second time"
    reproduce("squares", "smoke", page=False, console=console)
    assert show("squares", scale="smoke").parent.name == "squares-smoke"
    with pytest.raises(CheckpointError, match="at scale laptop"):
        show("squares", scale="laptop")


def test_the_list(console):
    list_experiments(console)
    assert "table-1" in console.file.getvalue()


def test_settings_as_words(squares, tmp_path, console):
    assert changes_of(["epochs=100", "rate=0.5", "widths=[1, 2]", "pixels=/255"]) == {
        "epochs": 100,
        "rate": 0.5,
        "widths": [1, 2],
        "pixels": "/255",
    }
    with pytest.raises(ConfigurationError, match="a setting has a value"):
        changes_of(["epochs"])
    record = reproduce("squares", "smoke", folder=tmp_path / "a", changes=["numbers=[7]"], page=False, console=console)
    assert list(record.parts) == ["square-7", "sum"]


def test_what_is_not_done_yet(squares, tmp_path, console):
    record = reproduce("squares", "smoke", folder=tmp_path / "a", parts="square-*", page=False, console=console)
    assert unfinished(record, "square-*") == []
    assert unfinished(record, "square-1, su*") == ["sum"]
    assert unfinished(record, "*") == ["sum"]
