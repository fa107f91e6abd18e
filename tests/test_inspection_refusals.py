"""What cannot be trained is refused at the first look, with the line to write instead."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bayesprop import likelihoods
from bayesprop.errors import ConfigurationError, DataError
from bayesprop.inspection import inspect
from bayesprop.model import Model

HALF = likelihoods.Gaussian(scale=0.5)


def _numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Calls(nn.Module):
    """A layer and whatever a test wants to be done with it."""

    def __init__(self, function: Callable[[Any, Tensor], Any], *, head: int = 1) -> None:
        super().__init__()
        self.first, self.head, self.function = nn.Linear(3, 4), nn.Linear(4, head), function

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def _plain(network: Calls, x: Tensor) -> Tensor:
    return network.head(torch.tanh(network.first(x)))


def _look(network: nn.Module, inputs: Tensor) -> None:
    inspect(Model(network, likelihood=HALF), inputs)


def _recomputing(use_reentrant: bool) -> Callable[[Calls, Tensor], Tensor]:
    def function(network: Calls, x: Tensor) -> Tensor:
        hidden = network.first(x)
        return network.head(checkpoint(torch.tanh, hidden, use_reentrant=use_reentrant))

    return function


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_activation_checkpointing_is_refused(use_reentrant):
    """What is run again in the backward pass would be run with other weights: those that the network itself has."""
    with pytest.raises(
        ConfigurationError, match="the network runs parts of itself again in the backward pass"
    ) as caught:
        _look(Calls(_recomputing(use_reentrant)), ROWS)
    assert "received: activation checkpointing (torch.utils.checkpoint)" in str(caught.value)
    assert "write: network.gradient_checkpointing_disable()" in str(caught.value)
    model = Model(Calls(_plain), likelihood=HALF)
    assert model.probe(ROWS, None).shape == (5, 1)


def test_saved_tensors_that_are_kept_elsewhere_are_not_activation_checkpointing():
    model = Model(Calls(_plain), likelihood=HALF)
    with torch.autograd.graph.save_on_cpu():
        assert model.probe(ROWS, None).shape == (5, 1)
    with torch.autograd.graph.save_on_cpu():  # hooks are allowed again
        assert torch.ones(1, requires_grad=True).exp().requires_grad


def _lookup() -> nn.Module:
    return nn.Sequential(nn.Embedding(4, 2), nn.Flatten(), nn.Linear(4, 1))


def _calling(function: Callable[[Calls, Tensor], Any]) -> Callable[[], nn.Module]:
    return lambda: Calls(function, head=2)


ROWS = torch.zeros(5, 3)
REFUSED: dict[str, tuple[Callable[[], nn.Module], Tensor, tuple[str, ...]]] = {
    "features": (
        _calling(_plain),
        torch.zeros(5, 2),
        ("the network cannot take these inputs: mat1", "inputs [5, 2] torch.float32", "what network(inputs) accepts"),
    ),
    "one dimension": (
        _calling(_plain),
        torch.zeros(5),
        ("the network cannot take these inputs", "inputs [5] torch.float32", "write: inputs[:, None] if these are"),
    ),
    "an index beyond the table": (
        _lookup,
        torch.tensor([[0, 4]] * 3),
        ("index out of range", "indices below num_embeddings: 0 has 4", "write: torch.nn.Embedding(num_embeddings="),
    ),
    "numbers for tokens": (
        _lookup,
        torch.zeros(3, 2),
        ("the network cannot take these inputs", "torch.float32", "write: inputs.long()"),
    ),
    "batch statistics of one row": (
        lambda: nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)),
        torch.zeros(1, 3),
        ("Expected more than 1 value per channel", "batch normalisation needs at least two rows", "drop_last=True"),
    ),
    "a mean": (
        _calling(lambda network, x: _plain(network, x).mean()),
        ROWS,
        ("one row for each row of the inputs", "outputs () for 5 rows", "expected: outputs (5, ...)"),
    ),
    "squeezed": (
        _calling(lambda network, x: _plain(network, x).squeeze()),
        ROWS,
        ("also for a single one", "outputs (2,) for 1 row, (5, 2) for 5 rows", "x.squeeze(-1)"),
    ),
    "detached": (
        _calling(lambda network, x: _plain(network, x).detach()),
        ROWS,
        ("no gradient with respect to any weight", "outputs of torch.float32", "no torch.no_grad(), .detach()"),
    ),
    "a tuple": (
        _calling(lambda network, x: (None, _plain(network, x))),
        ROWS,
        ("must return one tensor", "received: a tuple of 2", "output=lambda result: result[1]"),
    ),
    "a dict": (
        _calling(lambda network, x: collections.OrderedDict(loss=None, logits=_plain(network, x))),
        ROWS,
        ("must return one tensor", "received: a OrderedDict of 2", "output=lambda result: result['logits']"),
    ),
    "an object": (
        _calling(lambda network, x: types.SimpleNamespace(loss=None, logits=_plain(network, x))),
        ROWS,
        ("must return one tensor", "received: a SimpleNamespace", "output=lambda result: result.logits"),
    ),
    "nothing": (
        _calling(lambda network, x: None),
        ROWS,
        ("must return one tensor", "received: nothing", "write: return outputs"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_trained_is_refused_early(case):
    make, inputs, parts = REFUSED[case]
    with pytest.raises(DataError) as caught:
        _look(make(), inputs)
    assert len(parts) == 3
    for part in parts:
        assert part in str(caught.value)


def test_an_output_that_fails_is_refused_in_its_own_words():
    network = Calls(lambda network, x: {"logits": _plain(network, x)})
    model = Model(network, likelihood=HALF, output=lambda result: result["logit"])
    with pytest.raises(DataError, match="cannot pick from what the network returns: KeyError: 'logit'") as caught:
        model.probe(_numbers(5, 3), None)
    assert "received: a dict of 1" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "asked", "write"),
    [
        ({"network": nn.Linear}, "Model needs a network to make Bayesian", "bp.Model(Net(), ...)"),
        ({"network": 3}, "Model needs a network to make Bayesian", "bp.Model(network, likelihood=...)"),
        (
            {"network": nn.DataParallel(nn.Linear(3, 1))},
            "Model needs the network itself",
            "bp.Model(network.module, ...)",
        ),
        (
            {"likelihood": "gaussian"},
            "Model needs to know how targets depend",
            "likelihood=bp.likelihoods.Categorical()",
        ),
        ({"output": "logits"}, "output picks the prediction", "output=lambda result: result['logits']"),
    ],
    ids=["a class", "a number", "a wrapper", "a word for a likelihood", "a word for an output"],
)
def test_the_parts_of_a_model_are_checked(options, asked, write):
    with pytest.raises(ConfigurationError) as caught:
        Model(**{"network": nn.Linear(3, 1), "likelihood": HALF, **options})
    assert str(caught.value).startswith(asked)
    assert f"write: {write}" in str(caught.value)
