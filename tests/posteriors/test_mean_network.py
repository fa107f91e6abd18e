"""Deterministic mode: the posterior at its mean, as a posterior and as an ordinary network."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop.errors import ConfigurationError
from bayesprop.posteriors import Delta

from .conftest import MODELS


@pytest.mark.parametrize("name", list(MODELS))
def test_weights_and_scales_have_their_means(model, gaussian, name):
    posterior = gaussian(model(name), 2)
    posterior.context.num_data = 77
    centre = posterior.at_mean()
    assert isinstance(centre, Delta)
    assert centre.particles == 2
    assert centre.context.num_data == 77
    blocks = posterior.model.layout.blocks
    assert len(blocks) >= 2
    for block in blocks:
        assert_close(centre.mean(block.name), posterior.mean(block.name), rtol=1e-12, atol=1e-14)
        assert torch.count_nonzero(centre.std(block.name)) == 0


@pytest.mark.parametrize("name", list(MODELS))
def test_the_mean_network_is_the_posterior_at_its_mean(model, gaussian, rows, name):
    posterior, inputs = gaussian(model(name), 2), rows(name)
    for particle in (0, 1):
        network = posterior.mean_network(particle)
        parameters = dict(network.named_parameters())
        assert parameters
        blocks = [b for b in posterior.model.layout.blocks if b.kind != "latent"]
        assert {block.name for block in blocks} | set(posterior.model.fixed_names) == parameters.keys()
        for block in blocks:
            assert_close(parameters[block.name].detach(), posterior.mean(block.name)[particle], rtol=1e-12, atol=1e-14)
        expected = posterior.at_mean().member(particle).predict(inputs, 1).mean
        assert_close(network(inputs).detach(), expected, rtol=1e-12, atol=1e-14)


def test_it_is_a_copy_in_evaluation_mode(model, gaussian, network):
    mine = network("noise")
    made = bp.Model(mine, likelihood=bp.likelihoods.Gaussian(0.5))
    posterior = gaussian(made)
    before = copy.deepcopy(mine.state_dict())
    found = posterior.mean_network()
    assert type(found) is type(mine)
    assert not any(module.training for module in found.modules())
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.zero_()
    assert mine.training
    assert_close(mine.state_dict(), before, rtol=0.0, atol=0.0)
    assert torch.count_nonzero(posterior.mean("0.weight")) == 12
    assert torch.count_nonzero(posterior.mean_network()[0].weight) == 12


def test_buffers_are_those_of_the_particle(model, gaussian, rows):
    posterior = gaussian(model("noise"), 2)
    posterior.buffers["1.running_mean"][1] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    posterior.buffers["1.num_batches_tracked"][1] = 9
    first, second = posterior.mean_network(0), posterior.mean_network(1)
    assert_close(first[1].running_mean, torch.zeros(4).double(), rtol=0.0, atol=0.0)
    assert_close(second[1].running_mean, torch.tensor([1.0, 2.0, 3.0, 4.0]).double(), rtol=0.0, atol=0.0)
    assert second[1].num_batches_tracked == 9
    assert_close(second(rows("noise")).detach(), posterior.member(1).at_mean().predict(rows("noise"), 1).mean)


def test_ties_stay(model, gaussian):
    network = gaussian(model("words")).mean_network()
    assert network.head.weight is network.again.weight


@pytest.mark.parametrize("particle", [2, -1])
def test_a_particle_that_does_not_exist_is_refused(model, gaussian, particle):
    posterior = gaussian(model("plain"), 2)
    for call in (posterior.mean_network, posterior.member):
        with pytest.raises(ConfigurationError, match="this posterior has no such particle") as caught:
            call(particle)
        assert f"received: {particle}" in str(caught.value)
        assert "expected: 0 to 1" in str(caught.value)


@pytest.mark.parametrize("name", ["noise", "words"])
def test_it_can_be_exported(model, gaussian, rows, name):
    posterior, inputs = gaussian(model(name)), rows(name)
    network = posterior.mean_network()
    program = torch.export.export(network, (inputs,), strict=False)
    assert_close(program.module()(inputs), network(inputs), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda n: pickle.loads(pickle.dumps(n))], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("name", ["noise", "words"])
def test_it_can_be_copied_and_pickled_also_after_a_forward_pass(model, gaussian, rows, name, again):
    network, inputs = gaussian(model(name)).mean_network(), rows(name)
    expected = network(inputs)
    expected.sum().backward()
    twin = again(network)
    assert_close(twin(inputs), expected, rtol=0.0, atol=0.0)
    assert_close(twin.state_dict(), network.state_dict(), rtol=0.0, atol=0.0)
    assert next(twin.parameters()) is not next(network.parameters())


def test_one_row_of_theta_as_a_network(model, gaussian, rows):
    posterior, inputs = gaussian(model("scales"), 2), rows("scales")
    theta = posterior.draw(posterior.rng(0), 3)
    outputs = torch.cat([outputs for _, outputs, _ in posterior.outputs(inputs, 3)()], dim=1)
    assert outputs.shape == (6, 6, 2)
    for particle in (0, 1):
        for draw in range(3):
            network = posterior.network_with(theta[particle, draw], particle)
            assert_close(network(inputs).detach(), outputs[3 * particle + draw], rtol=1e-12, atol=1e-14)


def test_a_module_at_the_root(gaussian):
    posterior = gaussian(bp.Model(nn.Linear(2, 1), likelihood=bp.likelihoods.Gaussian(0.5)))
    network = posterior.mean_network()
    assert isinstance(network, nn.Linear)
    assert_close(network.weight.detach(), posterior.mean("weight"), rtol=0.0, atol=0.0)
