"""What a method asks a model: values and gradients against central differences of the log joint in float64."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bayesprop import likelihoods, priors
from bayesprop.inference.oracle import draws_gradient, joint_gradient, likelihood_gradient, prior_score

from .conftest import Problem, normal, small_network

STEP = 1e-5


def problem(prior, likelihood=None, **options) -> Problem:
    return Problem(small_network(), normal(7, 3), likelihood=likelihood, prior=prior, num_data=20, **options)


CASES = {
    "plain": lambda: problem(priors.Normal(0.1, 0.7)),
    "noise": lambda: problem(priors.StudentT(4.0), likelihoods.Gaussian()),
    "scales": lambda: problem(priors.Normal(0.3, priors.HalfNormal(0.5)), likelihoods.Gaussian()),
    "points": lambda: problem(priors.Laplace(scale=0.5), likelihoods.Gaussian(), random="0.*", fixed="2.bias"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("particles", [1, 3])
def test_the_gradient_of_the_log_joint_is_that_of_central_differences(name, particles):
    made = CASES[name]()
    model, layout = made.model, made.model.layout
    theta = made.state(particles).mean
    batch = made.batch(particles, slice(2, None))
    value, gradient = joint_gradient(model, theta, {}, batch)
    assert value.shape == (particles,)
    assert gradient.shape == (particles, layout.size)
    expected = model.log_joint(theta[:, None], {}, batch)[:, 0] - model.log_prior(theta)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)
    for column in range(layout.size):
        shift = torch.zeros(layout.size, dtype=torch.float64)
        shift[column] = STEP
        up, down = (model.log_joint((theta + s)[:, None], {}, batch)[:, 0] for s in (shift, -shift))
        torch.testing.assert_close(gradient[:, column], (up - down) / (2.0 * STEP), rtol=1e-6, atol=1e-6)


def test_the_likelihood_is_on_the_scale_of_the_full_data():
    made = problem(priors.Normal())
    theta = made.state(2).mean
    value, gradient = likelihood_gradient(made.model, theta, {}, made.batch(2))
    assert made.num_data == 20
    outputs = made.model.outputs(theta[:, None], {}, made.inputs)[:, 0]
    each = made.model.likelihood.log_prob(outputs.flatten(0, 1), made.targets.repeat(2, 1), {})
    torch.testing.assert_close(value, 20 / 7 * each.reshape(2, 7).sum(1), rtol=1e-12, atol=0.0)
    whole = joint_gradient(made.model, theta, {}, made.batch(2))[1]
    torch.testing.assert_close(whole - gradient, -theta, rtol=1e-10, atol=1e-10)


def test_weights_that_the_network_does_not_use_have_the_gradient_of_their_prior():
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used = nn.Linear(3, 1)
            self.idle = nn.Linear(2, 2)

        def forward(self, x):
            return self.used(x)

    made = Problem(Idle().double(), normal(5, 3), prior=priors.Normal())
    for particles in (1, 2):
        theta = made.state(particles).mean
        _, gradient = joint_gradient(made.model, theta, {}, made.batch(particles))
        block = made.model.layout.by_name["idle.weight"]
        torch.testing.assert_close(gradient[:, block.columns], -theta[:, block.columns], rtol=1e-12, atol=0.0)


def test_the_score_of_a_learnt_noise_alone():
    made = problem(priors.Normal(), likelihoods.Gaussian())
    theta = made.state(2).mean
    whole, alone = prior_score(made.model, theta), prior_score(made.model, theta, skip_weights=True)
    random = made.model.layout.random
    assert torch.count_nonzero(alone[:, :random]).item() == 0
    torch.testing.assert_close(alone[:, random:], whole[:, random:], rtol=0.0, atol=0.0)


@pytest.mark.parametrize("draws", [1, 4])
def test_several_draws_are_that_many_particles(draws):
    made = CASES["noise"]()
    theta = torch.stack([made.state(2, seed=k).mean for k in range(draws)], dim=1)
    value, gradient = draws_gradient(made.model, theta, {}, made.batch(2))
    for k in range(draws):
        expected = likelihood_gradient(made.model, theta[:, k], {}, made.batch(2))
        torch.testing.assert_close((value[:, k], gradient[:, k]), expected, rtol=1e-10, atol=1e-12)
