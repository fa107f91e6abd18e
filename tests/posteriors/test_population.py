"""Several particles: a mixture for those who predict, one after the other for those who look."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from bayesprop.posteriors import Delta

from .conftest import MODELS


@pytest.mark.parametrize("name", list(MODELS))
def test_a_member_is_the_posterior_of_one_particle(model, gaussian, rows, name):
    posterior = gaussian(model(name), 3)
    assert posterior.particles == 3
    for particle in range(3):
        member = posterior.member(particle)
        assert type(member) is type(posterior)
        assert member.particles == 1
        for block in posterior.model.layout.blocks:
            assert_close(member.mean(block.name), posterior.mean(block.name)[particle], rtol=0.0, atol=0.0)
            assert_close(member.std(block.name), posterior.std(block.name)[particle], rtol=0.0, atol=0.0)
        assert member.buffers.keys() == posterior.buffers.keys()
        assert all(member.buffers[n].shape == (1, *b.shape[1:]) for n, b in posterior.buffers.items())
    # The first particle keeps the seed, so that its draws are those that it has alone.
    together = next(iter(posterior.outputs(rows(name), 4)()))[1]
    alone = next(iter(posterior.member(0).outputs(rows(name), 4)()))[1]
    assert_close(alone, together[:4], rtol=1e-12, atol=1e-13)


def test_a_member_has_a_context_of_its_own(model, gaussian):
    posterior = gaussian(model("plain"), 2)
    posterior.context.num_data = 5
    member = posterior.member(1)
    member.context.num_data = 6
    assert posterior.context.num_data == 5


def test_it_predicts_as_an_equally_weighted_mixture(model, gaussian, rows):
    """All draws of all particles, and every particle as often as the others."""
    posterior, inputs = gaussian(model("noise"), 3), rows("noise")
    prediction = posterior.predict(inputs, draws=100)
    assert prediction.num_draws == 102  # the next multiple of 3
    draws = prediction.draws.reshape(3, 34, 6, 2)
    theta = posterior.draw(posterior.rng(0), 34)
    for particle in range(3):
        for draw in (0, 33):
            network = posterior.network_with(theta[particle, draw], particle)
            assert_close(network(inputs).detach(), draws[particle, draw], rtol=1e-12, atol=1e-13)
    assert_close(prediction.mean, draws.mean(1).mean(0), rtol=1e-12, atol=1e-13)
    within, between = draws.var(1, correction=0).mean(0), draws.mean(1).var(0, correction=0)
    assert_close(prediction.epistemic, within + between, rtol=1e-10, atol=0.0)


def test_density_of_a_mixture_is_the_mean_density(model, gaussian, rows):
    inputs, targets = rows("plain"), torch.zeros(6, 2, dtype=torch.float64)
    posterior = gaussian(model("plain"), 3).at_mean()
    assert isinstance(posterior, Delta)
    together = posterior.predict(inputs, 3).log_prob(targets)
    apart = torch.stack([posterior.member(p).predict(inputs, 1).log_prob(targets) for p in range(3)])
    assert_close(together, apart.exp().mean(0).log(), rtol=1e-12, atol=0.0)


@pytest.mark.statistical
def test_particles_do_not_share_noise(model, gaussian):
    posterior = gaussian(model("plain"), 2)
    mean, std = posterior.moments()
    noise = (posterior.draw(posterior.rng(0), 500) - mean[:, None]) / std[:, None]
    products = (noise[0] * noise[1]).mean(0)
    # Shared noise would give 1, with independent noise the standard error is 1 / sqrt(500): half is 11 errors away.
    assert (products.abs() < 0.5).all()


def test_divergence_is_one_number_a_particle(model, gaussian):
    for name in ("noise", "scales"):
        posterior = gaussian(model(name), 3)
        assert posterior.kl(8).shape == posterior.entropy().shape == (3,)
    posterior = gaussian(model("noise"), 3)
    apart = torch.cat([posterior.member(p).kl() for p in range(3)])
    assert_close(posterior.kl(), apart, rtol=1e-12, atol=0.0)
