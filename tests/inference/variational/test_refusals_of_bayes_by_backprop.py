"""What Bayes by Backprop refuses, in which words, and what it says that it will need."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.inference import BayesByBackprop
from bayesprop.random_weights import SharedWeights
from bayesprop.rng import Rng

from ..conftest import Problem, method_with, normal, small_network

FAULTS = {
    "learning_rate": [0.0, -1.0, math.nan, torch.tensor([0.1, 0.0])],
    "scale_learning_rate": [0.0, torch.tensor([0.1, -1.0])],
    "initial_scale": [0.0, -0.1],
    "clip_norm": [0.0, -1.0],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in FAULTS.items() for value in values])
def test_what_must_be_positive(name, value):
    with pytest.raises(ConfigurationError, match=f"{name} must be positive, got ") as caught:
        BayesByBackprop(**{name: value})
    assert str(value) in str(caught.value)
    assert "write: BayesByBackprop(" in str(caught.value)


@pytest.mark.parametrize("temperature", [-0.1, math.nan, torch.tensor([1.0, -2.0])])
def test_a_temperature_is_not_negative(temperature):
    with pytest.raises(ConfigurationError, match="temperature must not be negative, got "):
        BayesByBackprop(temperature=temperature)
    assert BayesByBackprop(temperature=0.0).temperature == 0.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kl": "exact"}, 'kl must be "auto", "closed_form" or "monte_carlo", got \'exact\''),
        (
            {"kl": "closed_form", "stick_the_landing": True},
            'stick_the_landing samples the KL: use it with kl="monte_carlo"',
        ),
        ({"initial_rho": -3.0, "initial_scale": 0.31}, "initial_rho and initial_scale say the same thing"),
        ({"optimizer": "adan"}, "no optimiser is called 'adan'"),
        ({"kl_weights": "blundell"}, "no KL schedule is called 'blundell'"),
    ],
)
def test_settings_that_cannot_work(settings, message):
    with pytest.raises(ConfigurationError) as caught:
        BayesByBackprop(**settings)
    assert message in str(caught.value)


def test_all_faults_are_told_at_once():
    with pytest.raises(ConfigurationError) as caught:
        BayesByBackprop(learning_rate=-1.0, temperature=-1.0, kl="exact")
    message = str(caught.value)
    assert message.startswith("BayesByBackprop cannot work like this: ")
    assert message.count("; ") == 2


@pytest.mark.parametrize("prior", [priors.ScaleMixture(), priors.StudentT(), priors.Normal(scale=priors.HalfNormal())])
def test_a_closed_form_that_there_is_not_is_refused(prior):
    problem = Problem(small_network(), normal(6, 3), prior=prior)
    with pytest.raises(ConfigurationError, match='kl="closed_form" needs a prior whose KL with a Gaussian') as caught:
        method_with(kl="closed_form").init(problem.model, Rng.create(0))
    assert f"received: {problem.model.prior!r}" in str(caught.value)
    assert "expected: Normal, Laplace or Flat with numbers as scales" in str(caught.value)
    assert 'write: kl="auto"' in str(caught.value)
    method_with(kl="auto").init(problem.model, Rng.create(0))


@pytest.mark.parametrize("prior", [priors.Normal(), priors.Laplace(), priors.Flat()])
def test_a_closed_form_that_there_is_may_be_demanded(prior):
    problem = Problem(small_network(), normal(6, 3), prior=prior)
    state = method_with(kl="closed_form").init(problem.model, Rng.create(0))
    assert state.mean.shape == (1, 21)


@pytest.mark.parametrize("name", ["learning_rate", "scale_learning_rate", "temperature"])
@pytest.mark.parametrize("shape", [(3,), (2, 1), (1,)])
def test_a_tensor_of_settings_has_one_number_for_each_particle(name, shape):
    problem = Problem(small_network(), normal(6, 3))
    method = method_with(**{name: torch.full(shape, 0.1)})
    with pytest.raises(ConfigurationError, match=f"{name}: a tensor holds one number for each particle") as caught:
        method.init(problem.model, Rng.create(0, 2))
    assert f"received: a tensor of shape {list(shape)}" in str(caught.value)
    assert "expected: a number, or a tensor of shape [2]" in str(caught.value)
    assert f"write: fit(..., starts={math.prod(shape)})  # or {name}=1e-3" in str(caught.value)
    for fine in (torch.tensor(0.1), torch.tensor([0.1, 0.2])):
        method_with(**{name: fine}).init(problem.model, Rng.create(0, 2))


@pytest.mark.parametrize(
    ("optimizer", "moments"), [("sgd", 0), ("momentum", 1), ("adam", 2), ("adamw", 2), (torch.optim.RMSprop, 1)]
)
@pytest.mark.parametrize("samples", [1, 4])
def test_memory_is_that_of_the_state_and_of_the_samples(optimizer, moments, samples):
    """State: mean and rho, each with its moments. Samples: weights and their gradient."""
    model = bp.Model(nn.Linear(30, 20), likelihood=likelihoods.Gaussian(), random="weight")
    method = method_with(optimizer=optimizer, estimator=SharedWeights(samples))
    state = method.init(model, Rng.create(0, 3))
    held = sum(t.numel() * t.element_size() for t in (state.mean, state.rho, *state.moments.values()) if t.dim() == 2)
    assert held == 3 * 4 * (621 + 601) * (1 + moments)
    assert method.memory(model, 3, 128) == held + 3 * 4 * 2 * samples * 621
    assert method.memory(model, 6, 128) == 2 * method.memory(model, 3, 128)
