"""What networks return: each answer works as one would expect, or is refused with what to write instead."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import bayesprop as bp
from bayesprop.errors import BayespropWarning, ConfigurationError, DataError, DivergenceError

from .attempts import INPUTS, LABELS, QUANTITIES, ROWS, attempt, network, said, same

DATA = INPUTS, LABELS
GAUSSIAN = bp.likelihoods.Gaussian(scale=0.5)


class Wrapped(nn.Module):
    """A network with something done to its output."""

    def __init__(self, then, outputs: int = 2):
        super().__init__()
        self.inner = network(outputs=outputs)
        self.then = then

    def forward(self, x):
        return self.then(self.inner(x))


class Answer:
    def __init__(self, logits):
        self.name, self.logits = "answer", logits


# -- what it returns ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("then", "received", "pick"),
    [
        (lambda out: (out, out.sum()), "a tuple of 2", "result[0]"),
        (lambda out: [None, out], "a list of 2", "result[1]"),
        (lambda out: {"loss": None, "logits": out}, "a dict of 2", "result['logits']"),
        (Answer, "a Answer", "result.logits"),
    ],
    ids=["tuple", "list", "dict", "object"],
)
def test_more_than_one_tensor(then, received, pick):
    message = said(DataError, lambda: attempt(DATA, Wrapped(then)))
    assert f"received: {received}\n" in message
    assert message.endswith(f"write: bp.Model(network, output=lambda result: {pick}, ...)")
    output = eval(f"lambda result: {pick}")  # the very line of the message
    assert attempt(DATA, Wrapped(then), output=output).predict(INPUTS, draws=4).mean.shape == (ROWS, 2)


def test_nothing():
    message = said(DataError, lambda: attempt(DATA, Wrapped(lambda out: None)))
    assert "received: nothing\n" in message
    assert "write: return outputs" in message


def test_an_output_that_cannot_be_picked():
    pair = Wrapped(lambda out: (out, out))
    message = said(DataError, lambda: attempt(DATA, pair, output=lambda result: result["logits"]))
    assert message.startswith("output=... cannot pick from what the network returns: TypeError")
    assert "received: a tuple of 2" in message
    message = said(ConfigurationError, lambda: attempt(DATA, pair, output=0))
    assert message.endswith("write: output=lambda result: result[0]")


@pytest.mark.parametrize(
    ("then", "shape"),
    [
        (lambda out: out.sum(), "outputs ()"),
        (lambda out: out.mean(0), "outputs (1,)"),
        (lambda out: out.mean(0, keepdim=True), "outputs (1, 1)"),
        (lambda out: out.T, "outputs (1, 7)"),
    ],
    ids=["a sum", "a mean over rows", "a mean row", "transposed"],
)
def test_rows_that_are_lost(then, shape):
    """One number for all rows would be compared with the target of every row."""
    message = said(DataError, lambda: attempt((INPUTS, QUANTITIES), Wrapped(then, outputs=1), GAUSSIAN))
    assert message.startswith("the network must return one row for each row of the inputs")
    assert f"received: {shape} for 7 rows" in message
    assert "write: a network that keeps the first dimension" in message


def test_a_single_row_that_is_lost():
    squeezed = Wrapped(torch.squeeze, outputs=1)
    message = said(DataError, lambda: attempt((INPUTS, QUANTITIES), squeezed, GAUSSIAN))
    assert "also for a single one\n  received: outputs () for 1 row, (7,) for 7 rows" in message
    assert "write: x.squeeze(-1) instead of x.squeeze()" in message
    flat = attempt((INPUTS, QUANTITIES), Wrapped(lambda out: out.squeeze(-1), outputs=1), GAUSSIAN)
    same(flat, attempt((INPUTS, QUANTITIES), Wrapped(lambda out: out, outputs=1), GAUSSIAN))
    assert flat.predict(INPUTS[:1], draws=4).mean.shape == (1,)


@pytest.mark.parametrize(
    "then",
    [
        lambda out: out.detach(),
        lambda out: torch.as_tensor(out.detach().numpy()),
        lambda out: out.argmax(1, keepdim=True).expand(-1, 2),
        lambda out: torch.zeros(len(out), 2),
    ],
    ids=["detach", "numpy", "argmax", "a constant"],
)
def test_no_way_back_to_the_weights(then):
    message = said(DataError, lambda: attempt(DATA, Wrapped(then)))
    assert message.startswith("the network's output has no gradient with respect to any weight that is to be learnt")
    assert ".detach(), .item() or .numpy() inside" in message


def test_a_softmax_before_the_softmax():
    message = said(DataError, lambda: attempt(DATA, nn.Sequential(network(), nn.Softmax(dim=1))))
    assert message.startswith("Categorical() needs logits, and applies the softmax itself")
    assert message.endswith("write: the network without the softmax at its end")
    # The logarithm of probabilities is as good as logits.
    assert attempt(DATA, nn.Sequential(network(), nn.LogSoftmax(dim=1))).context.num_data == ROWS


def test_outputs_that_are_not_finite():
    broken = Wrapped(lambda out: out * math.nan, outputs=1)
    message = said(DivergenceError, lambda: attempt((INPUTS, QUANTITIES), broken, GAUSSIAN))
    assert "the data term (the log-likelihood of the minibatch) was not finite first at step 0" in message


def test_one_output_for_classes():
    message = said(DataError, lambda: attempt(DATA, network(outputs=1)))
    assert "a softmax over one output is always 1" in message
    assert "write: likelihoods.Bernoulli() for one logit" in message


# -- rows that meet ----------------------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.recurrent = nn.RNN(2, 3, batch_first=batch_first)
        self.last = nn.Linear(3, 2)

    def forward(self, x):
        return self.last(self.recurrent(x)[0][:, -1])


def test_rows_that_influence_one_another():
    sequences = torch.randn(ROWS, 5, 2, generator=torch.Generator().manual_seed(2))
    with pytest.warns(BayespropWarning, match=r"depends on the other rows of the batch .*batch_first=True"):
        attempt((sequences, LABELS), Recurrent(batch_first=False), epochs=1)
    posterior = attempt((sequences, LABELS), Recurrent(batch_first=True), epochs=1)
    order = torch.arange(ROWS).flip(0)
    found, reordered = (posterior.predict(some, draws=4).mean for some in (sequences, sequences[order]))
    torch.testing.assert_close(reordered, found[order])


def test_batch_normalisation_without_running_statistics():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 2))
    with pytest.warns(BayespropWarning, match="the network cannot take it alone"):
        attempt(DATA, net)
