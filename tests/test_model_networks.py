"""Any network: what it takes and returns, what in it is frozen, padded or tied, the state it keeps, its own dice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils import _pytree as pytree

import bayesprop as bp
from bayesprop import inference, likelihoods
from bayesprop.model import Batch, Model
from bayesprop.random_weights import Flipout, LocalReparameterization

HALF = likelihoods.Gaussian(scale=0.5)


def _numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def _batch(inputs: Any, targets: Tensor, particles: int = 1) -> Batch:
    wide = pytree.tree_map(lambda t: t.expand(particles, *t.shape), (inputs, targets))
    return Batch(*wide, num_data=targets.shape[0])


def _theta(model: Model, particles: int = 1, draws: int = 1) -> Tensor:
    return 0.4 * _numbers(particles, draws, model.layout.size, seed=3, dtype=model.dtype)


def _reference(network: nn.Module, model: Model, row: Tensor, inputs: Any) -> Any:
    """The user's own network with the weights of one row loaded."""
    named = model.weights(row)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name in named:
                parameter.copy_(named[name])
    arguments = inputs if isinstance(inputs, tuple) else () if isinstance(inputs, dict) else (inputs,)
    return network(*arguments, **(inputs if isinstance(inputs, dict) else {}))


# -- what a network takes and returns ---------------------------------------------------------------------------------


@dataclass
class Answer:
    hidden: Tensor
    logits: Tensor


class Returns(nn.Module):
    """Its prediction, wrapped in the way that it is told."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.linear, self.kind = nn.Linear(3, 2).double(), kind

    def forward(self, x: Tensor) -> Any:
        logits = self.linear(x)
        wrapped = {"tensor": logits, "tuple": (x, logits), "dict": {"logits": logits, "loss": None}}
        return Answer(x, logits) if self.kind == "dataclass" else wrapped[self.kind]


PICKS = {
    "tensor": None,
    "tuple": lambda result: result[1],
    "dict": lambda result: result["logits"],
    "dataclass": lambda result: result.logits,
}


@pytest.mark.parametrize("kind", PICKS)
@pytest.mark.parametrize("lanes", [(1, 1), (2, 3)])
def test_networks_may_return_more_than_a_tensor(kind, lanes):
    network, inputs = Returns(kind), _numbers(5, 3)
    model = Model(network, likelihood=HALF, output=PICKS[kind])
    model.probe(inputs, _numbers(5, 2))
    theta = _theta(model, *lanes)
    outputs = model.outputs(theta, {}, inputs)
    assert outputs.shape == (*lanes, 5, 2)
    weights = model.weights(theta)
    expected = F.linear(inputs, weights["linear.weight"][-1, -1], weights["linear.bias"][-1, -1])
    torch.testing.assert_close(outputs[-1, -1], expected)


class Several(nn.Module):
    """Numbers and tokens, in this order or by name."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.embedding = nn.Linear(3, 4), nn.Embedding(5, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, numbers: Tensor, tokens: Tensor, *, mask: Tensor | None = None) -> Tensor:
        words = self.embedding(tokens)
        words = words if mask is None else words * mask[:, :, None]
        return self.head(torch.tanh(self.linear(numbers) + words.mean(1)))


@pytest.mark.parametrize("kind", ["tuple", "dict"])
def test_networks_may_take_several_inputs(kind):
    network = Several().double()
    numbers, tokens = _numbers(6, 3, dtype=torch.float32), torch.arange(12).reshape(6, 2) % 5
    mask = torch.arange(12).reshape(6, 2) % 3 > 0
    raw: Any = (numbers, tokens) if kind == "tuple" else {"tokens": tokens, "mask": mask, "numbers": numbers}
    model = Model(network, likelihood=HALF)
    inputs = model.prepare_inputs(raw)
    dtypes = [tensor.dtype for tensor in pytree.tree_leaves(inputs)]
    assert sorted(map(str, dtypes)) == ["torch.bool"] * (kind == "dict") + ["torch.float64", "torch.int64"]
    model.probe(inputs, _numbers(6))
    theta = _theta(model, 2, 3)
    outputs = model.outputs(theta, {}, inputs)
    torch.testing.assert_close(outputs[1, 2], _reference(network, model, theta[1, 2], inputs))
    torch.testing.assert_close(outputs[0, 1], _reference(network, model, theta[0, 1], inputs))
    posterior = bp.fit(Model(network.float(), likelihood=HALF), (raw, _numbers(6)), epochs=1, batch_size=4)
    assert posterior.predict(raw, draws=2).mean.shape == (6,)


