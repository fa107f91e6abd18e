"""Everything that a user may put into a model travels through a file."""

from __future__ import annotations

import dataclasses
import inspect
import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bayesprop import inference, likelihoods, priors, random_weights
from bayesprop.data.scaling import Scaling
from bayesprop.distributions import hyperpriors
from bayesprop.inference.variational import kl_weights
from bayesprop.specification import from_json, to_json


def through_a_file(value: Any) -> tuple[Any, dict[str, Tensor]]:
    """What comes back, and the tensors that lay beside the document."""
    tensors: dict[str, Tensor] = {}
    text = json.dumps(to_json(value, tensors, "x"), allow_nan=False)
    return from_json(json.loads(text), tensors), tensors


def same(found: Any, expected: Any) -> bool:
    """Field by field, types included; tensors entry by entry."""
    if isinstance(expected, Tensor):
        return isinstance(found, Tensor) and found.dtype == expected.dtype and torch.equal(found, expected)
    if dataclasses.is_dataclass(expected) and not isinstance(expected, type):
        names = [field.name for field in dataclasses.fields(expected)]
        return type(found) is type(expected) and all(same(getattr(found, n), getattr(expected, n)) for n in names)
    return type(found) is type(expected) and found == expected


# -- the library's own descriptions ------------------------------------------------------------------------------------

VECTOR = torch.tensor([0.5, 1.5])

# At least one of each class, with fields that are not the default ones.
DESCRIPTIONS: list[Any] = [
    priors.Normal(),
    priors.Normal(0.1, 0.3),
    priors.Normal(VECTOR, VECTOR + 1.0),
    priors.Normal(scale=priors.HalfCauchy(0.2, shared="unit", centred=True)),
    priors.Laplace(-0.1, 2.0),
    priors.Laplace(scale=priors.HalfNormal(0.7) * priors.InverseGamma(2.0, 1.0, of="scale")),
    priors.Cauchy(0.2, VECTOR),
    priors.StudentT(3.5, 0.1, 0.4),
    priors.ScaleMixture(0.25, 2.0, 0.01),
    priors.Flat(),
    priors.Horseshoe(0.3, centred=True),
    priors.HalfNormal(0.3, shared="weight"),
    priors.HalfCauchy(0.3, of="precision"),
    priors.InverseGamma(2.0, 3.0, shared="network"),
    priors.Gamma(2.0, 3.0, of="variance"),
    priors.HalfCauchy() * priors.HalfNormal() * priors.Gamma(1.0, 2.0),
    likelihoods.Bernoulli(),
    likelihoods.Categorical(),
    likelihoods.FromDistribution(torch.distributions.Poisson, kind="count"),
    likelihoods.Gaussian(scale=0.3),
    likelihoods.Gaussian(),
    likelihoods.Gaussian(scale=priors.InverseGamma(2.0, 1.0)),
    likelihoods.HeteroscedasticGaussian(),
    likelihoods.Poisson(),
    likelihoods.StudentT(df=5.0, scale=0.2),
    random_weights.SharedWeights(4, antithetic=True),
    random_weights.LocalReparameterization(2),
    random_weights.Flipout(3),
    random_weights.Masks(2),
    inference.RBF(2.0, 0.5),
    inference.WidePrior(),
    inference.ADVI("low rank", rank=3, optimizer="sequence", samples=4),
    inference.Boosting(components=3, weights="equal", warmup=0.2),
    inference.ConcreteDropout(initial_rate=0.2, relaxation=0.3),
    inference.DVI("diagonal", learning_rate=0.01),
    inference.DeepKernel(inducing=7, kernel="linear"),
    inference.Flow(layers=2, hidden=5, temperature=0.5),
    inference.FunctionalVI(inference.RBF(), measured_rows=5, margin=0.1),
    inference.GaussianDropout(alpha=0.2),
    inference.Graves(group=3, at_mean=True),
    inference.IVON(0.1, beta1=0.8, clip_radius=0.1),
    inference.MCDropout(rate=0.3, samples=2),
    inference.NNGP(learning_steps=3),
    inference.SparseVariationalDropout(threshold=2.0),
    inference.BayesByBackprop(),
    inference.BayesByBackprop(
        learning_rate=0.02,
        scale_learning_rate=0.05,
        optimizer=inference.Adam(0.8, 0.99, 1e-6, 0.1),
        estimator=random_weights.Flipout(2),
        kl="monte_carlo",
        kl_weights=kl_weights.Warmup(0.25, kl_weights.Geometric()),
        temperature=0.5,
        stick_the_landing=True,
        initial_mean=(-0.1, 0.1),
        initial_rho=(-5.0, -4.0),
        schedule=inference.Warmup(0.1, inference.Cosine(0.01)),
        clip_norm=3.0,
    ),
    inference.BayesByBackprop(learning_rate=VECTOR, optimizer=torch.optim.RMSprop, temperature=VECTOR),
    inference.MAP(VECTOR, optimizer=inference.SGD(0.5), clip_norm=1.0),
    inference.MLE(0.1, "momentum", schedule=inference.Polynomial(0.1, 0.6)),
    inference.SGLD(VECTOR, schedule=inference.Cyclical(3, 0.5), samples=7, thinning=3, chains=2),
    inference.PSGLD(averaging=0.9, stabilizer=0.1, adapt="always", temperature=VECTOR),
    inference.SGHMC(friction=0.2, gradient_noise=0.1, burn_in=0.1, memory_budget=0.5),
    inference.HMC(samples=7, warm_up=3, thinning=2, trajectory=1.5, step_size=0.1, adapt_scales=False),
    inference.Laplace(inference.MAP(0.1), "last_layer", prior_precision="evidence", layer=("0.*", "2.bias")),
    inference.SWAG(optimizer="adam", averaging_rate=0.1, rank=3, members=4),
    inference.DeepEnsemble(inference.BayesByBackprop(clip_norm=2.0), members=3, bootstrap=True, adversarial=0.1),
    inference.SGD(0.9),
    inference.Adam(),
    inference.Torch(torch.optim.AdamW, {"weight_decay": 0.1, "amsgrad": True, "betas": (0.8, 0.9)}),
    inference.Constant(),
    inference.Cosine(0.1),
    inference.Polynomial(0.2, 0.7),
    inference.Cyclical(5, 0.6),
    inference.Steps((0.3, 0.6, 0.9), 0.5),
    inference.Warmup(),
    kl_weights.Uniform(),
    kl_weights.Geometric(),
    kl_weights.Warmup(),
    Scaling(VECTOR, VECTOR + 1.0, torch.tensor(3.0), torch.tensor(2.0)),
]


