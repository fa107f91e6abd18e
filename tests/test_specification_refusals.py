"""What a file cannot hold is asked for by name, and what it must not be able to do it cannot."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

import pytest
import torch
from torch import Tensor

from bayesprop import data, inference, priors
from bayesprop.errors import CheckpointError
from bayesprop.specification import from_json, to_json

VECTOR = torch.tensor([0.5, 1.5])


def refused(document: Any, tensors: dict[str, Tensor] | None = None, argument: str = "") -> str:
    with pytest.raises(CheckpointError) as caught:
        from_json(document, tensors or {}, argument=argument)
    return str(caught.value)


# -- what a file cannot hold -------------------------------------------------------------------------------------------


def my_schedule(progress: float) -> float:
    return 1.0 - progress


@dataclasses.dataclass(frozen=True)
class MyPrior:
    """A description that is not part of the library."""

    scale: float = 1.0


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (my_schedule, "my_schedule"),
        (lambda f: f, "<lambda>"),
        (torch.nn.ReLU(), "ReLU"),
        (torch.nn.Linear, "Linear"),
        (torch.device("cpu"), "device"),
        (object(), "object"),
        (torch.sin, "sin"),
    ],
)
def test_a_function_of_the_users_is_asked_for(value, name):
    document = json.loads(json.dumps(to_json(value, {}, "x")))
    message = refused(document, argument="output")
    assert "the file refers to a function of yours, '" in message
    assert name in message
    assert message.endswith("write: pass it again: output=...")


def test_a_function_inside_of_a_description_is_asked_for():
    method = inference.BayesByBackprop(schedule=my_schedule)
    message = refused(to_json(method, {}, "x"), argument="method")
    assert "a function of yours, 'my_schedule'" in message
    assert "write: pass it again: method=..." in message


def test_a_description_of_the_users_is_asked_for():
    message = refused(to_json(MyPrior(), {}, "x"), argument="prior")
    assert "which is not part of bayesprop" in message
    assert "write: pass it again: prior=..." in message
    assert "write: pass it again: argument=..." in refused(to_json(MyPrior(), {}, "x"))


# -- what a file must not be able to do --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("os:system", "is not part of bayesprop"),
        ("builtins:eval", "is not part of bayesprop"),
        ("subprocess:Popen", "is not part of bayesprop"),
        ("torch.nn.modules.linear:Linear", "is not part of bayesprop"),
        ("fractions:Fraction", "is not part of bayesprop"),
        ("bayespropaganda.priors:Normal", "is not part of bayesprop"),
        ("priors:Normal", "is not part of bayesprop"),
        ("", "is not part of bayesprop"),
        ("bayesprop.__main__:main", "is not part of bayesprop"),
        ("bayesprop.posteriors.files:load", "is no description that a file may hold"),
        ("bayesprop.posteriors.files:os.system", "is no description that a file may hold"),
        ("bayesprop.rng:Tensor", "is no description that a file may hold"),
        ("bayesprop.rng:torch.distributions.Normal", "is no description that a file may hold"),
        ("bayesprop.model:Model", "is no description that a file may hold"),
        ("bayesprop.errors:DataError", "is no description that a file may hold"),
        ("bayesprop.priors:Normal", "is no description that a file may hold"),  # under another name than its own
        ("bayesprop.kernels.native:subprocess.run", "is no description that a file may hold"),
        ("bayesprop.kernels.native:SOURCE", "is no description that a file may hold"),
        ("bayesprop.priors.elementwise:Normal.describe", "is no description that a file may hold"),
        ("bayesprop.priors.elementwise:Gone", "which does not exist here"),
        ("bayesprop.gone:Normal", "which does not exist here"),
        ("bayesprop.priors.elementwise:", "which does not exist here"),
        ("bayesprop", "which does not exist here"),
    ],
)
def test_only_descriptions_of_the_library_are_built(path, reason, monkeypatch):
    def ran(*args: object, **options: object) -> None:
        raise AssertionError("a file has called a function")

    monkeypatch.setattr(os, "system", ran)
    message = refused({"type": path, "fields": {}})
    assert f"the file asks for {path!r}, which" in message
    assert reason in message
    if "exist" in reason:
        assert "expected: the version of bayesprop that wrote the file, or a later one" in message


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("os:system", "is not part of torch.optim or torch.distributions"),
        ("torch.nn.modules.linear:Linear", "is not part of torch.optim or torch.distributions"),
        ("torch.hub:load", "is not part of torch.optim or torch.distributions"),
        ("torch.optimistic:Adam", "is not part of torch.optim or torch.distributions"),
        ("torch.utils.cpp_extension:load", "is not part of torch.optim or torch.distributions"),
        ("bayesprop.priors.elementwise:Normal", "is not part of torch.optim or torch.distributions"),
        ("torch.optim.adam:adam", "is no description that a file may hold"),
        ("torch.optim.adam:torch.load", "is no description that a file may hold"),
        ("torch.optim:Adam", "is no description that a file may hold"),
        ("torch.optim.adam:Gone", "which does not exist here"),
    ],
)
def test_only_optimisers_and_distributions_of_torch_are_named(path, reason):
    message = refused({"class": path})
    assert f"the file asks for {path!r}, which" in message
    assert reason in message


@pytest.mark.parametrize("name", ["load", "save", "Tensor", "nn", "gone", "float33", ""])
def test_a_type_of_numbers_is_one(name):
    assert f"the file asks for 'torch.{name}', which is no description" in refused({"dtype": name})


def test_a_description_that_cannot_be_made():
    path = "bayesprop.priors.elementwise:Normal"
    message = refused({"type": path, "fields": {"scale": -1.0}})
    assert message.startswith("the file describes a Normal that cannot be made: Normal")
    assert "the file describes a Normal that cannot be made" in refused({"type": path, "fields": {"width": 1.0}})
    abstract = {"type": "bayesprop.priors.prior:Prior", "fields": {}}
    assert "the file describes a Prior that cannot be made: Can't instantiate abstract class" in refused(abstract)


def test_a_tensor_that_is_not_there():
    document = to_json(priors.Normal(VECTOR), {}, "prior")
    assert "the file describes a tensor 'prior.loc' that it does not hold" in refused(document)


def test_data_are_no_part_of_a_file():
    """Rows are never written: only what was measured of them."""
    rows = data.Data(torch.ones(4, 2), torch.ones(4))
    assert "of yours, 'Data'" in refused(to_json(rows, {}, "x"), argument="data")
