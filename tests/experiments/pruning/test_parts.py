"""What each part finds, on few rows: every number is there, and is one of a network that was pruned."""

import json

import pytest

from bayesprop.experiments.pruning.parts import ORDERS, parts, setup
from bayesprop.experiments.pruning.settings import PAPER


def test_all_parts(record, settings):
    assert list(record.parts) == ["paper", "short", "full", "source", "grid-mixture-fan-in", "grid-gaussian-fan-in"]
    assert json.dumps(dict(record.parts), allow_nan=False)
    for name in settings.networks:
        result = record.result(name)
        assert result["weights"] == 784 * 8 + 8 + 8 * 8 + 8 + 8 * 10 + 10
        assert len(result["curves"]) == 2
        for curve in result["curves"]:
            assert set(curve) == set(ORDERS)
            assert all(len(curve[order][of]) == 3 for order in ORDERS for of in ("means", "draws", "nll"))
            # Nothing is removed in both orders at first: the same network.
            assert curve["magnitude"]["means"][0] == curve["signal_to_noise"]["means"][0]
    noise, left = record.result("paper")["noise"], record.result("paper")["left"]
    assert sum(noise["counts"]) == 2 * record.result("paper")["weights"]
    assert list(noise["cuts"]) == ["25 %", "50 %", "75 %", "95 %"]
    assert list(noise["cuts"].values()) == sorted(noise["cuts"].values())
    for order in ORDERS:
        assert sum(left[order]["0.5"]) == pytest.approx(sum(left[order]["0"]) / 2, abs=20)
    grid = record.result("grid-gaussian-fan-in")
    assert len(grid["members"]) == len(grid["curves"]) == 2 * 2
    assert {(m["prior.scale"], m["initial_rho"]) for m in grid["members"]} == {
        (scale, rho) for scale in (0.1, 1.0) for rho in (-3.0, -6.0)
    }


def test_the_published_protocol():
    found = parts(PAPER)
    assert [part.name for part in found[:4]] == ["paper", "short", "full", "source"]
    assert len(found) == 4 + 2 * 3
    assert found[0].what == "the paper's network, tempered: 1200 units, 600 epochs, 5 seeds"
    assert "24 networks of 400 units" in found[-1].what


def test_a_row_of_the_settings_becomes_model_and_method():
    model, method, member = setup(5, PAPER.networks["source"])
    assert model.layout.random == 784 * 5 + 5 + 5 * 5 + 5 + 5 * 10 + 10
    assert method.kl_weights == "uniform"
    assert method.estimator.samples == 2
    assert set(member) == {
        *("prior.pi", "prior.scale1", "prior.scale2"),
        *("initial_rho", "temperature", "learning_rate"),
    }
    narrow = setup(5, {"prior": "gaussian", "initial_rho": -3, "initial_mean": [-0.03, 0.03]})[1]
    assert narrow.initial_mean == (-0.03, 0.03)
