"""The state that a network keeps, one for each particle, and the dice that it throws."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.model import Batch, Model

HALF = likelihoods.Gaussian(scale=0.5)


def _numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def _batch(inputs: Tensor, particles: int = 1) -> Batch:
    targets = _numbers(particles, inputs.shape[-2])
    wide = inputs if inputs.dim() == 3 else inputs.expand(particles, *inputs.shape)
    return Batch(wide, targets, num_data=targets.shape[1])


def _theta(model: Model, particles: int = 1, draws: int = 1) -> Tensor:
    return 0.4 * _numbers(particles, draws, model.layout.size, seed=3, dtype=model.dtype)


def _trained(network: nn.Module, model: Model, row: Tensor, inputs: Tensor) -> dict[str, Tensor]:
    """Buffers of a copy of the network after one pass in the model's mode, with the weights of a row."""
    alone, named = copy.deepcopy(network).train(model.network.training), model.weights(row)
    with torch.no_grad():
        for name, parameter in alone.named_parameters():
            parameter.copy_(named[name])
        alone(inputs)
    return dict(alone.named_buffers())


# -- buffers ----------------------------------------------------------------------------------------------------------


class Shared(nn.Module):
    """Two normalisations with one running mean, and one of them under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.linear = nn.BatchNorm1d(2), nn.BatchNorm1d(2), nn.Linear(2, 1)
        self.second.register_buffer("running_mean", self.first.running_mean)
        self.again = self.second

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(torch.tanh(self.again(torch.tanh(self.second(self.first(x))))))


class Replaced(nn.Module):
    """Buffers that are assigned anew in each training pass, and not written into."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)
        self.register_buffer("average", torch.zeros(2))
        self.register_buffer("passes", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.average = 0.9 * self.average + 0.1 * self.linear(x).mean(0)
            self.passes = self.passes + 1
        return self.linear(x - self.average)


def _normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, momentum=0.3), nn.Tanh(), nn.Linear(3, 1))


@pytest.mark.parametrize("make", [_normalised, Shared, Replaced], ids=["batch norm", "shared", "replaced"])
@pytest.mark.parametrize("vectorised", [True, False], ids=["vmap", "loop"])
def test_each_particle_keeps_the_state_that_it_would_keep_alone(make, vectorised):
    """Two particles with rows of their own against two networks in training mode; then again from where they are."""
    torch.manual_seed(0)
    network = make().double()
    model = Model(network, likelihood=HALF)
    model.vectorised = vectorised
    model.set_mode(True)
    theta, buffers = _theta(model, 2), model.initial_buffers(2)
    assert list(buffers) == [name for name, _ in network.named_buffers()]
    state = [copy.deepcopy(network), copy.deepcopy(network)]
    for step in range(2):
        inputs = 2 + _numbers(2, 6, 2, seed=step)
        value = model.log_likelihood(theta.requires_grad_(), buffers, _batch(inputs, 2))
        value.sum().backward()
        for particle in range(2):
            expected = _trained(state[particle], model, theta[particle, 0].detach(), inputs[particle])
            state[particle].load_state_dict(expected, strict=False)
            for name, buffer in expected.items():
                torch.testing.assert_close(buffers[name][particle].to(buffer.dtype), buffer)
    moved = next(iter(buffers.values()))
    assert (moved[0] - moved[1]).abs().max() > 0
    for name, buffer in model.network.named_buffers():
        torch.testing.assert_close(buffer, network.get_buffer(name), rtol=0, atol=0)
    assert not any(buffer.requires_grad for buffer in buffers.values())


def test_draws_of_one_particle_leave_their_mean():
    network = _normalised().double()
    model = Model(network, likelihood=HALF)
    model.set_mode(True)
    theta, buffers, inputs = _theta(model, 1, 3), model.initial_buffers(1), 2 + _numbers(6, 2)
    model.log_likelihood(theta, buffers, _batch(inputs))
    alone = [_trained(network, model, theta[0, draw], inputs) for draw in range(3)]
    for name in ("1.running_mean", "1.running_var"):
        expected = torch.stack([found[name] for found in alone]).mean(0)
        torch.testing.assert_close(buffers[name][0], expected)
    assert buffers["1.num_batches_tracked"].tolist() == [1]


def test_batch_statistics_that_arrive_in_evaluation_mode_stay_there():
    network = _normalised()
    network[1].eval()
    network[1].running_mean += 1.0
    model = Model(network, likelihood=HALF)
    inputs = _numbers(16, 2, dtype=torch.float32)
    posterior = bp.fit(model, (inputs, _numbers(16, dtype=torch.float32)), epochs=2, batch_size=8, progress=False)
    for name, buffer in network.named_buffers():
        torch.testing.assert_close(posterior.buffers[name][0], buffer, rtol=0, atol=0)
    model.set_mode(False)
    model.set_mode(True)
    modes = [module.training for module in model.network.children()]
    assert modes == [True, False, True, True]
    theta = _theta(model)
    outputs = model.outputs(theta, model.initial_buffers(1), inputs)[0, 0]
    one = model.outputs(theta, model.initial_buffers(1), inputs[:1])[0, 0]
    torch.testing.assert_close(outputs[:1], one)  # a row does not depend on the others


