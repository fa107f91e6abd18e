from __future__ import annotations

import dataclasses

import pytest
import torch

from bayesprop import priors
from bayesprop.specification import from_json, to_json

ALL = [
    priors.Normal(),
    priors.Normal(0.5, 0.1),
    priors.Normal(loc=torch.arange(6.0).reshape(2, 3), scale=torch.full((2, 3), 0.3, dtype=torch.float64)),
    priors.Normal(scale=priors.HalfNormal(0.5, shared="unit")),
    priors.Laplace(0.1, 0.2),
    priors.Laplace(scale=priors.Gamma(2.0, 1.0)),
    priors.Cauchy(scale=0.3),
    priors.StudentT(df=3.0, loc=torch.ones(2), scale=0.3),
    priors.Flat(),
    priors.ScaleMixture(pi=0.25, scale1=0.9, scale2=0.01),
    priors.Horseshoe(global_scale=0.1, centred=True),
    priors.Normal(scale=priors.HalfCauchy(shared="weight") * priors.InverseGamma(2.0, 1.0, shared="layer")),
]


@pytest.mark.parametrize("prior", ALL, ids=lambda prior: prior.describe())
def test_priors_travel_in_a_file(prior):
    tensors: dict[str, torch.Tensor] = {}
    document = to_json({"0.*": prior, "*": priors.Normal()}, tensors, "prior")
    loaded = from_json(document, tensors)
    assert loaded == {"0.*": prior, "*": priors.Normal()}
    assert hash(loaded["0.*"]) == hash(prior)
    count = sum(isinstance(getattr(prior, field.name), torch.Tensor) for field in dataclasses.fields(prior))
    assert len(tensors) == count


def test_every_class_is_in_the_list():
    classes = {name for name in priors.__all__ if isinstance(getattr(priors, name), type)}
    concrete = {name for name in classes if issubclass(getattr(priors, name), priors.Prior)} - {"Prior"}
    assert {type(prior).__name__ for prior in ALL} == concrete
    assert len(concrete) == 7
    assert priors.__all__ == sorted(priors.__all__)


def test_equality_is_by_value_and_never_ambiguous():
    a, b = priors.Normal(loc=torch.tensor([1.0, 2.0])), priors.Normal(loc=torch.tensor([1.0, 2.0]))
    assert a == b
    assert a != priors.Normal(loc=torch.tensor([1.0, 3.0]))
    assert a != priors.Normal(loc=1.0)
    assert priors.Normal() != priors.Laplace()
    assert priors.Normal() != "Normal(0, 1)"


def test_priors_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        priors.Normal().scale = 2.0  # type: ignore


def test_descriptions():
    assert [prior.describe() for prior in ALL] == [
        "Normal(0, 1)",
        "Normal(0.5, 0.1)",
        "Normal(tensor[2, 3], tensor[2, 3])",
        "Normal(0, HalfNormal(0.5) per unit)",
        "Laplace(0.1, 0.2)",
        "Laplace(0, Gamma(2, 1) on the precision per layer)",
        "Cauchy(0, 0.3)",
        "StudentT(3, tensor[2], 0.3)",
        "Flat()",
        "ScaleMixture(0.25, 0.9, 0.01)",
        "Horseshoe(0.1)",
        "Normal(0, HalfCauchy(1) per weight * InverseGamma(2, 1) on the variance per layer)",
    ]


@pytest.mark.parametrize("prior", ALL, ids=lambda prior: prior.describe())
def test_arguments_are_those_of_the_density_in_order(prior):
    assert tuple(prior.arguments()) == prior.density.parameters
