import json
import math
import re
import subprocess
import sys

import pytest
import torch

from bayesprop.errors import CheckpointError, ConfigurationError
from bayesprop.experiments import record as module
from bayesprop.experiments.listing import experiments
from bayesprop.experiments.record import Record, provenance, read_json, stored_path, write_json


def made() -> Record:
    parts = {"a-1": {"seconds": 1.5, "result": {"x": 1}}, "b": {"seconds": 2.0, "result": {"x": 2}}}
    return Record("squares", "smoke", {"seeds": 2}, parts, ("c",))


def test_saved_and_loaded(tmp_path):
    path = made().save(tmp_path / "new" / "record.json")
    assert Record.load(path) == made()
    assert json.loads(path.read_text())["seconds"] == 3.5
    assert [file.name for file in path.parent.iterdir()] == ["record.json"]


def test_results():
    assert made().result("b") == {"x": 2}
    assert made().result("c") is None
    assert list(made().results("a-")) == [("a-1", {"x": 1})]


def test_a_folder_is_gathered(tmp_path):
    write_json(tmp_path / "settings.json", {"name": "squares", "scale": "smoke", "settings": {}, "parts": ["a", "b"]})
    write_json(tmp_path / "b.json", {"seconds": 1.0, "result": {}})
    found = Record.load(tmp_path)
    assert list(found.parts) == ["b"]
    assert found.missing == ("a",)


def test_files_that_are_no_records(tmp_path):
    with pytest.raises(CheckpointError, match=r"there is no .*nothing.json"):
        Record.load(tmp_path / "nothing.json")
    (tmp_path / "cut.json").write_text('{"name": ')
    with pytest.raises(CheckpointError, match=r"cut.json cannot be read\n  received: JSONDecodeError"):
        Record.load(tmp_path / "cut.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(CheckpointError, match="no document"):
        read_json(tmp_path / "list.json")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(CheckpointError, match="no record of an experiment"):
        Record.load(tmp_path / "other.json")


@pytest.mark.parametrize("value", [math.nan, math.inf, torch.ones(1), {1, 2}])
def test_results_are_plain_finite_numbers(tmp_path, value):
    with pytest.raises(ConfigurationError, match="finite numbers, texts, lists and dicts"):
        write_json(tmp_path / "a.json", {"x": value})
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="could not write"):
        write_json(tmp_path / "file" / "a.json", {})


def test_provenance(monkeypatch):
    monkeypatch.setenv("COMMIT", "c" * 40)
    found = provenance(torch.device("cpu"))
    assert found["commit"] == "c" * 40
    assert found["torch"] == torch.__version__
    assert found["device"]
    assert found["command"].startswith("python -m bayesprop.experiments")


def test_where_there_is_no_git(monkeypatch):
    def missing(*arguments, **options):
        raise FileNotFoundError("git")

    monkeypatch.delenv("COMMIT", raising=False)
    monkeypatch.setattr(subprocess, "run", missing)
    assert provenance(torch.device("cpu"))["commit"] == ""
    assert provenance(torch.device("cpu"))["uncommitted"] == []


def test_kept_records_lie_in_the_repository():
    path = stored_path("table-1", "paper")
    assert path == module.SOURCE / "results" / "reproduce" / "table-1-paper.json"
    assert (module.SOURCE / "pyproject.toml").is_file()
    assert "bayesprop" in sys.modules


def test_records_that_are_kept_make_pages(root):
    """Each says what it is, with what each part was run, and has all that its page asks for."""
    found = experiments()
    for path in sorted((root / "results" / "reproduce").glob("*.json")):
        record = Record.load(path)
        assert path.stem == f"{record.name}-{record.scale}"
        assert record.scale in found[record.name].scales
        for name, part in record.parts.items():
            assert re.fullmatch(r"[0-9a-f]{40}", part["commit"]), f"{path.name}: {name}"
        assert found[record.name].page(record), path.name
