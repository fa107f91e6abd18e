"""Grids become settings, and mistakes in them are told with the line to write instead."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bayesprop import priors
from bayesprop.errors import ConfigurationError
from bayesprop.training.sweeping.grid import settings_of


def test_a_dict_of_lists_is_its_product_and_the_last_key_runs_fastest():
    found = settings_of({"a": [1, 2], "b": ["x", "y", "z"]})
    assert found == [{"a": a, "b": b} for a in (1, 2) for b in ("x", "y", "z")]


def test_a_list_of_dicts_is_taken_as_it_is():
    grid = [{"a": 1}, {"b": np.float64(2.0), "a": 1}]
    assert settings_of(grid) == [{"a": 1}, {"b": 2.0, "a": 1}]


@pytest.mark.parametrize(
    "values", [(0.1, 0.2), np.array([0.1, 0.2]), torch.tensor([0.1, 0.2], dtype=torch.float64), [np.float64(0.1), 0.2]]
)
def test_values_of_every_kind_become_numbers(values):
    found = settings_of({"a": values})
    assert found == [{"a": 0.1}, {"a": 0.2}]
    assert all(type(one["a"]) is float for one in found)


def test_a_range_is_a_list():
    assert settings_of({"seed": range(3)}) == [{"seed": 0}, {"seed": 1}, {"seed": 2}]


@pytest.mark.parametrize(
    ("grid", "message", "write"),
    [
        (None, "a grid is a dict of lists", "bp.sweep(model, data, method, {"),
        (0.1, "a grid is a dict of lists", "bp.sweep(model, data, method, {"),
        ("learning_rate", "a grid is a dict of lists", "bp.sweep(model, data, method, {"),
        ({}, "the grid is empty", "bp.sweep(model, data, method, {"),
        ([], "the grid is empty", "bp.sweep(model, data, method, {"),
        ({1: [1]}, "settings have names", "bp.sweep(model, data, method, {"),
        ({"a": 0.1}, "the values of a are a list", '{"a": [0.1]}'),
        ({"a": "warmup"}, "the values of a are a list", "{\"a\": ['warmup']}"),
        ({"a": []}, "there are no values of a", "bp.sweep(model, data, method, {"),
        ({"a": [1, 2, 1]}, "a setting is there twice", '{"seed": [0, 1], ...}'),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], "a setting is there twice", '{"seed": [0, 1], ...}'),
        ({"a": [priors.Normal(), priors.Normal()]}, "a setting is there twice", '{"seed": [0, 1], ...}'),
    ],
)
def test_bad_grids_are_refused(grid, message, write):
    with pytest.raises(ConfigurationError) as caught:
        settings_of(grid)
    assert message in str(caught.value)
    assert f"write: {write}" in str(caught.value)
