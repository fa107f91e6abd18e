"""What the tests of wrong input share: twenty rows, a small network, one attempt to fit it, and what was said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesprop as bp

ROWS = 20
INPUTS = torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(ROWS) % 2
QUANTITIES = torch.linspace(-1.0, 1.0, ROWS)
CATEGORICAL = bp.likelihoods.Categorical()


def network(inputs: int = 3, outputs: int = 2) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 4), nn.Tanh(), nn.Linear(4, outputs))


def bayes(**settings: Any) -> bp.inference.BayesByBackprop:
    """The method with everything named that a test could notice."""
    named = {
        "learning_rate": 1e-2,
        "optimizer": "adam",
        "estimator": bp.random_weights.SharedWeights(samples=1),
        "kl_weights": "uniform",
        "initial_mean": "fan_in",
        "initial_scale": 0.05,
        "schedule": bp.inference.Constant(),
        "clip_norm": None,
    }
    return bp.inference.BayesByBackprop(**{**named, **settings})


def attempt(
    data: Any,
    net: nn.Module | None = None,
    likelihood: bp.likelihoods.Likelihood = CATEGORICAL,
    *,
    output: Callable[[Any], Tensor] | None = None,
    method: Any = None,
    epochs: int = 2,
    batch_size: int | None = 8,
    seed: int = 0,
    **settings: Any,
) -> bp.posteriors.Posterior:
    """A short fit, in which nothing is left to a default that matters."""
    model = bp.Model(net or network(), likelihood=likelihood, prior=bp.priors.Normal(scale=1.0), output=output)
    settings = {"starts": 1, "progress": False, **settings}
    return bp.fit(model, data, method or bayes(), epochs=epochs, batch_size=batch_size, seed=seed, **settings)


def said(kind: type[Exception], call: Callable[[], Any]) -> str:
    """The message with which a call is refused."""
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def same(one: bp.posteriors.Posterior, other: bp.posteriors.Posterior) -> None:
    """Two posteriors are equal to the last bit."""
    for left, right in zip(one.moments(), other.moments(), strict=True):
        torch.testing.assert_close(left, right, rtol=0.0, atol=0.0)
