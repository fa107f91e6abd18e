from __future__ import annotations

import dataclasses

import pytest
import torch

from bayesprop import priors
from bayesprop.errors import ConfigurationError
from bayesprop.layout import Block

from .conftest import SHAPES, lay_out


def test_the_first_match_wins(blocks):
    mapping = {"0.weight": priors.Laplace(), "*.bias": priors.Normal(scale=2.0), "*": priors.Flat()}
    bound = priors.bind(mapping, blocks)
    described = {block.name: bound.describe(block) for block in blocks}
    assert described == {
        "0.weight": "Laplace(0, 1)",
        "0.bias": "Normal(0, 2)",
        "2.weight": "Flat()",
        "2.bias": "Normal(0, 2)",
        "norm.weight": "Flat()",
        "temperature": "Flat()",
    }


def test_many_normals_are_one_group_and_equal_numbers_stay_floats(blocks):
    same = priors.bind({name: priors.Normal(0.0, 0.3) for name in SHAPES}, blocks)
    assert len(same.groups) == 1
    assert same.family == priors.Family("normal", (0.0, 0.3))
    mixed = {name: priors.Normal(torch.full(shape, 0.1), 0.5) for name, shape in SHAPES.items()}
    mixed["norm.weight"] = priors.Normal(1.0, 0.5)
    bound = priors.bind(mixed, blocks)
    assert len(bound.groups) == 1
    assert bound.family is None
    assert bound.groups[0].arguments["scale"] == 0.5
    assert isinstance(bound.groups[0].columns, slice)
    assert bound.order is None


def test_cauchy_and_student_share_a_group(blocks):
    bound = priors.bind({"*.weight": priors.Cauchy(), "*": priors.StudentT(df=3.0)}, blocks)
    assert len(bound.groups) == 1
    assert priors.bind(priors.Cauchy(scale=0.5), blocks).family == priors.Family("student_t", (1.0, 0.0, 0.5))


@pytest.mark.parametrize(
    ("prior", "name", "parameters"),
    [
        (priors.Normal(0.1, 0.2), "normal", (0.1, 0.2)),
        (priors.Laplace(0.1, 0.2), "laplace", (0.1, 0.2)),
        (priors.StudentT(3.0, 0.1, 0.2), "student_t", (3.0, 0.1, 0.2)),
        (priors.ScaleMixture(0.25, 0.9, 0.1), "scale_mixture", (0.25, 0.9, 0.1)),
        (priors.Flat(), "flat", ()),
    ],
)
def test_family_is_the_switch_of_kernels(blocks, prior, name, parameters):
    assert priors.bind(prior, blocks).family == priors.Family(name, parameters)
    assert priors.bind({"*.weight": prior, "*": dataclasses.replace(prior)}, blocks).family is not None


def test_there_is_no_family_for_mixed_or_learnt_priors(blocks):
    assert priors.bind({"*.weight": priors.Normal(), "*": priors.Laplace()}, blocks).family is None
    assert priors.bind(priors.Normal(scale=priors.HalfNormal()), blocks).family is None
    assert priors.bind({"*.weight": priors.Normal(scale=0.1), "*": priors.Normal()}, blocks).family is None


def test_a_tensor_without_dimensions_is_a_number(blocks):
    assert priors.bind(priors.Normal(scale=torch.tensor(0.25)), blocks).family == priors.Family("normal", (0.0, 0.25))


def test_a_tied_parameter_answers_to_all_its_names():
    tied = (Block("embedding.weight", (5, 2), 0, module="embedding", aliases=("head.weight",)),)
    assert priors.bind({"head.*": priors.Laplace()}, tied).describe(tied[0]) == "Laplace(0, 1)"
    both = {"head.*": priors.Laplace(), "embedding.*": priors.Normal()}
    assert priors.bind(both, tied).describe(tied[0]) == "Laplace(0, 1)"


