"""Numbers in documents are those of the records, and a record says how to measure it again."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROVENANCE = {"command", "date", "commit", "uncommitted", "device", "threads", "python", "torch", "numpy", "settings"}

RECORDS = sorted((ROOT / "results").glob("*.json"))


@pytest.fixture(scope="module")
def tables():
    """benchmarks/tables.py, which is a script and no module of the library."""
    spec = importlib.util.spec_from_file_location("bayesprop_tables", ROOT / "benchmarks" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_table_of_a_document_is_what_the_records_say(tables):
    seen, wrong = [], []
    for path in tables.documents():
        text = path.read_text(encoding="utf-8")
        seen += [place[2] for place in tables.PLACE.finditer(text)]
        if tables.renewed(text) != text:
            wrong.append(path.relative_to(ROOT).as_posix())
    assert sorted(seen) == sorted(tables.TABLES), "each table stands in one document"
    assert not wrong, "python benchmarks/tables.py renews them"


def test_a_number_that_somebody_types_is_found(tables):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    place = tables.PLACE.search(text)
    digit = re.search(r"\d\.\d\d", place[3])
    start = place.start(3) + digit.start()
    other = text[:start] + str((int(text[start]) + 1) % 10) + text[start + 1 :]
    assert other != text
    assert tables.renewed(other) == text


def test_an_opened_place_is_closed(tables):
    """A place that the pattern does not take would keep its old numbers for ever."""
    for path in tables.documents():
        text = path.read_text(encoding="utf-8")
        assert text.count("<!-- table ") == len(tables.PLACE.findall(text)) == text.count("<!-- end -->"), path.name


def test_there_are_records(tables):
    assert {path.stem for path in RECORDS} >= {record for name in tables.TABLES for record in tables.records_of(name)}


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_says_how_to_measure_it_again(path):
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found.keys() >= PROVENANCE | {"name", "results"}
    assert found["name"] == path.stem
    assert re.fullmatch(r"[0-9a-f]{40}", found["commit"])
    script = found["command"].split()[1]
    assert (ROOT / script).is_file()


def test_what_the_readme_claims_was_measured_on_a_commit(tables):
    """Nothing in the library or the benchmarks was different from the commit that the record names."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    names = [record for place in tables.PLACE.finditer(text) for record in tables.records_of(place[2])]
    assert {"digits", "mnist", "uci"} <= set(names)
    assert {name: tables.load(name)["uncommitted"] for name in names} == {name: [] for name in names}
