"""What is the user's stays the user's; copies, number types, and the ordinary network that comes back out."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

import bayesprop as bp
from bayesprop import inference, likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.model import Batch, Model
from bayesprop.random_weights import Flipout

HALF = likelihoods.Gaussian(scale=0.5)


def _numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


class Everything(nn.Module):
    """An embedding, batch statistics, dropout, a frozen layer; it remembers what it computed."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(6, 4, padding_idx=0, sparse=True)
        self.norm, self.dropout = nn.BatchNorm1d(4), nn.Dropout(0.3)
        self.trunk, self.head = nn.Linear(4, 4), nn.Linear(4, 1)
        self.trunk.requires_grad_(False)
        self.hidden: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.hidden = torch.tanh(self.trunk(self.norm(self.embedding(x).mean(1))))
        return self.head(self.dropout(self.hidden))


def _network() -> Everything:
    torch.manual_seed(0)  # initial weights of the test network
    return Everything()


TOKENS, TARGETS = torch.arange(24).reshape(8, 3) % 6, _numbers(8)


def _batch(inputs: Any, targets: Tensor, particles: int = 1) -> Batch:
    wide = inputs.expand(particles, *inputs.shape), targets.expand(particles, *targets.shape)
    return Batch(*wide, num_data=targets.shape[0])


def _theta(model: Model, particles: int = 1, draws: int = 1) -> Tensor:
    return 0.4 * _numbers(particles, draws, model.layout.size, seed=3, dtype=model.dtype)


# -- the user's own network -------------------------------------------------------------------------------------------


def _snapshot(network: nn.Module) -> dict[str, Any]:
    """Everything of a network that somebody could change: values and objects."""
    tensors = dict(network.state_dict(keep_vars=True))
    modules = list(network.modules())
    return {
        "objects": {name: id(tensor) for name, tensor in tensors.items()},
        "values": {name: tensor.detach().clone() for name, tensor in tensors.items()},
        "versions": {name: tensor._version for name, tensor in tensors.items()},
        "gradients": {name: None if t.grad is None else t.grad.clone() for name, t in tensors.items()},
        "trainable": {name: tensor.requires_grad for name, tensor in tensors.items()},
        "modes": [module.training for module in modules],
        "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks)) for m in modules],
        "sparse": [module.sparse for module in modules if isinstance(module, nn.Embedding)],
    }


@pytest.mark.parametrize("method", [inference.BayesByBackprop(), inference.BayesByBackprop(estimator=Flipout())])
def test_the_users_network_is_never_touched(method):
    network = _network()
    network.norm.eval()
    network.head.register_forward_hook(lambda module, inputs, output: None)
    (network.head.weight.sum() ** 2).backward()
    before, state = _snapshot(network), torch.get_rng_state()
    assert len(before["values"]) == 10
    model = Model(network, likelihood=HALF)
    model.describe(method, TOKENS)
    posterior = bp.fit(model, (TOKENS, TARGETS), method, epochs=2, batch_size=4, progress=False)
    posterior.predict(TOKENS, draws=3).mean.sum()
    posterior.mean_network()(TOKENS)
    after = _snapshot(network)
    assert {key: before[key] for key in before if key not in ("values", "gradients")} == {
        key: after[key] for key in after if key not in ("values", "gradients")
    }
    for key in ("values", "gradients"):
        torch.testing.assert_close(after[key], before[key], rtol=0, atol=0)
    assert network.hidden is None
    torch.testing.assert_close(torch.get_rng_state(), state, rtol=0, atol=0)


def test_no_parameter_is_registered_twice_and_none_is_added():
    network = _network()
    model = Model(network, likelihood=HALF)
    assert model.network is not network
    assert list(model.network.state_dict()) == list(network.state_dict())
    mine, theirs = ({id(p) for p in one.parameters()} for one in (model.network, network))
    assert len(mine) == len(theirs) == 7
    assert mine.isdisjoint(theirs)
    assert model.layout.size == sum(p.numel() for p in network.parameters() if p.requires_grad)


