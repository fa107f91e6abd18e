"""What is run at each scale."""

import json
from dataclasses import asdict

import pytest

from bayesprop.experiments.densities.settings import PAPER, SCALES


@pytest.mark.parametrize("scale", SCALES)
def test_settings_are_plain(scale):
    settings = SCALES[scale]
    assert json.dumps(asdict(settings), allow_nan=False)
    assert settings.looks[-1] == settings.epochs
    assert list(settings.looks) == sorted(settings.looks)


def test_the_published_protocols():
    assert (PAPER.epochs, PAPER.batch_size, PAPER.pixels) == (600, 128, "/126")
    assert {PAPER.networks[name]["width"] for name in ("sgd", "dropout", "mixture", "gaussian")} == {1200}
    source = PAPER.networks["source-gaussian"]
    assert (source["width"], source["batch_size"], source["samples"], source["prior.scale"]) == (400, 100, 2, 1.0)
    assert 50 in PAPER.looks, "when source 004 looked"
