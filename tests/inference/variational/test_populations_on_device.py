"""Populations on a GPU: each particle has the numbers of its own prior, whichever body takes the step."""

from __future__ import annotations

import math

import pytest
import torch

from bayesprop import priors
from bayesprop.assembly import bind_prior
from bayesprop.inference import Adam
from bayesprop.inference.variational import on_device
from bayesprop.kernels import columns
from bayesprop.priors.population import stack

from ..conftest import Problem, method_with, normal
from .test_on_device import NETWORKS, assert_same

PRIORS = {
    "normal": [priors.Normal(0.1 * i, 0.3 + 0.4 * i) for i in range(2)],
    "laplace": [priors.Laplace(0.1, 0.3 + 0.4 * i) for i in range(2)],
    "student": [priors.StudentT(3.0 + i, 0.1, 0.3 + 0.4 * i) for i in range(2)],
    "mixture": [priors.ScaleMixture(0.25 + 0.5 * i, math.exp(-i), 0.1) for i in range(2)],
    "by layer": [{"*.bias": priors.Normal(scale=0.5), "*": priors.Normal(scale=0.3 + 0.4 * i)} for i in range(2)],
    "by weight": [{"*.bias": priors.Normal(0.1, 0.5), "*.weight": priors.Normal(0.0, 0.2 + i)} for i in range(2)],
    "hierarchical": [priors.Normal(scale=priors.HalfCauchy(0.2 + i)) for i in range(2)],
}


def population(name: str, network: str) -> Problem:
    make, shape = NETWORKS[network]
    problem = Problem(make(), normal(*shape), prior=PRIORS[name][0], num_data=30)
    if torch.cuda.is_available():  # moving a model binds its own prior again
        problem.model = problem.model.to("cuda")
    model = problem.model
    model.bound_prior = stack([bind_prior(model.network, one, model.layout.of_kind("random")) for one in PRIORS[name]])
    return problem


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("kl", ["auto", "monte_carlo"])
@pytest.mark.parametrize("prior", PRIORS)
def test_every_prior_of_a_particle(interpreter, network, prior, kl):
    problem = population(prior, network)
    rates = torch.tensor([0.01, 0.003])
    method = method_with(learning_rate=rates, optimizer=Adam(epsilon=1e-3), kl=kl)
    body = "columns" if prior == "hierarchical" else network
    assert_same(problem, method, body, rtol=2e-4 if prior in ("mixture", "hierarchical") else 2e-5)


@pytest.mark.parametrize("prior", ["normal", "mixture", "by layer"])
def test_constants_of_particles_are_those_of_their_own_priors(interpreter, prior):
    problem = population(prior, "columns")
    found = on_device.program(method_with(kl="monte_carlo"), problem.model)
    family = problem.model.bound_prior.groups[0].density.name
    assert found.family == family
    assert found.constants is not None
    assert found.constants.shape == (2, problem.model.layout.random if prior == "by layer" else 1, 4)
    for p, one in enumerate(PRIORS[prior]):
        if isinstance(one, priors.Prior):
            expected = columns.prior_constants(family, *one.arguments().values())
            torch.testing.assert_close(found.constants[p, 0].cpu(), expected, rtol=1e-6, atol=0.0)