def test_the_models_network_has_its_own_weights_back_after_a_pass():
    """Also where one module stands under two names, whose tensors torch would leave exchanged under the second."""

    class Siamese(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left = nn.Linear(2, 2)
            self.right = self.left
            self.norm = nn.BatchNorm1d(2)
            self.again = self.norm

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(self.left(x)) - self.again(self.right(x.flip(1)))

    model = Model(Siamese(), likelihood=HALF)
    before = {name: id(tensor) for name, tensor in model.network.state_dict(keep_vars=True).items()}
    model.probe(_numbers(4, 2), None)
    model.set_mode(True)
    model.log_likelihood(_theta(model, 1, 3), model.initial_buffers(1), _batch(_numbers(4, 2), _numbers(4, 2)))
    after = model.network.state_dict(keep_vars=True)
    assert {name: id(tensor) for name, tensor in after.items()} == before
    assert all(isinstance(p, nn.Parameter) for p in model.network.parameters())
    copy.deepcopy(model.network)


# -- copies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("draws", [1, 3])
def test_a_model_can_be_copied_after_a_pass(draws):
    """Draws leave tensors from inside of vmap in the network's memory; the copy computes the same, by itself."""
    model = Model(_network(), likelihood=likelihoods.Gaussian(), prior=priors.Normal(scale=priors.HalfNormal(0.5)))
    model.probe(TOKENS, TARGETS)
    model.plan(Flipout())
    theta = _theta(model, 1, draws).requires_grad_()
    batch, buffers = _batch(TOKENS, TARGETS), model.initial_buffers(1)
    value = model.log_joint(theta, buffers, batch)
    twin = copy.deepcopy(model)
    assert type(twin) is Model
    assert twin.network is not model.network
    assert {id(p) for p in twin.network.parameters()}.isdisjoint({id(p) for p in model.network.parameters()})
    torch.testing.assert_close(twin.log_joint(theta, buffers, batch), value, rtol=0, atol=0)
    assert twin.plan(Flipout()) == model.plan(Flipout())
    twin.set_mode(True)
    assert (twin.network.training, model.network.training) == (True, False)
    # Both in one container stay one: the copy keeps who shares with whom.
    first, second = copy.deepcopy([model, model])
    assert first is second


def test_modules_that_stay_in_evaluation_mode_do_so_in_copies():
    network = _network()
    network.norm.eval()
    model = Model(network, likelihood=HALF)
    for one in (model, copy.deepcopy(model), model.to("meta")):
        assert isinstance(one.network, Everything)
        one.set_mode(False)
        one.set_mode(True)
        assert [one.network.training, one.network.dropout.training, one.network.norm.training] == [True, True, False]


def test_a_network_that_remembers_its_last_pass_is_taken():
    network = _network()
    network(TOKENS).sum().backward()
    assert network.hidden is not None
    model = Model(network, likelihood=HALF)
    assert isinstance(model.network, Everything)
    assert model.network.hidden is not None
    torch.testing.assert_close(model.network.hidden, network.hidden.detach(), rtol=0, atol=0)
    assert not model.network.hidden.requires_grad
    assert network.hidden.requires_grad
    pruned = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    prune.l1_unstructured(pruned[0], "weight", 0.5)  # a hook computes the weight from weight_orig and a mask
    model = Model(pruned, likelihood=HALF)
    assert [block.name for block in model.layout.blocks] == ["0.bias", "0.weight_orig", "2.weight", "2.bias"]
    assert list(model.buffers) == ["0.weight_mask"]
    theta, inputs = _theta(model, 1, 2), _numbers(5, 3)
    mask, named = model.buffers["0.weight_mask"], model.weights(theta)
    hidden = torch.tanh(inputs @ (named["0.weight_orig"][0, 1] * mask).T + named["0.bias"][0, 1])
    expected = hidden @ named["2.weight"][0, 1].T + named["2.bias"][0, 1]
    torch.testing.assert_close(model.outputs(theta, model.initial_buffers(1), inputs)[0, 1], expected)


def test_a_network_that_cannot_be_copied_is_refused():
    network = nn.Linear(2, 1)
    network.stream = (number for number in range(3))  # type: ignore[assignment]
    with pytest.raises(ConfigurationError, match="the network cannot be copied: cannot pickle 'generator' object") as e:
        Model(network, likelihood=HALF)
    assert "write: Model(copyable_network, ...)" in str(e.value)


def test_the_same_device_is_the_same_model():
    model = Model(_network(), likelihood=HALF)
    assert model.to("cpu") is model
    moved = model.to("meta")
    assert {tensor.device.type for tensor in (*moved.network.parameters(), *moved.buffers.values())} == {"meta"}
    assert {tensor.device.type for tensor in (*model.network.parameters(), *model.buffers.values())} == {"cpu"}
    assert moved.layout is model.layout