def test_whole_numbers_are_numbers_unless_they_are_looked_up():
    linear, lookup = Model(nn.Linear(2, 1), likelihood=HALF), Model(nn.Embedding(3, 1), likelihood=HALF)
    whole = torch.tensor([[1, 2]])
    assert linear.prepare_inputs(whole).dtype == torch.float32
    assert lookup.prepare_inputs(whole).dtype == torch.int64
    waves = torch.tensor([[1 + 2j, 3j]])
    torch.testing.assert_close(linear.prepare_inputs(waves), waves, rtol=0, atol=0)


# -- frozen, padded, tied, parametrized -------------------------------------------------------------------------------


class Adapted(nn.Module):
    """A frozen layer with an adapter of rank 2: W + B A."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(4, 3).requires_grad_(False)
        self.down, self.up = nn.Parameter(0.5 * torch.randn(2, 4)), nn.Parameter(torch.zeros(3, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(x) + F.linear(F.linear(x, self.down), self.up)


@pytest.mark.parametrize("estimator", [None, Flipout(), LocalReparameterization()])
def test_adapters_on_a_frozen_trunk(estimator):
    torch.manual_seed(0)
    network = nn.Sequential(Adapted(), nn.Tanh(), nn.Linear(3, 1).requires_grad_(False)).double()
    model = Model(network, likelihood=HALF)
    assert [block.name for block in model.layout.blocks] == ["0.down", "0.up"]
    assert model.fixed_names == ("0.frozen.weight", "0.frozen.bias", "2.weight", "2.bias")
    assert model.layout.size == 2 * 4 + 3 * 2
    inputs, targets = _numbers(12, 4), _numbers(12)
    method = inference.BayesByBackprop(**({} if estimator is None else {"estimator": estimator}))
    posterior = bp.fit(model, (inputs, targets), method, epochs=2, batch_size=6, progress=False)
    after = posterior.mean_network()
    for name in model.fixed_names:
        torch.testing.assert_close(after.get_parameter(name), network.get_parameter(name), rtol=0, atol=0)
    down, up = posterior.mean("0.down"), posterior.mean("0.up")
    assert (up - network.get_parameter("0.up")).abs().min() > 0
    merged = network[0].frozen.weight + up @ down
    expected = network[2](torch.tanh(F.linear(inputs, merged, network[0].frozen.bias)))
    torch.testing.assert_close(after(inputs), expected)


@pytest.mark.parametrize("vectorised", [True, False])
def test_a_padding_row_stays_as_it_is(vectorised):
    """Whatever theta holds in its place: no noise, no gradient, not even a spread."""
    network = nn.Sequential(nn.Embedding(5, 3, padding_idx=1), nn.Flatten(), nn.Linear(6, 1)).double()
    nn.init.constant_(network[0].weight[1], 0.0)
    model = Model(network, likelihood=HALF)
    model.vectorised = vectorised
    theta, tokens = _theta(model, 2, 3).requires_grad_(), torch.tensor([[0, 1], [1, 1], [1, 4], [3, 2]])
    weights = model.weights(theta)["0.weight"]
    assert weights.shape == (2, 3, 5, 3)
    assert weights[:, :, 1].abs().max() == 0
    value = model.log_likelihood(theta, {}, _batch(tokens, _numbers(4), particles=2))
    (gradient,) = torch.autograd.grad(value.sum(), theta)
    table = gradient[..., :15].reshape(2, 3, 5, 3)
    assert table[:, :, 1].abs().max() == 0
    assert table[:, :, [0, 2, 3, 4]].abs().min() > 0
    expected = _reference(network, model, theta[1, 2].detach(), tokens)
    torch.testing.assert_close(model.outputs(theta.detach(), {}, tokens)[1, 2], expected)
    spread = model.hold_padding({"0.weight": torch.ones(5, 3).double()}, spread=True)["0.weight"]
    assert spread.sum(1).tolist() == [3.0, 0.0, 3.0, 3.0, 3.0]


def test_a_padding_row_that_is_a_weight_elsewhere_is_a_weight():
    """Embedding and output layer are one: the row has the gradient of the output layer, in lanes as alone."""

    class Language(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(5, 3, padding_idx=1), nn.Linear(3, 5)
            self.head.weight = self.embedding.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.tanh(self.embedding(x).mean(1)))

    model = Model(Language().double(), likelihood=likelihoods.Categorical())
    tokens, labels = torch.tensor([[0, 1], [1, 4], [3, 2]]), torch.tensor([0, 1, 4])
    model.probe(tokens, labels)
    assert model.layout.size == 5 * 3 + 5
    assert model.vmap_failure == "vmap trains the padding row of a tied embedding, embedding.weight"
    theta = _theta(model, 1, 2).requires_grad_()
    (together,) = torch.autograd.grad(model.log_likelihood(theta, {}, _batch(tokens, labels)).sum(), theta)
    for draw in range(2):
        network = Language().double()
        _reference(network, model, theta[0, draw].detach(), tokens)
        (-F.cross_entropy(network(tokens), labels, reduction="sum")).backward()
        assert network.embedding.weight.grad is not None
        table = together[0, draw, :15].reshape(5, 3)
        torch.testing.assert_close(table, network.embedding.weight.grad)
        assert table[1].abs().min() > 0


@pytest.mark.parametrize("parametrization", [parametrizations.weight_norm, parametrizations.orthogonal])
def test_what_a_weight_is_computed_from_is_random(parametrization):
    torch.manual_seed(0)
    network = nn.Sequential(parametrization(nn.Linear(3, 3)), nn.Tanh(), nn.Linear(3, 1)).double()
    model = Model(network, likelihood=HALF)
    names = [block.name for block in model.layout.blocks]
    assert "0.weight" not in names
    assert len([name for name in names if name.startswith("0.parametrizations.weight.original")]) in (1, 2)
    inputs = _numbers(5, 3)
    model.probe(inputs, None)
    theta = _theta(model, 1, 3)
    expected = _reference(network, model, theta[0, 2], inputs)
    torch.testing.assert_close(model.outputs(theta, model.initial_buffers(1), inputs)[0, 2], expected)


def test_parts_of_a_network_are_random_the_rest_is_estimated_or_fixed():
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    model = Model(network, likelihood=HALF, random="4.*", fixed="0.weight")
    assert {block.name: block.kind for block in model.layout.blocks} == {
        "4.weight": "random",
        "4.bias": "random",
        "0.bias": "point",
        "2.weight": "point",
        "2.bias": "point",
    }
    data = _numbers(16, 3, dtype=torch.float32), _numbers(16, dtype=torch.float32)
    posterior = bp.fit(model, data, epochs=2, batch_size=8, progress=False)
    drawn = posterior.sample(3)
    for name, tensor in drawn.items():
        spread = tensor.std(0).max()
        assert (spread > 0) == name.startswith("4."), name
    assert len(drawn) == 5
    after = posterior.mean_network()
    torch.testing.assert_close(after.get_parameter("0.weight"), network[0].weight, rtol=0, atol=0)
    assert (after.get_parameter("2.weight") - network[2].weight).abs().min() > 0
    assert {name: float(posterior.std(name).max()) for name in ("0.bias", "2.weight")} == {"0.bias": 0, "2.weight": 0}
