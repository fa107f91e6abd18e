"""Sweeps by captured steps: the same rows and posteriors as step by step, with numbers of every particle's own.

Without a GPU the steps of a graph are launched one by one, in Triton's interpreter.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from bayesprop import priors
from bayesprop.training.capture import Captured
from bayesprop.training.sweeping import race

GRIDS = {
    "numbers, schedules and seeds": [
        {"learning_rate": 0.01, "kl_weights": "geometric"},
        {"learning_rate": 0.03, "temperature": 0.2, "seed": 5},
        {"learning_rate": 0.02, "prior.scale": 0.3, "initial_scale": 0.1},
    ],
    "samples": {"samples": [1, 2], "learning_rate": [0.01, 0.03]},
    "mixture": {"prior": [priors.ScaleMixture()], "prior.scale1": [1.0, math.exp(-1)], "learning_rate": [0.01, 0.02]},
}


@pytest.mark.parametrize("grid", GRIDS)
def test_captured_races_end_as_others(sweep, interpreter, monkeypatch, grid):
    settings = {"rungs": (0.3,), "keep": 0.7, "winners": 2, "device": interpreter}
    expected = sweep(GRIDS[grid], **settings)
    made = []

    def captured(*arguments):
        *first, now = arguments
        made.append(Captured(*first, now, graphs=torch.cuda.is_available()))
        assert made[-1].prepare(now) == ""
        return made[-1]

    with monkeypatch.context() as patch:
        patch.setattr(race, "stepper", captured)
        found = sweep(GRIDS[grid], **settings)
    assert len(made) >= 2
    assert [row.number for row in found.rows] == [row.number for row in expected.rows]
    assert [(row.fate, row.steps) for row in found.rows] == [(row.fate, row.steps) for row in expected.rows]
    for mine, theirs in zip(found.posteriors, expected.posteriors, strict=True):
        # The numbers of a step are float32 on the device.
        assert_close(dict(mine.tensors()), dict(theirs.tensors()), rtol=1e-5, atol=1e-6)
