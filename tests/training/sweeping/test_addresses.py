"""What keys mean, and what is said of those that mean nothing."""

from __future__ import annotations

import pytest

from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.inference import Adam, BayesByBackprop, Cosine
from bayesprop.inference.variational.kl_weights import Geometric, Warmup
from bayesprop.random_weights import SharedWeights
from bayesprop.training.sweeping.addresses import Setup, addresses, apply, shown

BASE = Setup(BayesByBackprop(), priors.Normal(0.1, 0.5), likelihoods.Gaussian(0.3))
MAPPING = Setup(
    BayesByBackprop(), {"0.*": priors.Laplace(), "*": priors.Normal(scale=priors.HalfNormal(0.5))}, BASE.likelihood
)


@pytest.mark.parametrize(
    ("key", "value", "look", "expected"),
    [
        ("learning_rate", 0.1, lambda s: s.method.learning_rate, 0.1),
        ("method.learning_rate", 0.1, lambda s: s.method.learning_rate, 0.1),
        ("kl_weights", "geometric", lambda s: s.method.kl_weights, "geometric"),
        ("kl_weights.share", 0.2, lambda s: s.method.kl_weights, Warmup(0.2)),
        ("kl_weights.after", Geometric(), lambda s: s.method.kl_weights, Warmup(after=Geometric())),
        ("kl_weight", 0.2, lambda s: s.method.temperature, 0.2),
        ("optimizer.beta1", 0.5, lambda s: s.method.optimizer, Adam(beta1=0.5)),
        ("schedule.final", 0.5, lambda s: s.method.schedule, Cosine(0.5)),
        ("samples", 4, lambda s: s.method.estimator, SharedWeights(4)),
        ("estimator.samples", 4, lambda s: s.method.estimator, SharedWeights(4)),
        ("estimator", SharedWeights(2), lambda s: s.method.estimator, SharedWeights(2)),
        ("prior", priors.Laplace(), lambda s: s.prior, priors.Laplace()),
        ("prior.scale", 2, lambda s: s.prior, priors.Normal(0.1, 2.0)),
        ("likelihood.scale", 0.7, lambda s: s.likelihood, likelihoods.Gaussian(0.7)),
        ("method", BayesByBackprop(0.5), lambda s: s.method, BayesByBackprop(0.5)),
        ("seed", -3, lambda s: s.seed, -3),
        ("batch_size", None, lambda s: s.batch_size, None),
        ("epochs", 7, lambda s: s.epochs, 7),
    ],
)
def test_every_kind_of_key(key, value, look, expected):
    changed = apply(BASE, {key: value})
    assert look(changed) == expected
    assert look(BASE) != expected
    assert key in addresses(BASE) or key.startswith("method.")


def test_priors_of_a_mapping_and_their_hyperpriors():
    changed = apply(MAPPING, {"prior[0.*].scale": 3.0, "prior[*].scale.scale": 2.0})
    assert changed.prior == {"0.*": priors.Laplace(scale=3.0), "*": priors.Normal(scale=priors.HalfNormal(2.0))}
    product = Setup(BASE.method, priors.Normal(scale=priors.HalfCauchy() * priors.HalfNormal()), BASE.likelihood)
    changed = apply(product, {"prior.scale.factors.1.scale": 5.0})
    assert changed.prior == priors.Normal(scale=priors.HalfCauchy() * priors.HalfNormal(5.0))
    assert "prior.scale.factors.1.scale" in addresses(product)
    assert {"prior[0.*]", "prior[0.*].loc", "prior[*].scale.scale"} <= set(addresses(MAPPING))


def test_whole_objects_are_put_before_their_parts():
    changed = apply(BASE, {"prior.scale": 3.0, "prior": priors.Laplace()})
    assert changed.prior == priors.Laplace(scale=3.0)
    changed = apply(BASE, {"samples": 3, "estimator": SharedWeights(2), "method": BayesByBackprop(0.5)})
    assert changed.method == BayesByBackprop(0.5, estimator=SharedWeights(3)).resolved()


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("learning-rate", "learning_rate"),
        ("learningrate", "learning_rate"),
        ("lr", "learning_rate"),
        ("prior.sigma", "prior.scale"),
        ("prior.scale.scale", "prior.scale"),
        ("prior[0.*].scale", "prior.scale"),
        ("optimizer.beta3", "optimizer.beta2"),
        ("initial_sigma", "initial_scale"),
        ("priors", "prior"),
        ("a.b[", ""),
        ("", ""),
    ],
)
def test_an_unknown_key_is_refused_with_those_that_there_are(key, meant):
    with pytest.raises(ConfigurationError, match="sweep: nothing is called") as caught:
        apply(BASE, {key: 1.0})
    message = str(caught.value)
    assert f"Did you mean {meant!r}?" in message or not meant
    for known in ("learning_rate", "optimizer.beta1", "samples", "prior.scale", "likelihood.scale", "seed"):
        assert known in message


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("learning_rate", -1.0, "sweep: learning_rate cannot be -1: BayesByBackprop cannot work like this"),
        ("learning_rate", "fast", "sweep: learning_rate cannot be fast"),
        ("prior.scale", 0.0, "sweep: prior.scale cannot be 0: Normal(scale=...) must be positive"),
        ("prior", 0.1, "sweep: prior cannot be 0.1: it must be an object that is a prior"),
        ("prior", priors.Normal, "it must be an object that is a prior"),
        ("likelihood", "gaussian", "it must be an object that is a likelihood"),
        ("method", BayesByBackprop, "it must be an object that is a method"),
        ("samples", 0, "sweep: samples cannot be 0"),
        ("seed", 0.5, "sweep: seed cannot be 0.5: it must be a whole number"),
        ("seed", None, "it must be a whole number"),
        ("batch_size", 0, "it must be a whole number"),
        ("epochs", True, "it must be a whole number"),
    ],
)
def test_values_that_cannot_be_are_refused_with_their_key(key, value, message):
    with pytest.raises(ConfigurationError) as caught:
        apply(BASE, {key: value})
    assert message in str(caught.value)
    assert f"received: {key} = {value!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0024787521766663585, "0.002479"),
        (3, "3"),
        (None, "None"),
        (True, "True"),
        ("warmup", "warmup"),
        (priors.Normal(0.0, 0.5), "Normal(0, 0.5)"),
        ({"*": priors.Flat()}, "{*: Flat()}"),
        ((-3.0, -2.0), "(-3, -2)"),
        (SharedWeights(2), "SharedWeights(samples=2)"),
        (Adam(), "Adam()"),
        (abs, "abs"),
    ],
)
def test_values_in_few_characters(value, text):
    assert shown(value) == text
