"""A population's prior is that of each of its particles, in values, gradients and divergences."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from bayesprop import priors
from bayesprop.errors import ConfigurationError
from bayesprop.priors.constants import PerParticle
from bayesprop.priors.population import stack, structure

from .conftest import SHAPES

# Settings of one population each: numbers differ, the structure does not.
POPULATIONS = {
    "normal": [priors.Normal(0.1 * i, 0.5 + i) for i in range(3)],
    "laplace": [priors.Laplace(scale=0.2 + i) for i in range(3)],
    "student": [priors.StudentT(3.0 + i, 0.1, 0.5) for i in range(3)],
    "cauchy and student": [priors.Cauchy(0.0, 0.5), priors.StudentT(3.0), priors.StudentT(4.0)],
    "mixture": [priors.ScaleMixture(0.25 + 0.2 * i, math.exp(-i), math.exp(-6.0 - i)) for i in range(3)],
    "tensors": [{n: priors.Normal(torch.full(s, 0.1 * i), 0.7 + i) for n, s in SHAPES.items()} for i in range(3)],
    "by pattern": [{"0.*": priors.Normal(scale=1.0 + i), "*": priors.Normal(scale=1.0)} for i in range(3)],
    "families": [{"*.bias": priors.Laplace(scale=0.5 + i), "*": priors.Normal(0.3 * i, 2.0)} for i in range(3)],
    "layer": [priors.Normal(0.2 * i, priors.HalfNormal(0.5 + i)) for i in range(3)],
    "unit, centred": [
        priors.Laplace(scale=priors.InverseGamma(2.0 + i, 1.0 + i, shared="unit", centred=True)) for i in range(3)
    ],
    "network": [priors.StudentT(4.0, 0.3, scale=priors.HalfCauchy(0.2 + i, shared="network")) for i in range(3)],
    "precision": [priors.Normal(scale=priors.Gamma(2.0 + i, 0.5 + i)) for i in range(3)],
    "horseshoe": [priors.Horseshoe(0.3 + i) for i in range(3)],
}


@pytest.fixture(params=POPULATIONS, ids=list(POPULATIONS))
def each(request, blocks) -> list[priors.BoundPrior]:
    return [priors.bind(prior, blocks) for prior in POPULATIONS[request.param]]


@pytest.mark.parametrize("lead", [(), (4,)])
def test_density_score_and_weights_are_those_of_each_particle(each, draw, lead):
    together = stack(each)
    assert together.size == each[0].size
    theta = draw(each[0], 3, *lead)
    for function in ("log_density", "score", "weights"):
        found = getattr(together, function)(theta)
        expected = torch.stack([getattr(one, function)(theta[p]) for p, one in enumerate(each)])
        assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weights = together.weights(theta)
    back = together.columns(weights.clone(), theta)
    assert_close(back, theta[..., : together.random], rtol=1e-10, atol=1e-12)


def test_moments_and_divergences_are_those_of_each_particle(each, draw):
    together, mean = stack(each), draw(each[0], 3)
    std = 0.1 + draw(each[0], 3, seed=1).abs()
    for function in ("kl", "kl_gradients", "kl_columns", "weight_moments"):
        found = getattr(together, function)(mean, std)
        expected = [getattr(one, function)(mean[p], std[p]) for p, one in enumerate(each)]
        if expected[0] is None:
            assert found is None
        elif isinstance(found, tuple):
            for i in (0, 1):
                assert_close(found[i], torch.stack([pair[i] for pair in expected]), rtol=1e-11, atol=1e-12)
        else:
            assert_close(found, torch.stack(expected), rtol=1e-12, atol=1e-12)


def test_latents_start_where_they_start_alone(each):
    together = stack(each)
    assert [latent.name for latent in together.latents] == [latent.name for latent in each[0].latents]
    for i, latent in enumerate(together.latents):
        found = [latent.initial_column(p) for p in range(3)]
        assert found == pytest.approx([one.latents[i].initial_column() for one in each], rel=1e-14)


def test_families_are_told_particle_by_particle(blocks):
    mixtures = [priors.bind(prior, blocks) for prior in POPULATIONS["mixture"]]
    together = stack(mixtures)
    assert together.family is None
    assert together.families == tuple(one.family for one in mixtures)
    assert stack([mixtures[1]] * 3).family == mixtures[1].family  # equal numbers stay numbers
    assert mixtures[0].families == (mixtures[0].family,)
    for name in ("by pattern", "families", "layer"):
        assert stack([priors.bind(prior, blocks) for prior in POPULATIONS[name]]).families == ()


def test_one_prior_is_itself_and_equal_numbers_are_not_multiplied(blocks):
    one = priors.bind(priors.Normal(0.1, 0.5), blocks)
    assert stack([one]) is one
    numbers = stack([one, priors.bind(priors.Normal(0.1, 0.7), blocks)]).groups[0].arguments
    assert numbers["loc"] == 0.1
    assert isinstance(numbers["scale"], PerParticle)
    assert_close(numbers["scale"].values, torch.tensor([[0.5], [0.7]], dtype=torch.float64))


def test_no_single_standard_deviation_and_words_that_say_so(blocks):
    together = stack([priors.bind(priors.Normal(scale=scale), blocks) for scale in (0.5, 1.0)])
    assert together.prior_std() is None
    assert together.describe(blocks[0]) == "Normal(0, 0.5), by particle"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (priors.Normal(), priors.Laplace()),
        (priors.Normal(), priors.Normal(scale=priors.HalfNormal())),
        (priors.Normal(scale=priors.HalfCauchy()), priors.Normal(scale=priors.HalfNormal())),
        (priors.Normal(scale=priors.HalfNormal()), priors.Normal(scale=priors.HalfNormal(shared="unit"))),
        (priors.Normal(scale=priors.HalfNormal()), priors.Normal(scale=priors.HalfNormal(centred=True))),
        (priors.Normal(scale=priors.HalfNormal()), priors.Normal(scale=priors.HalfNormal(of="variance"))),
        ({"0.*": priors.Laplace(), "*": priors.Normal()}, {"*.weight": priors.Laplace(), "*": priors.Normal()}),
    ],
)
def test_another_structure_is_refused(blocks, first, second):
    bounds = [priors.bind(prior, blocks) for prior in (first, second)]
    assert structure(bounds[0]) != structure(bounds[1])
    with pytest.raises(ConfigurationError, match="priors of one population differ in numbers only") as caught:
        stack(bounds)
    assert "received: 2 structures among 2 priors" in str(caught.value)
    assert "write: a population for each of them" in str(caught.value)
