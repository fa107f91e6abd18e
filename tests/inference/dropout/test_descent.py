"""What the dropout family shares: gradients, warm-up, clipping, rates for each particle."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from bayesprop.errors import ConfigurationError
from bayesprop.inference import SGD, Constant, MCDropout
from bayesprop.model import Place
from bayesprop.rng import Rng
from bayesprop.testing import LinearRegression

from ..conftest import normal


def test_gradients_are_those_of_the_loss_with_the_same_masks():
    """Finite differences in float64: the counter gives the same masks at every place."""
    problem, method, rng = LinearRegression(), MCDropout(rate=0.3, samples=2), Rng.create(5).at(3)
    state = method.init(problem.model, rng)
    state.mean = normal(1, 4)
    batch = problem.batch(1, slice(0, 8))

    def loss(mean):
        value = method.log_likelihood(problem.model, mean, state.strength, state.buffers, batch, rng)
        return 0.5 * method.penalty(problem.model, mean, state.strength) / batch.num_data - value / batch.rows

    found = method.gradients(problem.model, state, batch, rng, 0.5)[1]["mean"]
    step = 1e-6 * torch.eye(4, dtype=torch.float64)
    differences = torch.cat([loss(state.mean + d) - loss(state.mean - d) for d in step]) / 2e-6
    assert_close(found[0], differences, rtol=1e-6, atol=1e-8)


def test_the_penalty_comes_in_over_the_warmup():
    method = MCDropout(0.1, rate=0.1, warmup=0.5, temperature=2.0, schedule=Constant(), strength_learning_rate=0.01)
    numbers = [method.numbers(Place(progress=p), 0) for p in (0.0, 0.25, 0.5, 1.0)]
    assert numbers == [(0.1, 0.01, weight) for weight in (0.0, 1.0, 2.0, 2.0)]


def test_clipping_shortens_a_step():
    problem = LinearRegression()
    method = MCDropout(1.0, rate=0.1, optimizer=SGD(), clip_norm=0.01, schedule=Constant())
    state = method.init(problem.model, Rng.create(0))
    before = state.mean.clone()
    state, info = method.update(problem.model, state, problem.batch(), Rng.create(0))
    assert_close((state.mean - before).norm(), torch.tensor(0.01, dtype=torch.float64))
    assert float(info.gradient_norm) > 0.01


def test_a_tensor_holds_a_number_for_each_particle():
    method = MCDropout(torch.tensor([0.1, 0.2, 0.3]), rate=0.1)
    with pytest.raises(ConfigurationError, match="learning_rate: a tensor holds one number for each particle"):
        method.init(LinearRegression().model, Rng.create(0, 2))
    assert method.init(LinearRegression().model, Rng.create(0, 3)).mean.shape == (3, 4)
