"""Statistics of BatchNorm for given weights: those that a direct computation over all batches gives."""

from __future__ import annotations

import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.inference.averaging.batch_statistics import normalising, renewed
from bayesprop.model import Batch
from bayesprop.rng import Rng

from ..conftest import normal


def problem(*layers: nn.Module) -> bp.Model:
    network = nn.Sequential(nn.Linear(3, 4), *layers, nn.Linear(4, 1)).double()
    return bp.Model(network, likelihood=likelihoods.Gaussian(0.5))


def batches(particles: int):
    """Three batches of five rows, the same for all particles."""
    for part in range(3):
        inputs, targets = normal(5, 3, seed=part), normal(5, 1, seed=9 + part)
        yield Batch(inputs.expand(particles, 5, 3), targets.expand(particles, 5, 1), 15)


def test_they_are_plain_means_over_the_batches():
    model = problem(nn.BatchNorm1d(4, momentum=0.3), nn.Tanh())
    theta = normal(2, 3, model.layout.size)
    before = model.initial_buffers(2)
    found = renewed(model, theta, before, lambda: batches(2), Rng.create(0, 2))
    for particle in range(2):
        for row in range(3):
            named = model.layout.unflatten(theta[particle, row])
            hidden = [batch.inputs[0] @ named["0.weight"].T + named["0.bias"] for batch in batches(1)]
            mean = torch.stack([h.mean(0) for h in hidden]).mean(0)
            variance = torch.stack([h.var(0) for h in hidden]).mean(0)
            assert_close(found["1.running_mean"][particle, row], mean, rtol=1e-12, atol=1e-12)
            assert_close(found["1.running_var"][particle, row], variance, rtol=1e-12, atol=1e-12)
    assert found["1.num_batches_tracked"].tolist() == [[3] * 3] * 2
    assert_close(before["1.running_mean"], torch.zeros(2, 4).double(), rtol=0.0, atol=0.0)
    assert model.network[1].momentum == 0.3  # type: ignore[union-attr]


def test_networks_with_their_own_noise_leave_the_generator_alone():
    model = problem(nn.BatchNorm1d(4), nn.Dropout(0.5))
    model.probe(normal(5, 3), None)
    assert model.draws_globally
    theta, before = normal(1, 2, model.layout.size), torch.get_rng_state()
    first, again = (
        renewed(model, theta, model.initial_buffers(1), lambda: batches(1), Rng.create(0)) for _ in range(2)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert_close(first, again, rtol=0.0, atol=0.0)


def test_which_modules_keep_averages():
    assert len(normalising(problem(nn.BatchNorm1d(4), nn.Tanh()))) == 1
    assert normalising(problem(nn.BatchNorm1d(4, track_running_stats=False))) == []
    assert normalising(problem(nn.LayerNorm(4))) == []
    assert normalising(problem(nn.BatchNorm1d(4).eval())) == []
