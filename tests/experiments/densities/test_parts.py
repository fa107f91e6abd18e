"""Weights are looked at after the epochs that are asked for, also by a run that was interrupted."""

import json

import numpy as np
import pytest
import torch

from bayesprop.experiments.densities.parts import TITLES, Looks, parts, setup
from bayesprop.experiments.densities.settings import PAPER
from bayesprop.experiments.experiment import Unfinished
from bayesprop.inference import MLE, BayesByBackprop
from bayesprop.posteriors import Delta
from bayesprop.training.observers import Event, Stop

MATRICES = 784 * 6 + 6 * 6 + 6 * 10


def test_all_parts(record):
    assert list(record.parts) == list(TITLES)
    assert json.dumps(dict(record.parts), allow_nan=False)
    for name, part in record.parts.items():
        result = part["result"]
        assert result["weights"] == MATRICES + 6 + 6 + 10
        assert [look["epoch"] for look in result["looks"]] == [1, 3]
        for look in result["looks"]:
            assert sum(look["means"]) == MATRICES
            assert ("draw" in look) is (name not in ("sgd", "dropout"))
            if "draw" in look:
                assert sum(look["draw"]) == MATRICES
                assert look["draw_deviation"] > look["means_deviation"]
        assert 0.0 <= result["test_error"] < 1.0


def test_a_run_that_is_stopped_goes_on_and_ends_the_same(data, bench, settings):
    part = parts(settings)[2]
    whole = part.run(bench("whole"))
    stopped = bench("stopped")
    looked = []

    class Late(type(stopped)):
        def watch(self, event):
            looked.append(event.kind)
            return Stop if looked.count("epoch") == 2 else None

    with pytest.raises(Unfinished, match="stopped in epoch 3 of 3"):
        part.run(Late(stopped.folder, stopped.device, {}, stopped.root))
    assert stopped.checkpoint.exists()
    assert part.run(stopped) == whole


def test_looks_count_what_lies_beyond_at_the_ends(settings, tmp_path):
    model, _ = setup(settings.networks["sgd"])
    location = np.linspace(-2.0, 2.0, model.layout.size)
    posterior = Delta(model, torch.as_tensor(location, dtype=torch.float32)[None], {})
    looks = Looks(tmp_path / "looks.json", settings)
    looks(Event("epoch", 0, 3, 8, 8, 0.1, {}, lambda: posterior))
    looks(Event("epoch", 1, 3, 16, 8, 0.1, {}, None))
    looks(Event("step", 2, 3, 17, 8, 0.1, {}, None))
    assert looks.last == 2
    assert list(looks.found) == ["1"]
    assert sum(looks.found["1"]["means"]) == MATRICES
    assert looks.found["1"]["means"][0] > 0.3 * MATRICES
    assert Looks(tmp_path / "looks.json", settings).found == looks.found


def test_rows_become_methods():
    for name, network in PAPER.networks.items():
        _, method = setup({**network, "width": 4})
        assert isinstance(method, MLE if name in ("sgd", "dropout") else BayesByBackprop)
    source = setup({**PAPER.networks["source-mixture"], "width": 4})[1]
    assert (source.estimator.samples, source.kl_weights, source.optimizer) == (2, "uniform", "sgd")
