import dataclasses

import torch

from bayesprop.experiments.choices.parts import parts, values_of, variant
from bayesprop.experiments.choices.settings import BASE, PAPER, SMOKE, VARIANTS
from bayesprop.experiments.experiment import Bench


def test_one_part_for_each_variant():
    assert [part.name for part in parts(PAPER)] == list(VARIANTS)
    assert parts(PAPER)[0].what == "the base: as source 000"


def test_a_variant_differs_in_one_choice():
    assert values_of(PAPER, "base") == BASE
    assert values_of(PAPER, "samples-5") == {**BASE, "samples": 5}
    gaussian = values_of(PAPER, "gaussian")
    assert gaussian["prior.scale"] == 1.0
    assert not {"prior.pi", "prior.scale1", "prior.scale2"} & gaussian.keys()


def test_every_variant_can_be_trained(data, tmp_path):
    """One epoch of few rows each: names of settings, schedules and priors are those that a sweep knows."""
    few = dataclasses.replace(SMOKE, seeds=1, epochs=1, width=4, train_rows=100, held_out_rows=20, draws=2)
    for name in VARIANTS:
        folder = tmp_path / name
        folder.mkdir()
        found = variant(few, name, Bench(folder, torch.device("cpu"), {}, tmp_path))
        assert len(found["test"]["error"]) == 1, name
        assert found["pixels"] == values_of(few, name)["pixels"]
