"""No call touches torch's global generator, and none depends on its state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

import bayesprop as bp
from bayesprop import likelihoods, random_weights


@pytest.fixture
def untouched():
    """Runs a call twice, from two states of the global generators, which it has to leave as they were."""

    def check(call: Callable[[], Any]) -> tuple[Any, Any]:
        results = []
        for seed in (1, 2):
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                before, numpy_before = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
                results.append(call())
                assert torch.equal(torch.get_rng_state(), before)
                after = np.random.get_state()  # noqa: NPY002
                assert numpy_before[2:] == after[2:]
                np.testing.assert_array_equal(numpy_before[1], after[1])
        return results[0], results[1]

    return check


TRAININGS = {
    "rows": ({}, {}, {}),
    "dropout": ({"name": "dropout"}, {}, {}),
    "dropout in two starts": ({"name": "dropout"}, {}, {"starts": 2, "validation": 0.25, "patience": 2}),
    "flipout": ({"name": "dropout"}, {"estimator": random_weights.Flipout(2)}, {}),
    "standardised": ({"likelihood": likelihoods.StudentT(4.0)}, {}, {"validation": 0.25}),
}


@pytest.mark.parametrize("name", list(TRAININGS))
@pytest.mark.parametrize("loader", [False, True])
def test_training(fit, model, method, pair, same, untouched, name, loader):
    arguments, how, changes = TRAININGS[name]
    inputs, targets = pair()

    def train():
        data: Any = (inputs, targets)
        if loader:
            data = DataLoader(TensorDataset(inputs, targets), batch_size=8, shuffle=True)
        held_out = {"validation": pair(seed=3)} if loader and "validation" in changes else {}
        return fit(model(**arguments), data, method(**how), **{**changes, **held_out})

    same(*untouched(train))


def everything(posterior, path, inputs, targets) -> list[torch.Tensor]:
    """Each thing that a posterior can be asked."""
    prediction = posterior.predict(inputs, 5)
    posterior.save(path)
    loaded = bp.load(path, network=posterior.model.network)
    network = posterior.mean_network()
    return [
        prediction.mean,
        prediction.draws,
        prediction.samples(7),
        prediction.entropy,
        prediction.quantile(0.3),
        prediction.log_prob(targets),
        posterior.sample(2)["0.weight"],
        posterior.kl(3),
        bp.elbo(posterior, (inputs, targets), draws=3),
        loaded.predict(inputs, 5).mean,
        posterior.at_mean().predict(inputs, 1).mean,
        network(inputs).detach(),
    ]


def test_whatever_a_posterior_is_asked(fit, model, pair, untouched, tmp_path):
    made = model("dropout", likelihood=likelihoods.StudentT(2.5), prior=bp.priors.Horseshoe(0.5))
    posterior = fit(made)
    first, second = untouched(lambda: everything(posterior, tmp_path / "saved.bayes", *pair()))
    assert len(first) == 12
    assert_close(first, second, rtol=0.0, atol=0.0)
