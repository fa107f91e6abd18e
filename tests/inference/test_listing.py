"""The table of all methods: complete, and the same in the documents."""

from __future__ import annotations

import inspect

import pytest

import bayesprop as bp
from bayesprop import inference
from bayesprop.errors import ConfigurationError
from bayesprop.inference import Method


def test_every_exported_method_is_there():
    exported = {
        name
        for name in inference.__all__
        if inspect.isclass(getattr(inference, name)) and Method in getattr(inference, name).__mro__[1:]
    }
    found = [entry.name for entry in bp.methods()]
    assert set(found) == exported
    assert len(bp.methods()) == len(found) >= 8
    assert found[:2] == ["MAP", "MLE"]


def test_each_says_what_it_is_costs_and_is_for():
    for entry in bp.methods():
        assert all(len(cell) > 0 for cell in entry.cells)
        assert entry.cls.__module__.startswith(f"bayesprop.inference.{entry.family}.")
        assert entry.page == f"docs/methods/{entry.name}.md"
    assert bp.methods()["SWAG"].family == "averaging"


def test_it_prints_as_a_table():
    text = str(bp.methods())
    assert repr(bp.methods()) == text
    for word in ("method", "approximates", "BayesByBackprop", "DeepEnsemble", "relative to MAP"):
        assert word in text
    assert max(len(line) for line in text.splitlines()) <= 140


def test_markdown_leads_to_the_pages():
    lines = bp.methods().markdown("methods/").splitlines()
    assert len(lines) == len(bp.methods()) + 2
    assert lines[2].startswith("| [MAP](methods/MAP.md) | point |")


def test_an_unknown_name_is_refused():
    with pytest.raises(ConfigurationError, match=r"no method is called 'SGDL'\. Did you mean 'SGLD'") as caught:
        bp.methods()["SGDL"]
    assert "write: bp.methods()" in str(caught.value)
