from __future__ import annotations

import inspect
import math

import pytest
import torch

from bayesprop import distributions
from bayesprop.distributions import Elementwise
from bayesprop.distributions.elementwise import log, standardise

MODULES = [getattr(distributions, name) for name in ("flat", "laplace", "normal", "scale_mixture", "student_t")]


def test_logarithm_keeps_floats_floats():
    assert log(2.0) == math.log(2.0)
    torch.testing.assert_close(log(torch.tensor([2.0])), torch.tensor([math.log(2.0)]))


def test_standardise_spends_no_memory_on_loc_zero_and_scale_one():
    value = torch.tensor([3.0, 5.0])
    assert standardise(value, 0.0, 1.0) is value
    assert standardise(value, 1.0, 2.0).tolist() == [1.0, 2.0]
    assert standardise(value, torch.tensor([0.0, 1.0]), torch.tensor(2.0)).tolist() == [1.5, 2.0]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_family_is_described_by_its_record(module):
    density = module.DENSITY
    assert isinstance(density, Elementwise)
    assert density.name == module.__name__.rpartition(".")[2]
    functions = {"log_density": ("value",), "score": ("value",), "std": ()}
    if density.kl is not None:
        functions |= {"kl": ("mean", "std"), "kl_gradients": ("mean", "std")}
    for name, leading in functions.items():
        found = tuple(inspect.signature(getattr(density, name)).parameters)
        assert found == (*leading, *density.parameters)


def test_five_families_are_tested():
    modules = {name for name in distributions.__all__ if inspect.ismodule(getattr(distributions, name))}
    assert {module.__name__.rpartition(".")[2] for module in MODULES} == modules
    assert distributions.__all__ == sorted(distributions.__all__)
