"""Networks as people build them: each works as one would expect, or is refused with what to write instead."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesprop as bp
from bayesprop.errors import BayespropWarning, ConfigurationError, DataError

from .attempts import CATEGORICAL, INPUTS, LABELS, ROWS, attempt, bayes, network, said, same

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


# -- what it is made of ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("net", [network().requires_grad_(False), nn.Flatten()], ids=["frozen", "empty"])
def test_nothing_to_learn(net):
    message = said(ConfigurationError, lambda: attempt(DATA, net))
    assert message.startswith("nothing in this network can be learnt")
    assert "write: network.requires_grad_(True)" in message


def test_an_output_that_does_not_depend_on_the_inputs():
    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.logits = nn.Parameter(torch.zeros(2))

        def forward(self, x):
            return self.logits.expand(len(x), 2)

    prediction = attempt((INPUTS, LABELS), Constant()).predict(INPUTS, draws=10)
    torch.testing.assert_close(prediction.mean, prediction.mean[:1].expand(ROWS, 2))
    assert float(prediction.epistemic.min()) > 0.0


@pytest.mark.parametrize(
    "estimator",
    [
        bp.random_weights.SharedWeights(samples=1),
        bp.random_weights.SharedWeights(samples=2),
        bp.random_weights.LocalReparameterization(samples=1),
        bp.random_weights.Flipout(samples=1),
    ],
    ids=repr,
)
def test_weights_that_are_not_used_go_to_their_prior(estimator):
    net = Wrapped(lambda out: out)
    net.spare = nn.Linear(3, 3)
    method = bayes(learning_rate=0.1, estimator=estimator)
    with pytest.warns(BayespropWarning, match=r"spare\.weight: the posterior has collapsed to the prior"):
        posterior = attempt(DATA, net, epochs=60, batch_size=None, method=method)
    assert float((posterior.std("spare.weight") - 1.0).abs().max()) < 0.2
    assert float(posterior.mean("spare.weight").abs().max()) < 0.2


def test_parameters_of_size_zero():
    net = Wrapped(lambda out: out)
    net.nothing = nn.Parameter(torch.zeros(0, 3))
    posterior = attempt(DATA, net)
    same(posterior, attempt(DATA, Wrapped(lambda out: out)))
    assert posterior.model.layout.size == 26
    assert "nothing" in posterior.model.fixed_names


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_networks_in_another_precision(dtype):
    posterior = attempt(DATA, network().to(dtype))
    assert posterior.mean().dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert bool(torch.isfinite(posterior.predict(INPUTS, draws=4).log_prob(LABELS)).all())


def test_networks_that_cannot_be_taken_yet():
    assert "write: network(example_input)  # once" in said(
        ConfigurationError, lambda: bp.Model(nn.LazyLinear(2), likelihood=CATEGORICAL)
    )
    message = said(ConfigurationError, lambda: bp.Model(network().to("meta"), likelihood=CATEGORICAL))
    assert message.startswith("0.weight has no values: it is on the meta device")
    assert 'write: network.to_empty(device="cpu")' in message


def test_networks_inside_of_something_that_runs_them():
    message = said(ConfigurationError, lambda: bp.Model(nn.DataParallel(network()), likelihood=CATEGORICAL))
    assert message.endswith("received: a DataParallel\n  write: bp.Model(network.module, ...)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its own scripts deprecated
        scripted = torch.jit.script(network())
    message = said(ConfigurationError, lambda: bp.Model(scripted, likelihood=CATEGORICAL))
    assert message.endswith("write: bp.Model(network, ...)  # as it was before torch.jit")


# -- dropout and batch normalisation -----------------------------------------------------------------------------------


def normalised() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2))


@pytest.mark.filterwarnings("ignore:the fit is worse than")  # a few steps are not meant to fit
def test_dropout_and_batch_normalisation():
    net = normalised()
    before, state = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    posterior = attempt(DATA, net)
    torch.testing.assert_close(torch.get_rng_state(), state, rtol=0.0, atol=0.0)
    torch.testing.assert_close(net.state_dict(), before, rtol=0.0, atol=0.0)  # the user's own network is untouched
    assert float(posterior.buffers["1.running_mean"].abs().max()) > 0.0
    # Dropout is off when predicting, and batch statistics do not mix the rows.
    together, alone = posterior.predict(INPUTS, draws=4).mean, posterior.predict(INPUTS[3:4], draws=4).mean
    torch.testing.assert_close(alone, together[3:4])
    same(posterior, attempt(DATA, net))


@pytest.mark.parametrize(
    ("data", "batch_size"),
    [
        (DATA, 1),
        ((INPUTS[:1], LABELS[:1]), 8),
        (DataLoader(TensorDataset(*DATA), batch_size=19), None),
    ],
    ids=["batches of one row", "one example", "a loader whose last batch is one row"],
)
def test_batch_normalisation_of_one_row(data, batch_size):
    message = said(DataError, lambda: attempt(data, normalised(), batch_size=batch_size))
    assert "expected: batch normalisation needs at least two rows in each batch" in message
    assert "write: batch_size=2 or more, DataLoader(..., drop_last=True)" in message


def test_batch_normalisation_that_arrives_in_evaluation_mode():
    net = normalised()
    net[1].eval()
    posterior = attempt(DATA, net, batch_size=1)
    torch.testing.assert_close(posterior.buffers["1.running_mean"], torch.zeros(1, 4), rtol=0.0, atol=0.0)


def test_a_last_batch_is_as_large_as_the_others():
    """20 rows in batches of at most 19 are two batches of 10, and not one of 19 and one of 1."""
    assert attempt(DATA, normalised(), batch_size=19).context.num_data == ROWS


# -- embeddings --------------------------------------------------------------------------------------------------------


def embedded() -> nn.Sequential:
    return nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 2))


INDICES = torch.arange(2 * ROWS).reshape(ROWS, 2) % 5


@pytest.mark.parametrize("row", [0, 15])
def test_an_index_beyond_the_embedding(row):
    """Also in a row that the first look does not see."""
    indices = INDICES.clone()
    indices[row, 1] = 9
    message = said(DataError, lambda: attempt((indices, LABELS), embedded()))
    assert "index out of range" in message
    assert "expected: indices below num_embeddings: 0 has 5" in message
    assert "write: torch.nn.Embedding(num_embeddings=<largest index + 1>, ...)" in message
    posterior = attempt((INDICES, LABELS), embedded())
    assert "0 has 5" in said(DataError, lambda: posterior.predict(indices[row : row + 1]).mean)


def test_indices_that_are_not_whole():
    message = said(DataError, lambda: attempt((INDICES.float(), LABELS), embedded()))
    assert message.endswith("write: inputs.long()  # torch.nn.Embedding reads whole numbers")
    for dtype in (torch.int32, torch.int64):
        assert attempt((INDICES.to(dtype), LABELS), embedded()).context.num_data == ROWS
