"""Whole steps in one native call, for small stacks of dense layers; the plain step is their definition."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bayesprop import likelihoods, priors
from bayesprop.inference import Adam
from bayesprop.inference.method import state_tensors
from bayesprop.inference.variational import fused
from bayesprop.model import Batch
from bayesprop.rng import Rng

from ..conftest import Problem, method_with, normal
from .test_fused import LEARNT, assert_same_trajectory, decline

SCALES = priors.Normal(0.1, priors.HalfNormal(1.0))
WHOLE = {
    "classes": (3, likelihoods.Categorical(), SCALES),
    "two classes": (1, likelihoods.Bernoulli(), priors.Normal(scale=priors.HalfCauchy(1.0, shared="network"))),
    "known noise": (2, likelihoods.Gaussian(0.3), {"0.*": priors.Normal(0.2, 0.7), "*": priors.Normal(scale=2.0)}),
    "learnt noise": (1, LEARNT, priors.Normal(0.1, 0.5)),
    "both learnt": (1, LEARNT, {"0.*": SCALES, "*": priors.Normal()}),
}


def stack_problem(case: str, rows: int = 300, activation: nn.Module | None = None) -> Problem:
    outputs, likelihood, prior = WHOLE[case]
    layers = (nn.Linear(3, 6), activation or nn.Tanh(), nn.Linear(6, 5, bias=False), nn.ReLU(), nn.Linear(5, outputs))
    made = nn.Sequential(*layers)
    with torch.no_grad():
        for index, parameter in enumerate(made.parameters()):
            parameter.copy_(0.5 * normal(*parameter.shape, seed=40 + index))
    inputs = normal(rows, 3)
    if isinstance(likelihood, likelihoods.Categorical):
        targets = torch.arange(rows) % 3
    elif isinstance(likelihood, likelihoods.Bernoulli):
        targets = (inputs[:, 0] > 0).long()
    else:
        targets = inputs[:, :outputs].sin()
    return Problem(made, inputs, targets, prior=prior, likelihood=likelihood, num_data=2 * rows)


@pytest.mark.parametrize("particles", [1, 3])
@pytest.mark.parametrize("kl", ["auto", "monte_carlo"])
@pytest.mark.parametrize("case", WHOLE)
def test_whole_steps_are_the_plain_ones(monkeypatch, case, kl, particles):
    """Five steps in float32 on more rows than a block; Adam's denominators stay away from nothing."""
    problem = stack_problem(case)
    method = method_with(learning_rate=0.01, optimizer=Adam(epsilon=1e-3), kl=kl, initial_scale=0.05)
    choice = fused.explain(method, problem.model)
    assert choice.joint is not None
    found = []
    for plain in (False, True):
        with monkeypatch.context() as patch:
            if plain:
                decline(patch)
            rng = Rng.create(6, particles)
            state = method.init(problem.model, rng)
            for step in range(5):
                batch = problem.batch(particles, index=step % 3, count=3)
                state, info = method.update(problem.model, state, batch, rng.at(step))
            found.append({**state_tensors(state), "value": info.log_likelihood})
    assert_same_trajectory(*found, 5e-5)
    assert found[0]["value"].dtype == torch.float32


def test_whole_steps_on_minibatches_of_each_particle():
    """Rows of their own for each particle give what each would get alone."""
    problem = stack_problem("learnt noise")
    method = method_with(learning_rate=0.01, optimizer="adam", initial_scale=0.05)
    inputs, targets = problem.inputs, problem.targets
    parts = [slice(0, 40), slice(100, 140)]
    together = Batch(*(torch.stack([t[part] for part in parts]) for t in (inputs, targets)), 600)
    rng = Rng.create(6, 2)
    state = method.init(problem.model, rng)
    method.update(problem.model, state, together, rng.at(0))
    for number, part in enumerate(parts):
        alone = method.init(problem.model, rng)
        method.update(
            problem.model, alone, Batch(*(t[part].expand(2, *t[part].shape) for t in (inputs, targets)), 600), rng.at(0)
        )
        assert torch.equal(alone.mean[number], state.mean[number])
        assert torch.equal(alone.rho[number], state.rho[number])


def test_whole_steps_in_a_row_are_the_same_steps_to_the_last_bit():
    problem = stack_problem("both learnt", rows=60)
    method = method_with(learning_rate=0.01, optimizer="adam", initial_scale=0.05)
    rng, batch = Rng.create(6, 2), problem.batch(2)
    one, row = method.init(problem.model, rng), method.init(problem.model, rng)
    for step in range(4):
        method.update(problem.model, one, batch, rng.at(step))
    assert len(list(method.run(problem.model, row, ((batch, rng.at(step)) for step in range(4))))) == 4
    assert torch.equal(one.mean, row.mean)
    assert torch.equal(one.rho, row.rho)


def test_autocast_is_no_matter_of_whole_steps():
    problem = stack_problem("learnt noise", rows=20)
    method = method_with(optimizer="adam")
    assert fused.explain(method, problem.model).joint is not None
    with torch.autocast("cpu", torch.bfloat16):
        assert fused.explain(method, problem.model).joint is None
