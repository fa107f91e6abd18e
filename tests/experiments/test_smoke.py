"""Every experiment at its smallest scale, on real handwritten digits, as a user runs it."""

import json

import pytest

from bayesprop.experiments import commands
from bayesprop.experiments.listing import experiments


@pytest.mark.parametrize("name", list(experiments()))
def test_an_experiment_runs_and_its_page_shows_what_it_found(name, data, tmp_path, console):
    record = commands.reproduce(name, "smoke", folder=tmp_path, device="cpu", console=console)
    assert record.missing == ()
    kept = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert set(kept["parts"]) == set(record.parts)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"<h1>{experiments()[name].title}</h1>" in page
    assert "How this was made" in page
    assert page.count("<svg") > 0
    assert page.count("<table") > 1
