"""Calls as people write them: each works as one would expect, or is refused with the line to write instead."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesprop as bp
from bayesprop.errors import BayespropWarning, ConfigurationError, DataError, DivergenceError

from .attempts import CATEGORICAL, INPUTS, LABELS, QUANTITIES, attempt, bayes, network, said, same

DATA = INPUTS, LABELS
NAMES = np.array(["no", "yes"])[LABELS.numpy()]


@pytest.fixture(scope="module")
def posterior() -> bp.posteriors.Posterior:
    return attempt(DATA)


@pytest.fixture(scope="module")
def regression() -> bp.posteriors.Posterior:
    data = bp.Data(INPUTS, QUANTITIES, standardize=True)
    return attempt(data, network(outputs=1), bp.likelihoods.Gaussian(scale=0.5))


# -- Model -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("net", "likelihood", "write"),
    [
        (nn.Flatten, CATEGORICAL, "write: bp.Model(Net(), ...)"),
        (lambda x: x, CATEGORICAL, "write: bp.Model(network, likelihood=...)"),
        (network(), bp.likelihoods.Categorical, "write: likelihood=bp.likelihoods.Categorical()"),
        (network(), "categorical", "write: likelihood=bp.likelihoods.Categorical()"),
        (network(), nn.CrossEntropyLoss(), "write: likelihood=bp.likelihoods.Categorical()"),
        (network(), bp.priors.Normal(scale=1.0), "write: likelihood=bp.likelihoods.Categorical()"),
    ],
    ids=["a class", "a function", "a likelihood's class", "a word", "a loss", "a prior"],
)
def test_parts_that_are_something_else(net, likelihood, write):
    message = said(ConfigurationError, lambda: bp.Model(net, likelihood=likelihood, prior=bp.priors.Normal(scale=1.0)))
    assert write in message


@pytest.mark.parametrize("prior", [bp.priors.Normal, 1.0, "normal", CATEGORICAL])
def test_priors_that_are_none(prior):
    message = said(ConfigurationError, lambda: bp.Model(network(), likelihood=CATEGORICAL, prior=prior))
    assert message.startswith("prior=... must be a prior or a mapping from patterns to priors")
    assert "write: prior=priors.Normal(" in message


@pytest.mark.parametrize("argument", ["random", "fixed"])
def test_a_pattern_that_matches_nothing(argument):
    message = said(ConfigurationError, lambda: bp.Model(network(), likelihood=CATEGORICAL, **{argument: "3.*"}))
    assert message.startswith(f"{argument}: the pattern '3.*' matches no parameter")
    assert "0.weight, 0.bias, 2.weight, 2.bias" in message


# -- fit ---------------------------------------------------------------------------------------------------------------

WRONG_ORDER = {
    "a network": lambda: bp.fit(network(), DATA, bayes(), epochs=1, batch_size=8),
    "data before the model": lambda: bp.fit(DATA, bp.Model(network(), likelihood=CATEGORICAL), epochs=1, batch_size=8),
}


@pytest.mark.parametrize("call", WRONG_ORDER.values(), ids=list(WRONG_ORDER))
def test_no_model(call):
    message = said(ConfigurationError, call)
    assert message.startswith("fit needs a model")
    assert "write: bp.fit(bp.Model(network, likelihood=...), data)" in message


@pytest.mark.parametrize(
    ("method", "write"),
    [
        (bp.inference.BayesByBackprop, "bp.inference.BayesByBackprop()"),
        ("adam", "bp.inference.BayesByBackprop()"),
        (torch.optim.Adam, "bp.inference.BayesByBackprop()"),
        (LABELS, "bp.fit(model, (inputs, targets))"),
        (LABELS.numpy(), "bp.fit(model, (inputs, targets))"),
    ],
    ids=["its class", "a word", "an optimiser", "targets", "targets in an array"],
)
def test_no_method(method, write):
    model = bp.Model(network(), likelihood=CATEGORICAL)
    assert write in said(ConfigurationError, lambda: bp.fit(model, DATA, method, epochs=1, batch_size=8))


def test_method_and_data_swapped():
    model = bp.Model(network(), likelihood=CATEGORICAL)
    message = said(ConfigurationError, lambda: bp.fit(model, bayes(), DATA, epochs=1, batch_size=8))
    assert "write: bp.fit(model, (inputs, targets), bp.inference.BayesByBackprop())" in message


@pytest.mark.parametrize(
    "data",
    [None, INPUTS, [INPUTS, LABELS], {"inputs": INPUTS, "targets": LABELS}, "data.csv", (INPUTS, LABELS, LABELS)],
)
def test_no_data(data):
    message = said(DataError, lambda: attempt(data))
    assert message.startswith(("these are no data", "data are a pair"))
    assert "(inputs, targets)" in message


@pytest.mark.parametrize("name", ["epochs", "batch_size", "starts"])
@pytest.mark.parametrize(
    ("value", "words"), [(0, "at least 1"), (-1, "at least 1"), (2.5, "a whole number"), ("8", "a whole number")]
)
def test_numbers_that_count(name, value, words):
    message = said(ConfigurationError, lambda: attempt(DATA, **{name: value}))
    assert message.startswith(f"fit: {name} must be {words}")
    assert f"write: {name}=1" in message


@pytest.mark.parametrize("seed", [-3, 2**62, np.int64(7)])
def test_any_whole_number_is_a_seed(seed):
    same(attempt(DATA, seed=seed), attempt(DATA, seed=int(seed)))
    assert float((attempt(DATA, seed=seed).mean() - attempt(DATA, seed=5).mean()).abs().max()) > 0.0


@pytest.mark.parametrize("seed", [1.5, None, "a"])
def test_a_seed_that_is_none(seed):
    assert said(ConfigurationError, lambda: attempt(DATA, seed=seed)).startswith("fit: seed must be a whole number")


@pytest.mark.parametrize(
    ("settings", "write"),
    [
        ({"patience": 3}, "write: validation=0.1"),
        ({"resume": True}, 'write: checkpoint="run.ckpt", resume=True'),
        ({"observers": print}, "write: observers=[print]"),
        ({"autocast": "bfloat16"}, "write: autocast=torch.bfloat16"),
    ],
)
def test_settings_that_need_something_else(settings, write):
    assert write in said(ConfigurationError, lambda: attempt(DATA, **settings))


def far_too_large(rate, optimizer):
    method = bayes(learning_rate=rate, optimizer=optimizer)
    likelihood = bp.likelihoods.Gaussian(scale=0.1)
    return attempt((INPUTS, QUANTITIES), network(outputs=1), likelihood, epochs=20, method=method)


@pytest.mark.parametrize("rate", [1e3, 1e6])
def test_a_learning_rate_that_is_far_too_large_for_adam(rate):
    """Its steps are as long as the rate whatever the gradient is, so that large numbers stay finite: a warning."""
    with pytest.warns(BayespropWarning, match="the fit is worse than saying the same of every row"):
        assert far_too_large(rate, "adam").mean().abs().max() > rate


@pytest.mark.parametrize("rate", [1e3, 1e6])
def test_a_learning_rate_that_is_far_too_large(rate):
    message = said(DivergenceError, lambda: far_too_large(rate, "sgd"))
    assert message.startswith("training diverged in epoch ")
    assert "most often the learning rate is too large" in message
    assert "write: BayesByBackprop(learning_rate=1e-4, clip_norm=1.0)" in message


# -- validation data ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("targets", "validation", "words"),
    [
        (NAMES, (INPUTS[:3], ["no", "yes", "maybe"]), "'maybe' at row 2 is not one of the classes"),
        (NAMES, (INPUTS[:3], [0, 1, 2]), "a label is outside of the 2 classes\n  received: 2 at row 2"),
        (LABELS, (INPUTS[:3], [0, 1, 2]), "received the label 2 for a network with 2 outputs"),
        (LABELS, (INPUTS[:3], ["no", "yes", "no"]), "the training data have no classes\n  received: labels such as"),
        (LABELS, (torch.zeros(3, 5), LABELS[:3]), "the network cannot take these inputs"),
        (LABELS, (INPUTS[:3] * math.nan, LABELS[:3]), "inputs has a value that is not finite"),
        (LABELS, (INPUTS[:0], LABELS[:0]), "the data are empty"),
        (LABELS, INPUTS, "these are no data"),
        (LABELS, 0.0, "a split needs rows on both sides"),
        (LABELS, 1.0, "a split needs rows on both sides"),
        (LABELS, -0.5, "a split needs rows on both sides"),
    ],
)
def test_validation_data_that_do_not_belong_to_the_training_data(targets, validation, words):
    assert words in said(DataError, lambda: attempt((INPUTS, targets), validation=validation))


def test_validation_data_with_one_row_and_one_class():
    posterior = attempt((INPUTS, NAMES), validation=(INPUTS[1:2], ["yes"]), report_every=1)
    scores = posterior.context.history
    assert len(scores) == 2
    assert all(math.isfinite(entry["validation_nll"]) for entry in scores)
    assert all(entry["validation_error"] in (0.0, 1.0) for entry in scores)


# -- predict -----------------------------------------------------------------------------------------------------------


def test_predict_with_another_number_of_features(posterior, regression):
    message = said(DataError, lambda: posterior.predict(torch.zeros(5, 4)).mean)
    assert "the network cannot take these inputs" in message
    assert "expected: rows like those of training" in message
    message = said(DataError, lambda: regression.predict(torch.zeros(5, 4)).mean)
    assert "received: inputs [5, 4]\n  expected: inputs [5, 3]" in message
    # One feature would broadcast against the means and deviations of three.
    assert "received: inputs [5, 1]" in said(DataError, lambda: regression.predict(torch.zeros(5, 1)).mean)


def test_predict_one_row(posterior, regression):
    for fitted in (posterior, regression):
        together = fitted.predict(INPUTS, draws=4)
        alone = fitted.predict(INPUTS[3:4], draws=4)
        assert len(alone) == 1
        torch.testing.assert_close(alone.mean, together.mean[3:4])
        torch.testing.assert_close(alone.epistemic, together.epistemic[3:4])


def test_predict_one_row_that_is_a_vector(posterior, regression):
    assert "inputs[None] if this is one row" in said(DataError, lambda: posterior.predict(INPUTS[0]).mean)
    assert "another shape than those of training" in said(DataError, lambda: regression.predict(INPUTS[0]).mean)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (torch.zeros(0, 3), "there is nothing to predict at"),
        ([], "there is nothing to predict at"),
        (INPUTS * math.nan, "inputs has a value that is not finite"),
        (None, "inputs holds something that is not a number"),
        ("new.csv", "inputs has text where numbers are needed"),
        ({}, "the inputs are an empty dict"),
        (TensorDataset(*DATA), "write: bp.data.as_data(dataset).inputs"),
        (DataLoader(TensorDataset(*DATA), batch_size=4), "write: torch.cat([inputs for inputs, _ in loader])"),
    ],
    ids=["no rows", "no list", "nan", "None", "text", "no dict", "a dataset", "a loader"],
)
def test_predict_at_what_is_no_input(posterior, inputs, words):
    assert words in said(DataError, lambda: posterior.predict(inputs).mean)


def test_predict_at_data(posterior):
    expected = posterior.predict(INPUTS, draws=4).mean
    for inputs in (bp.Data(*DATA), bp.data.as_data(TensorDataset(*DATA)).inputs):
        torch.testing.assert_close(posterior.predict(inputs, draws=4).mean, expected, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("draws", [0, -1, 1.5, None, True])
def test_a_number_of_draws_that_is_none(posterior, draws):
    message = said(ConfigurationError, lambda: posterior.predict(INPUTS, draws=draws))
    assert message.startswith("predict: draws must be at least 1")
    assert "draws=100" in message


def test_scores_of_targets_that_do_not_fit(posterior):
    prediction = posterior.predict(INPUTS[:3], draws=4)
    assert "expected: targets (3, " in said(DataError, lambda: prediction.log_prob(LABELS[:2]))
    assert "received the label 2" in said(DataError, lambda: prediction.log_prob([0, 1, 2]))