@pytest.mark.parametrize("value", DESCRIPTIONS, ids=lambda value: type(value).__name__)
def test_a_description_comes_back(value):
    found, tensors = through_a_file(value)
    assert same(found, value)
    shown = sum(isinstance(getattr(value, f.name), Tensor) for f in dataclasses.fields(value))
    assert len(tensors) == shown
    assert all(name.startswith("x.") for name in tensors)
    if "Normal" in type(value).__name__ and hasattr(value, "describe"):
        assert found.describe() == value.describe()


def described(module: Any, kinds: tuple[type, ...] | None = None) -> set[type]:
    """The classes of a room that a user may put into a model: exported, frozen, and not abstract."""
    found = {getattr(module, name) for name in module.__all__}
    classes = {cls for cls in found if isinstance(cls, type) and dataclasses.is_dataclass(cls)}
    return {cls for cls in classes if not inspect.isabstract(cls) and (kinds is None or issubclass(cls, kinds))}


def test_every_exported_description_is_in_the_list():
    """A class that is new to the library must come back from a file too: put it into DESCRIPTIONS."""
    rooms = {
        "priors": (described(priors, (priors.Prior,)), 7),
        "hyperpriors": (described(hyperpriors, (hyperpriors.Hyperprior, hyperpriors.Product)), 5),
        "likelihoods": (described(likelihoods), 7),
        "estimators": ({c for c in described(random_weights) if hasattr(c, "rule_of_positions")}, 4),
        "methods": ({c for c in described(inference) if hasattr(c, "posterior")}, 23),
        "priors over functions": ({inference.RBF, inference.WidePrior}, 2),
        "optimisers": ({c for c in described(inference) if hasattr(c, "step")}, 3),
        "schedules": ({c for c in described(inference) if "__call__" in vars(c)}, 6),
        "schedules of the KL": (described(kl_weights), 3),
    }
    listed = {type(value) for value in DESCRIPTIONS}
    for room, (classes, count) in rooms.items():
        assert classes <= listed, room
        assert len(classes) == count, room
    assert len(listed) == sum(count for _, count in rooms.values()) + 1  # and the scaling of data
    assert described(inference) - set().union(*(classes for classes, _ in rooms.values())) == {
        inference.About,
        inference.Info,
    }


def test_a_mapping_of_priors_keeps_its_order():
    """The first pattern that matches wins: another order would be another prior."""
    mapping = {"head.*": priors.Laplace(VECTOR), "*.bias": priors.Flat(), "*": priors.Normal(scale=0.1)}
    found, tensors = through_a_file(mapping)
    assert list(found) == list(mapping)
    assert all(same(found[name], prior) for name, prior in mapping.items())
    assert list(tensors) == ["x.head.*.loc"]


def test_tensors_of_names_that_run_together_are_kept_apart():
    """The key "a" with a field "b.c", and the key "a.b" with a field "c", would have the same path."""
    mapping = {"a": {"b": {"c": VECTOR}}, "a.b": {"c": VECTOR + 1.0}, "a.b.c": VECTOR + 2.0}
    found, tensors = through_a_file(mapping)
    assert len(tensors) == 3
    assert torch.equal(found["a"]["b"]["c"], VECTOR)
    assert torch.equal(found["a.b"]["c"], VECTOR + 1.0)
    assert torch.equal(found["a.b.c"], VECTOR + 2.0)


# -- plain values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, False, 0, -7, 2**60, 0.1, -0.0, 1e-300, 5e-324, float("inf"), -float("inf")),
        *("", "text", "ü\"'\n", (), (1, (2.5, "x")), {}, {"a": {"b": (1,)}}),
        *(torch.float32, torch.bfloat16, torch.int64, torch.optim.Adam, torch.distributions.Laplace),
    ],
    ids=repr,
)
def test_plain_values_come_back(value):
    found, tensors = through_a_file(value)
    assert same(found, value)
    assert repr(found) == repr(value)  # which tells -0.0 from 0.0
    assert tensors == {}


def test_what_changes_its_type_on_the_way():
    """Lists come back as tuples, numbers of numpy as those of Python, keys as text."""
    assert through_a_file([1, [2]])[0] == (1, (2,))
    for number, expected in ((np.float64(0.5), 0.5), (np.int32(3), 3), (np.bool_(True), True), (np.str_("x"), "x")):
        found, _ = through_a_file(number)
        assert found == expected
        assert type(found) is type(expected)
    assert through_a_file({1: 2})[0] == {"1": 2}
    found, _ = through_a_file(float("nan"))
    assert found != found


def test_a_document_is_text_that_any_reader_of_json_takes():
    document = to_json({"a": float("inf"), "b": priors.Normal(VECTOR), "c": torch.float32}, {}, "x")
    assert json.loads(json.dumps(document, allow_nan=False)) == document
