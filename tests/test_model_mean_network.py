"""What comes back out: an ordinary module with the posterior means, and draws for the user's own vmap."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from bayesprop import likelihoods, priors
from bayesprop.model import Model
from bayesprop.posteriors import DiagonalGaussian


def _numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _posterior(model: Model, particles: int = 1) -> DiagonalGaussian:
    """Some means and standard deviations, and batch statistics that are not those of a new network."""
    mean = 0.4 * _numbers(particles, model.layout.size, seed=3)
    std = torch.full((particles, model.layout.latent), 0.1)
    buffers = model.initial_buffers(particles)
    for name, buffer in buffers.items():
        if name.endswith("running_var"):
            buffer += torch.arange(particles * buffer.shape[1]).reshape(buffer.shape)
    return DiagonalGaussian(model, mean, std, buffers)


def _convolution() -> nn.Module:
    layers = nn.Conv1d(3, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(20, 2))


def _transformer() -> nn.Module:
    return nn.TransformerEncoderLayer(5, 1, 6, dropout=0.1, batch_first=True)


def _frozen() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(15, 4).requires_grad_(False), nn.Tanh(), nn.Linear(4, 1))


class Remembering(nn.Module):
    """Keeps what it computed, as networks do that show their attention."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.last = nn.Linear(5, 2), None

    def forward(self, x: Tensor) -> Tensor:
        self.last = self.linear(x)
        return self.last


NETWORKS = {"convolution": _convolution, "transformer": _transformer, "frozen": _frozen, "remembering": Remembering}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("hierarchical", [False, True])
def test_the_mean_network_predicts_as_the_posterior_does_at_its_mean(name, hierarchical):
    """For each particle; with a hierarchical prior at the mean of its scale, exp(m + s^2 / 2)."""
    network = NETWORKS[name]()
    prior = priors.Normal(scale=priors.HalfNormal(0.5, shared="network")) if hierarchical else priors.Normal()
    model = Model(network, likelihood=likelihoods.Gaussian(), prior=prior)
    inputs = _numbers(4, 3, 5)
    model.probe(inputs, None)
    posterior = _posterior(model, particles=2)
    (_, outputs, _), *more = list(posterior.at_mean().outputs(inputs, 1)())
    assert not more
    for particle in range(2):
        mean = posterior.mean_network(particle)
        assert type(mean) is type(network)
        assert not any(module.training for module in mean.modules())
        torch.testing.assert_close(mean(inputs), outputs[particle], rtol=1e-4, atol=1e-5)
        assert list(mean.state_dict()) == list(network.state_dict())
        assert [p.requires_grad for p in mean.parameters()] == [p.requires_grad for p in network.parameters()]
        for fixed in model.fixed_names:
            torch.testing.assert_close(mean.get_parameter(fixed), network.get_parameter(fixed), rtol=0, atol=0)
        block, centre = model.layout.of_kind("random")[0], posterior.moments()[0][particle]
        scale = (centre[model.layout.random] + 0.1**2 / 2).exp() if hierarchical else 1.0
        expected = scale * centre[block.columns].reshape(block.shape)
        torch.testing.assert_close(mean.get_parameter(block.name).detach(), expected)


@pytest.mark.parametrize("name", ["convolution", "transformer", "frozen"])
def test_the_mean_network_exports(name):
    model = Model(NETWORKS[name](), likelihood=likelihoods.Gaussian())
    posterior, inputs = _posterior(model), _numbers(4, 3, 5)
    mean = posterior.mean_network()
    program = torch.export.export(mean, (inputs,))
    torch.testing.assert_close(program.module()(inputs), mean(inputs))
    model.set_mode(False)
    expected = model.outputs(posterior.moments()[0][:, None], posterior.buffers, inputs)[0, 0]
    torch.testing.assert_close(program.module()(inputs), expected, rtol=1e-4, atol=1e-5)


def test_the_mean_network_is_nobody_elses():
    """Training it on is the user's business: neither the posterior nor another mean network moves."""
    model = Model(_convolution(), likelihood=likelihoods.Gaussian(scale=0.5))
    posterior, inputs = _posterior(model), _numbers(4, 3, 5)
    first, second = posterior.mean_network(), posterior.mean_network()
    before = second(inputs)
    first.train()(inputs).sum().backward()
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.add_(1.0)
    torch.testing.assert_close(second(inputs), before, rtol=0, atol=0)
    torch.testing.assert_close(posterior.mean_network()(inputs), before, rtol=0, atol=0)
    assert all(parameter.grad is None for parameter in model.network.parameters())


def test_draws_go_through_the_users_own_vmap():
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))
    model = Model(network, likelihood=likelihoods.Gaussian(scale=0.5))
    inputs = _numbers(5, 3)
    model.probe(inputs, None)
    posterior = _posterior(model)
    weights = posterior.sample(6, seed=2)
    buffers = {name: buffer[0] for name, buffer in posterior.buffers.items()}
    outputs = torch.func.vmap(lambda w: model.forward(w, buffers, inputs))(weights)
    assert outputs.shape == (6, 5, 2)
    mean = posterior.mean_network()
    for draw in range(6):
        alone = torch.func.functional_call(mean, {name: weight[draw] for name, weight in weights.items()}, (inputs,))
        torch.testing.assert_close(outputs[draw], alone)
    assert (outputs[0] - outputs[1]).abs().max() > 0