REFUSED = [
    (
        {"0.weigth": priors.Normal(), "*": priors.Normal()},
        "the pattern '0.weigth' matches no random parameter. Did you mean '0.weight'?",
        "expected: a name or a wildcard over 0.weight, 0.bias",
        'write: prior={"0.weight": priors.Normal(scale=1.0), ...}',
    ),
    (
        {"*.weight": priors.Normal()},
        "3 random parameters have no prior: 0.bias, 2.bias, temperature",
        "received: patterns '*.weight'",
        'write: prior={..., "*": priors.Normal(scale=1.0)}',
    ),
    ({}, "6 random parameters have no prior", "patterns of an empty mapping", '"*": priors.Normal'),
    (
        {"*": priors.Normal(), "0.*": priors.Laplace()},
        "prior['0.*'] would never be used: the first match wins, and '*' stands before it",
        "expected: special patterns before general ones",
        'write: prior={"0.*": ..., "*": ...}',
    ),
    (
        {"0.weight": priors.Normal(scale=torch.ones(3, 4)), "*": priors.Normal()},
        "the prior of 0.weight: scale has another shape than the parameter",
        "received: a tensor of shape [3, 4]",
        'write: prior={"0.weight": priors.Normal(scale=torch.ones(4, 3)), ...}',
    ),
    (
        {"0.weight": priors.Laplace(loc=torch.ones(4, 1)), "*": priors.Normal()},
        "the prior of 0.weight: loc has another shape",
        "expected: a number, or a tensor of shape [4, 3]",
        'write: prior={"0.weight": priors.Laplace(loc=loc.expand(4, 3)), ...}',
    ),
    (priors.Normal(scale=torch.ones(4, 3)), "the prior of 0.bias: scale has another shape", "[4, 3]", '"0.bias"'),
    ({"*": 1.0}, "prior['*'] must be a prior", "received: 1.0", 'write: prior={"*": priors.Normal(scale=1.0)}'),
    ({"*": priors.Laplace}, "prior['*'] must be a prior", "the class Laplace", 'prior={"*": priors.Laplace()}'),
    (priors.Flat, "prior=... must be a prior or a mapping", "the class Flat", "write: prior=priors.Flat()"),
    (0.1, "prior=... must be a prior or a mapping", "received: 0.1", "write: prior=priors.Normal(scale=1.0)"),
]


@pytest.mark.parametrize(("prior", "asked", "second", "third"), REFUSED)
def test_what_cannot_work_is_refused_with_the_line_to_write(blocks, prior, asked, second, third):
    with pytest.raises(ConfigurationError) as caught:
        priors.bind(prior, blocks)
    message = str(caught.value)
    assert asked in message.splitlines()[0]
    assert second in message
    assert third in message


def test_a_last_resort_that_is_not_needed_is_no_mistake(blocks):
    mapping = {"0.*": priors.Normal(), "2.*": priors.Normal(), "[nt]*": priors.Normal(), "*": priors.Laplace()}
    assert priors.bind(mapping, blocks).family == priors.Family("normal", (0.0, 1.0))


def test_no_random_parameter_is_refused():
    with pytest.raises(ConfigurationError, match="a prior needs a random parameter"):
        priors.bind(priors.Normal(), ())


def test_names_of_the_network_that_are_not_random_are_passed_over(blocks):
    mapping = {"frozen.weight": priors.Normal(), "*": priors.Normal()}
    assert priors.bind(mapping, blocks, others=("frozen.weight",)).family is not None
    with pytest.raises(ConfigurationError, match=r"'frozen\.\*' matches no random parameter"):
        priors.bind({"frozen.*": priors.Normal(), "*": priors.Normal()}, blocks, others=("frozen.weight",))


def test_equal_hyperpriors_are_one_formula(blocks):
    mapping = {name: priors.Normal(scale=priors.HalfNormal(0.5)) for name in SHAPES}
    bound = priors.bind(mapping, blocks)
    assert len(bound.latents) == len(SHAPES)
    assert len(bound.hyperpriors) == 1
    shoes = priors.bind({name: priors.Horseshoe(0.1) for name in SHAPES}, blocks)
    assert len(shoes.hyperpriors) == 2
    assert len(shoes.groups) == 1
    other = mapping | {"2.bias": priors.Normal(scale=priors.HalfNormal(0.7))}
    assert len(priors.bind(other, blocks).hyperpriors) == 3


def test_columns_of_the_latents_follow_those_of_the_weights():
    bound = priors.bind(priors.Horseshoe(), lay_out({"a.weight": (2, 3), "b.weight": (4,)}))
    assert bound.random == 10
    assert bound.size == 10 + 10 + 2
    assert [(latent.name, latent.shape) for latent in bound.latents] == [
        ("prior.scale1[a.weight]", (2, 3)),
        ("prior.scale1[b.weight]", (4,)),
        ("prior.scale2[a]", ()),
        ("prior.scale2[b]", ()),
    ]
