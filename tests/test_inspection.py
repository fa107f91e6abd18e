"""The first look at a network on a few rows: what is found, what is left alone, and what is refused early."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesprop import likelihoods
from bayesprop.errors import BayespropWarning
from bayesprop.inspection import Findings, inspect
from bayesprop.model import Model
from bayesprop.random_weights import Flipout

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


def _look(network: nn.Module, inputs: Tensor | None = None) -> tuple[Model, Findings]:
    model = Model(network, likelihood=HALF)
    return model, inspect(model, _numbers(5, 3) if inputs is None else inputs)


# -- what is found ----------------------------------------------------------------------------------------------------


def test_the_outputs_are_those_of_the_network_as_it_came_when_it_evaluates():
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
    network[1].running_mean += 1.0
    inputs = _numbers(5, 3)
    model, found = _look(network, inputs)
    torch.testing.assert_close(found.outputs, network.eval()(inputs).detach())
    assert not found.outputs.requires_grad
    assert not model.network.training
    for name, buffer in network.named_buffers():
        torch.testing.assert_close(model.network.get_buffer(name), buffer, rtol=0, atol=0)
        torch.testing.assert_close(model.buffers[name], buffer, rtol=0, atol=0)


NOISY: dict[str, tuple[Callable[[Any, Tensor], Tensor], bool]] = {
    "no noise": (_plain, False),
    "dropout": (lambda network, x: _plain(network, F.dropout(x, 0.5, network.training)), True),
    "always on": (lambda network, x: _plain(network, F.dropout(x, 0.5, training=True)), True),
    "only when it evaluates": (
        lambda network, x: _plain(network, x if network.training else x + torch.randn_like(x)),
        True,
    ),
    "noise of its own generator": (
        lambda network, x: _plain(network, x + torch.randn(3, generator=torch.Generator().manual_seed(0))),
        False,
    ),
}


@pytest.mark.parametrize("name", NOISY)
def test_whether_a_network_draws_random_numbers(name):
    function, expected = NOISY[name]
    network = Calls(function)
    before = torch.get_rng_state()
    _, found = _look(network)
    assert found.draws_globally is expected
    assert found.draws_predicting is (name in ("always on", "only when it evaluates"))
    torch.testing.assert_close(torch.get_rng_state(), before, rtol=0, atol=0)


def _branching(training: bool) -> Callable[[Calls, Tensor], Tensor]:
    """A network that looks at a number of its weights, in one of its modes."""

    def function(network: Calls, x: Tensor) -> Tensor:
        if network.training is training and network.head.bias.sum().isnan():
            return x[:, :1]
        return _plain(network, x)

    return function


BATCHABLE: dict[str, tuple[Callable[[Any, Tensor], Tensor], str]] = {
    "layers": (_plain, ""),
    "a number": (lambda network, x: _plain(network, x) * float(network.first.weight.detach().mean() + 2), "vmap"),
    "a branch while it trains": (_branching(True), "data-dependent control flow"),
    "a branch while it evaluates": (_branching(False), "data-dependent control flow"),
}


@pytest.mark.parametrize("name", BATCHABLE)
def test_whether_vmap_can_batch_it_in_both_modes(name):
    function, reason = BATCHABLE[name]
    model, found = _look(Calls(function))
    assert reason in found.vmap_failure
    assert "\n" not in found.vmap_failure
    assert bool(found.vmap_failure) == bool(reason)
    model.probe(_numbers(5, 3), None)
    assert (model.vectorised, model.vmap_failure) == (not reason, found.vmap_failure)


def test_who_uses_a_weight_in_training_mode():
    """Only random weights are traced; the head's use differs between the modes, and that of training counts."""

    def function(network: Calls, x: Tensor) -> Tensor:
        hidden = torch.tanh(network.first(x))
        return network.head(hidden) if network.training else hidden @ network.head.weight.T

    model = Model(Calls(function), likelihood=HALF, random=["first.weight", "head.*"])
    found = inspect(model, _numbers(5, 3))
    assert list(found.uses) == ["first.weight", "head.weight", "head.bias"]
    assert [[use.operation for use in uses] for uses in found.uses.values()] == [["linear"]] * 3
    assert [uses[0].example_dim for uses in found.uses.values()] == [0, 0, 0]
    assert found.uses["head.weight"][0].call == found.uses["head.bias"][0].call


@pytest.mark.parametrize("rows", [1, 2, 9])
def test_a_few_rows_are_enough(rows):
    model = Model(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 1)), likelihood=HALF)
    assert model.probe(_numbers(rows, 3), None).shape == (rows, 1)
    assert {evaluation.rule for evaluation in model.plan(Flipout()).values()} == {"flipout", "shared"}


def test_a_second_look_replaces_the_first():
    model = Model(nn.Linear(3, 2), likelihood=HALF)
    model.probe(_numbers(5, 3), None)
    assert "each example meets the weight once" in model.plan(Flipout())["weight"].reason
    model.probe(_numbers(5, 2, 3), None)
    assert "positions of an example share the weight" in model.plan(Flipout())["weight"].reason


def test_which_buffers_are_written_when_predicting():
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm = nn.Linear(3, 1), nn.BatchNorm1d(1)
            self.register_buffer("calls", torch.tensor(0))

        def forward(self, x: Tensor) -> Tensor:
            self.calls.add_(1)
            return self.norm(self.linear(x))

    model, found = _look(Counting())
    assert found.written == {"calls"}
    assert int(model.buffers["calls"]) == int(model.network.get_buffer("calls")) == 0


def test_rows_that_depend_on_one_another_are_pointed_out():
    """A recurrent layer without batch_first takes rows for times."""
    model = Model(nn.LSTM(3, 4), likelihood=HALF, output=lambda result: result[0])
    with pytest.warns(BayespropWarning, match="what the network says about a row depends on the other rows"):
        found = inspect(model, _numbers(5, 2, 3))
    assert found.outputs.shape == (5, 2, 4)


@pytest.mark.parametrize("network", [nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 1)), nn.Linear(3, 1)])
def test_inputs_that_a_network_writes_into_stay_the_users(network):
    """The first rectifier works in place: each draw has to see the same inputs, and so has the user."""
    model = Model(network, likelihood=HALF)
    inputs = _numbers(5, 3).float()
    before = inputs.clone()
    model.probe(inputs, None)
    assert model.writes_inputs == (len(list(network.children())) > 0)
    named = dict(model.network.named_parameters())
    theta = torch.cat([named[block.name].detach().reshape(-1) for block in model.layout.blocks])
    found = model.outputs(theta.expand(1, 3, -1), model.initial_buffers(1), inputs)
    torch.testing.assert_close(found[0], network(before.clone()).detach().expand(3, 5, 1))
    assert torch.equal(inputs, before)
