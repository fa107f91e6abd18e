"""Bands are ordered, regions are where they should be, and a stopped part goes on."""

import json

import numpy as np
import pytest
import torch

from bayesprop.experiments.experiment import Bench, Unfinished
from bayesprop.experiments.regression.methods import GAP
from bayesprop.experiments.regression.parts import CURVES, gap_model, parts
from bayesprop.training.observers import Stop


def test_a_curve_has_bands(record_of, settings):
    record = record_of("curve", "curve-plain", "source")
    assert json.dumps(dict(record.parts), allow_nan=False)
    for name in CURVES:
        result = record.result(name)
        band = {key: np.asarray(values) for key, values in result["band"].items()}
        assert {values.shape for values in band.values()} == {(settings.places,)}
        order = ("low", "lower_quartile", "median", "upper_quartile", "high")
        for below, above in zip(order, order[1:]):
            assert (band[below] <= band[above] + 1e-9).all()
        assert (band["target_low"] < band["target_high"]).all()
        assert ((band["deviation"] == 0).all()) == (name == "curve-plain")
        assert len(result["points"]["inputs"]) == result["rows"]
        assert max(result["points"]["inputs"]) < 0.5
        assert result["test_rmse"] > 0.0
        assert result["noise"] > 0.0
    assert (record.result("curve")["band"]["inputs"][0], record.result("source")["band"]["inputs"][-1]) == (-0.25, 1.2)


@pytest.mark.parametrize("name", ["hmc", "bayes-by-backprop", "mc-dropout", "laplace", "nngp", "map"])
def test_the_gap(record_of, name):
    result = record_of(f"gap-{name}").result(f"gap-{name}")
    assert json.dumps(result, allow_nan=False)
    for region in ("data", "gap", "beyond"):
        assert result[region] == 0.0 if name == "map" else result[region] > 0.0
    assert ("r_hat" in result) is (name == "hmc")


def test_an_exact_process_is_least_certain_away_from_the_data(record_of):
    """The one method here whose answer does not depend on how long it was trained."""
    result = record_of("gap-nngp").result("gap-nngp")
    assert result["gap"] > 3 * result["data"]
    assert result["beyond"] > 3 * result["data"]


def test_every_part_has_its_method(settings):
    names = [part.name for part in parts(settings)]
    assert names == [*CURVES, *(f"gap-{name}" for name in GAP)]


def test_the_scale_of_the_gaps_network_does_not_depend_on_its_width(settings):
    """Prior deviation of the function at 0: sqrt(bias + 2 E tanh^2), the same for eight units and for fifty."""
    model = gap_model(settings)
    assert model.layout.random == 3 * settings.gap_width + 1
    scales = {name: prior.scale for name, prior in model.prior.items()}
    assert scales["2.weight"] ** 2 * settings.gap_width == pytest.approx(2.0)


def test_a_part_that_is_stopped_goes_on(settings, tmp_path):
    part = next(part for part in parts(settings) if part.name == "gap-bayes-by-backprop")

    class Late(Bench):
        def watch(self, event):
            return Stop if event.kind == "epoch" and event.epoch == 4 else None

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with pytest.raises(Unfinished, match="stopped after 5 of 12 epochs"):
        part.run(Late(tmp_path / "a", torch.device("cpu"), {}, tmp_path))
    whole, rest = (part.run(Bench(tmp_path / f, torch.device("cpu"), {}, tmp_path)) for f in "ba")
    assert rest == whole
