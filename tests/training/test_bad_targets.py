"""Targets as people bring them: each works as one would expect, or is refused with what to do instead."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import bayesprop as bp
from bayesprop.errors import DataError

from .attempts import CATEGORICAL, INPUTS, LABELS, QUANTITIES, ROWS, attempt, bayes, network, said, same

BERNOULLI, POISSON = bp.likelihoods.Bernoulli(), bp.likelihoods.Poisson()
GAUSSIAN = bp.likelihoods.Gaussian(scale=0.5)
COUNTS = torch.arange(ROWS) % 4
NAMES = np.array(["no", "yes"])[LABELS.numpy()]


def loader(targets, batch_size=5):
    return DataLoader(TensorDataset(INPUTS, targets), batch_size=batch_size)


# -- shapes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("likelihood", "outputs", "targets"),
    [
        (CATEGORICAL, 2, LABELS),
        (BERNOULLI, 1, LABELS),
        (GAUSSIAN, 1, QUANTITIES),
        (bp.likelihoods.HeteroscedasticGaussian(), 2, QUANTITIES),
        (bp.likelihoods.StudentT(df=4.0, scale=0.5), 1, QUANTITIES),
        (POISSON, 1, COUNTS),
    ],
)
def test_a_column_of_targets_is_a_vector(likelihood, outputs, targets):
    """(n, 1) against (n,) would broadcast to n x n comparisons."""
    column = attempt((INPUTS, targets[:, None]), network(outputs=outputs), likelihood)
    vector = attempt((INPUTS, targets), network(outputs=outputs), likelihood)
    same(column, vector)
    prediction = column.predict(INPUTS, draws=4)
    torch.testing.assert_close(prediction.log_prob(targets[:, None]), prediction.log_prob(targets), rtol=0.0, atol=0.0)


@pytest.mark.parametrize(
    ("outputs", "columns", "write"),
    [
        (1, 3, "write: a last layer with 3 outputs"),
        (3, 2, "write: a last layer with 2 outputs"),
        (3, None, "write: a last layer with 1 output"),
        (2, None, "or likelihoods.HeteroscedasticGaussian(), which reads the second half as scales"),
    ],
)
def test_targets_of_another_shape_than_the_outputs(outputs, columns, write):
    targets = QUANTITIES if columns is None else QUANTITIES[:, None].expand(ROWS, columns)
    message = said(DataError, lambda: attempt((INPUTS, targets), network(outputs=outputs), GAUSSIAN))
    assert f"received: outputs (7, {outputs}) for targets {tuple(targets.shape)}" in message
    assert write in message


def test_inputs_and_targets_swapped():
    message = said(DataError, lambda: attempt((LABELS, INPUTS)))
    assert "Categorical() needs labels that are whole numbers" in message
    message = said(DataError, lambda: attempt((QUANTITIES, INPUTS), network(outputs=1), GAUSSIAN))
    assert "the network cannot take these inputs" in message
    assert "write: inputs[:, None]" in message


# -- labels ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8, torch.bool])
def test_labels_of_any_whole_type(dtype):
    same(attempt((INPUTS, LABELS.to(dtype))), attempt((INPUTS, LABELS)))


@pytest.mark.parametrize(
    ("labels", "write"),
    [
        (LABELS + 1, "expected: labels 0..1: yours seem to count from 1\n  write: targets - 1"),
        (LABELS * 5, "write: a last layer with 6 outputs"),
        (LABELS - 1, "received: -1 in row 0"),
        (LABELS.float(), "write: targets.long()"),
        (LABELS + 0.5, "write: likelihoods.Gaussian() if the targets are quantities"),
        (torch.eye(2)[LABELS], "write: targets.argmax(dim=1)"),
        (torch.eye(2)[LABELS].long(), "write: targets.argmax(dim=1)"),
    ],
    ids=["from one", "too high", "negative", "floats", "fractions", "columns of floats", "columns of integers"],
)
def test_labels_that_are_no_classes(labels, write):
    assert write in said(DataError, lambda: attempt((INPUTS, labels)))


def test_what_the_message_says_to_write_works():
    expected = attempt((INPUTS, LABELS))
    for labels in ((LABELS + 1) - 1, LABELS.float().long(), torch.eye(2)[LABELS].argmax(dim=1)):
        same(attempt((INPUTS, labels)), expected)


@pytest.mark.parametrize(("likelihood", "outputs"), [(CATEGORICAL, 2), (BERNOULLI, 1), (GAUSSIAN, 1), (POISSON, 1)])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_targets_that_are_not_finite(likelihood, outputs, value):
    targets = LABELS.float()
    targets[11] = value
    message = said(DataError, lambda: attempt((INPUTS, targets), network(outputs=outputs), likelihood))
    assert f"{value} in row 11" in message
    assert "keep = torch.isfinite(targets); inputs[keep], targets[keep]" in message


@pytest.mark.parametrize(
    ("labels", "write"),
    [
        (LABELS + 1, "write: targets - 1"),
        (2 * LABELS - 1, "write: (targets + 1) // 2"),
        (torch.arange(ROWS) % 3, "write: likelihoods.Categorical() and a last layer with 3 outputs"),
        (QUANTITIES, "received: -1 in row 0; values -1..1"),
    ],
)
def test_labels_that_are_not_yes_or_no(labels, write):
    message = said(DataError, lambda: attempt((INPUTS, labels), network(outputs=1), BERNOULLI))
    assert message.startswith("Bernoulli() needs labels 0 and 1")
    assert write in message


def test_yes_or_no_in_any_type():
    expected = attempt((INPUTS, LABELS), network(outputs=1), BERNOULLI)
    for labels in (LABELS.float(), LABELS > 0, LABELS.double().numpy(), LABELS.tolist()):
        same(attempt((INPUTS, labels), network(outputs=1), BERNOULLI), expected)


def test_a_label_too_high_in_a_later_batch():
    labels = LABELS.clone()
    labels[13] = 7
    message = said(DataError, lambda: attempt(loader(labels)))
    assert "received the label 7 for a network with 2 outputs" in message
    assert "write: a last layer with 8 outputs" in message


def test_one_class_only():
    """Nothing speaks for the other class: what was seen becomes likely, and no probability breaks."""
    posterior = attempt((INPUTS, torch.zeros(ROWS, dtype=torch.int64)), epochs=20, method=bayes(learning_rate=0.05))
    prediction = posterior.predict(INPUTS, draws=20)
    assert float(prediction.mean[:, 0].min()) > 0.6
    assert float(prediction.mean[:, 0].mean()) > 0.8
    assert bool(torch.isfinite(prediction.log_prob(torch.ones(ROWS, dtype=torch.int64))).all())


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [NAMES, NAMES.tolist(), NAMES.astype(object), NAMES.astype("S3")],
    ids=["array", "list", "objects", "bytes"],
)
@pytest.mark.parametrize(("likelihood", "outputs"), [(CATEGORICAL, 2), (BERNOULLI, 1)])
def test_labels_that_are_text(names, likelihood, outputs):
    posterior = attempt((INPUTS, names), network(outputs=outputs), likelihood)
    same(posterior, attempt((INPUTS, LABELS), network(outputs=outputs), likelihood))  # "no" is 0 and "yes" is 1
    prediction = posterior.predict(INPUTS, draws=4)
    assert posterior.context.classes == ["no", "yes"]
    assert set(prediction.label.tolist()) <= {"no", "yes"}
    torch.testing.assert_close(prediction.log_prob(names), prediction.log_prob(LABELS), rtol=0.0, atol=0.0)


def test_more_names_than_outputs():
    names = np.array(["no", "yes", "maybe"])[np.arange(ROWS) % 3]
    assert "write: a last layer with 3 outputs" in said(DataError, lambda: attempt((INPUTS, names)))
    message = said(DataError, lambda: attempt((INPUTS, names), network(outputs=1), BERNOULLI))
    assert message.startswith("Bernoulli() needs labels 0 and 1")


@pytest.mark.parametrize(("names", "outputs", "count"), [(NAMES, 3, 2), (["yes"] * ROWS, 2, 1)])
def test_fewer_names_than_outputs(names, outputs, count):
    """The network could predict a class that has no name."""
    message = said(DataError, lambda: attempt((INPUTS, names), network(outputs=outputs)))
    assert message.startswith(f"the network tells {outputs} classes apart, and {count} ha")
    assert "write: bp.Data(inputs, targets, classes=[...])" in message


def test_all_names_are_given():
    posterior = attempt(bp.Data(INPUTS, ["yes"] * ROWS, classes=["no", "yes"]))
    same(posterior, attempt((INPUTS, torch.ones(ROWS, dtype=torch.int64))))
    assert set(posterior.predict(INPUTS, draws=4).label.tolist()) <= {"no", "yes"}


@pytest.mark.parametrize("likelihood", [GAUSSIAN, POISSON, bp.likelihoods.StudentT(df=4.0, scale=0.5)])
def test_names_where_quantities_are_needed(likelihood):
    """The position of a name in the alphabet is no quantity."""
    message = said(DataError, lambda: attempt((INPUTS, NAMES), network(outputs=1), likelihood))
    assert message.startswith(f"{likelihood!r} needs numbers as targets")
    assert "received: names of classes, such as 'no'" in message
    assert "likelihood=bp.likelihoods.Categorical()" in message


def test_names_with_holes():
    message = said(DataError, lambda: attempt((INPUTS, [*NAMES.tolist()[:-1], None])))
    assert message.startswith("the labels are partly text")
    assert "None (NoneType) at row 19" in message


# -- counts and quantities ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (COUNTS - 1, "Poisson() received a negative value\n  received: -1 in row 0"),
        (COUNTS + 0.5, "Poisson() needs counts\n  received: 0.5 in row 0"),
    ],
)
def test_counts_that_are_none(counts, words):
    assert words in said(DataError, lambda: attempt((INPUTS, counts), network(outputs=1), POISSON))


@pytest.mark.parametrize(
    ("likelihood", "targets"), [(POISSON, COUNTS.float()), (BERNOULLI, LABELS.float()), (CATEGORICAL, LABELS.float())]
)
def test_labels_and_counts_are_not_to_be_standardised(likelihood, targets):
    data = bp.Data(INPUTS, targets, standardize=True)
    message = said(DataError, lambda: attempt(data, network(outputs=1), likelihood))
    assert message.startswith(f"{likelihood!r} needs its targets as they are")
    assert 'write: bp.Data(inputs, targets, standardize="inputs")' in message


def test_whole_labels_and_counts_stay_as_they_are_when_inputs_are_standardised():
    for likelihood, targets in ((POISSON, COUNTS), (BERNOULLI, LABELS)):
        whole = bp.Data(INPUTS, targets, standardize=True)
        inputs_only = bp.Data(INPUTS, targets.float(), standardize="inputs")
        one, other = (attempt(data, network(outputs=1), likelihood) for data in (whole, inputs_only))
        same(one, other)


def test_quantities_that_are_not_finite_cannot_be_standardised():
    holes = QUANTITIES.clone()
    holes[3] = math.nan
    message = said(DataError, lambda: bp.Data(INPUTS, holes, standardize=True))
    assert "received: nan at row 3" in message


def test_quantities_of_a_later_batch_that_are_not_finite():
    holes = QUANTITIES.clone()
    holes[13] = math.nan
    message = said(DataError, lambda: attempt(loader(holes), network(outputs=1), GAUSSIAN))
    assert "received a target that is not finite" in message


@pytest.mark.filterwarnings("ignore:the fit is worse than")  # a few steps are not meant to fit
def test_constant_quantities():
    posterior = attempt(bp.Data(INPUTS, torch.full((ROWS,), 7.0), standardize=True), network(outputs=1), GAUSSIAN)
    prediction = posterior.predict(INPUTS, draws=8)
    assert bool(torch.isfinite(prediction.mean).all())
    assert float((prediction.mean - 7.0).abs().max()) < 10.0  # a deviation of 0 counts as 1


def test_float64_targets_and_whole_quantities():
    expected = attempt((INPUTS, QUANTITIES), network(outputs=1), GAUSSIAN)
    same(attempt((INPUTS, QUANTITIES.double().numpy()), network(outputs=1), GAUSSIAN), expected)
    whole = attempt((INPUTS, COUNTS), network(outputs=1), GAUSSIAN)
    same(whole, attempt((INPUTS, COUNTS.float()), network(outputs=1), GAUSSIAN))


def test_complex_quantities():
    message = said(DataError, lambda: attempt((INPUTS, QUANTITIES.to(torch.complex64)), network(outputs=1), GAUSSIAN))
    assert message.endswith("write: targets.real")
