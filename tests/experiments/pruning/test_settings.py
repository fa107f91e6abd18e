"""What is run at each scale."""

import json
import math
from dataclasses import asdict

import pytest

from bayesprop.experiments.pruning.settings import SCALES


@pytest.mark.parametrize("scale", SCALES)
def test_settings_are_plain(scale):
    assert json.dumps(asdict(SCALES[scale]), allow_nan=False)
    for network in SCALES[scale].networks.values():
        assert {"prior", "width", "epochs", "learning_rate", "temperature", "initial_rho"} <= set(network)


def test_the_papers_network():
    paper = SCALES["paper"]
    network = paper.networks["paper"]
    assert (network["width"], network["epochs"], paper.batch_size, paper.pixels, paper.seeds) == (
        1200,
        600,
        128,
        "/126",
        5,
    )
    assert paper.shares == (0.0, 0.25, 0.5, 0.75, 0.95, 0.98, 0.99)
    assert paper.networks["short"] == {**network, "epochs": 100}
    assert paper.networks["full"] == {**network, "temperature": 1.0}


def test_source_000s_network():
    network = SCALES["paper"].networks["source"]
    assert (network["width"], network["batch_size"], network["samples"]) == (400, 100, 2)
    assert (network["prior.pi"], network["prior.scale1"]) == (0.5, 1.0)
    assert math.log(network["prior.scale2"]) == pytest.approx(-6.0)
    assert network["learning_rate"] == pytest.approx(1e-3 * network["batch_size"])