def test_a_network_that_arrives_in_evaluation_mode_as_a_whole_is_trained():
    network = _normalised().eval()
    model = Model(network, likelihood=HALF)
    model.set_mode(True)
    assert all(module.training for module in model.network.modules())
    assert not network.training


@pytest.mark.parametrize("draws", [1, 3])
def test_a_network_that_writes_while_it_predicts_writes_into_copies(draws):
    """It would otherwise write into the posterior, or into one place for all draws, which torch refuses."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 1)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return self.linear(x) + self.calls

    model = Model(Counting().double(), likelihood=HALF)
    inputs = _numbers(5, 2)
    model.probe(inputs, None)
    theta, buffers = _theta(model, 2, draws), model.initial_buffers(2)
    first, second = (model.outputs(theta, buffers, inputs) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert buffers["calls"].tolist() == [0.0, 0.0]
    assert model.buffers["calls"] == 0.0


def test_buffers_that_are_only_read_are_not_copied_for_each_draw():
    """A table of a million numbers and a thousand draws would be gigabytes."""
    network = nn.Linear(2, 1)
    network.register_buffer("table", torch.zeros(1000))
    model = Model(network, likelihood=HALF)
    model.set_mode(False)
    spread = model.spread_buffers(model.initial_buffers(2), 7)["table"]
    assert spread.shape == (2, 7, 1000)
    assert spread.stride(1) == 0
    model.set_mode(True)
    assert model.spread_buffers(model.initial_buffers(2), 7)["table"].stride(1) == 1000


@pytest.mark.parametrize("new", [None, torch.ones(5)])
def test_a_cache_that_is_thrown_away_or_grows_is_made_again(new):
    class Caching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 1)
            self.register_buffer("cache", torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            answer = self.linear(x + self.cache)
            self.cache = new
            return answer

    model = Model(Caching().double(), likelihood=HALF)
    inputs = _numbers(5, 2)
    model.probe(inputs, None)
    model.set_mode(True)
    buffers = model.initial_buffers(2)
    first, second = (model.log_likelihood(_theta(model, 2), buffers, _batch(inputs, 2)) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert buffers["cache"].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    torch.testing.assert_close(model.network.get_buffer("cache"), torch.zeros(2, dtype=torch.float64))


# -- dice -------------------------------------------------------------------------------------------------------------


def test_dropout_draws_from_a_generator_of_ours():
    """The same fit whatever state the user's generator is in, which is left as it was; each lane has its own mask."""
    network = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 1))
    data = _numbers(16, 3, dtype=torch.float32), _numbers(16, dtype=torch.float32)
    means = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        model = Model(network, likelihood=HALF)
        posterior = bp.fit(model, data, epochs=2, batch_size=8, seed=3, progress=False)
        torch.testing.assert_close(torch.get_rng_state(), before, rtol=0, atol=0)
        means.append(posterior.mean())
        assert model.draws_globally
    torch.testing.assert_close(means[0], means[1], rtol=0, atol=0)
    other = bp.fit(Model(network, likelihood=HALF), data, epochs=2, batch_size=8, seed=4, progress=False)
    assert (other.mean() - means[0]).abs().max() > 0

    model = Model(network, likelihood=HALF)
    model.set_mode(True)
    theta = _theta(model).expand(2, 3, -1)
    outputs = model.outputs(theta, {}, data[0]).flatten(0, 1)
    assert all((outputs[i] - outputs[j]).abs().max() > 0 for i in range(6) for j in range(i))
    model.set_mode(False)
    outputs = model.outputs(theta, {}, data[0])
    torch.testing.assert_close(outputs, outputs[:1, :1].expand_as(outputs), rtol=0, atol=0)


def test_dice_that_are_thrown_when_predicting_are_ours_too():
    """Dropout that is always on: predictions are a function of the seed, and not of the user's generator."""

    class Always(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x) if self.training else self.linear(F.dropout(x, 0.5, training=True))

    data = _numbers(16, 3, dtype=torch.float32), _numbers(16, dtype=torch.float32)
    model = Model(Always(), likelihood=HALF)
    posterior = bp.fit(model, data, epochs=1, progress=False)
    assert model.draws_globally
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        found.append(posterior.predict(data[0], draws=4, seed=7).mean)
        torch.testing.assert_close(torch.get_rng_state(), before, rtol=0, atol=0)
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
