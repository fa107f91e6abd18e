"""Evidence and predictions of Laplace approximations against laplace-torch, at the same mode.

Run by hand, in an environment that has it: `pip install laplace-torch`, then `pytest tests/parity`.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.inference import MAP, Laplace

theirs = pytest.importorskip("laplace")

SCALE, NOISE = 0.8, 0.4
FORMS = {
    "full": ("all", "full"),
    "kron": ("all", "kron"),
    "diagonal": ("all", "diag"),
    "last_layer": ("last_layer", "full"),
}


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def network(outputs):
    return nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, outputs)).double()


def both(form, kind):
    """Our posterior, and theirs around the mean of ours."""
    inputs = numbers(60, 3)
    if kind == "regression":
        targets = torch.sin(inputs.sum(1, keepdim=True)) + NOISE * numbers(60, 1, seed=1)
        likelihood, outputs = likelihoods.Gaussian(NOISE), 1
    else:
        targets = (inputs @ numbers(3, 3, seed=2) + 0.5 * numbers(60, 3, seed=3)).argmax(1)
        likelihood, outputs = likelihoods.Categorical(), 3
    model = bp.Model(network(outputs), likelihood=likelihood, prior=priors.Normal(0.0, SCALE))
    method = Laplace(MAP(0.02), hessian=form)
    ours = bp.fit(model, (inputs, targets), method, epochs=300, batch_size=None, progress=False)
    subset, structure = FORMS[form]
    settings = {"sigma_noise": NOISE} if kind == "regression" else {}
    other = theirs.Laplace(
        ours.mean_network(),
        kind,
        subset_of_weights=subset,
        hessian_structure=structure,
        prior_precision=SCALE**-2,
        **settings,
    )
    other.fit(DataLoader(TensorDataset(inputs, targets), batch_size=60))
    return ours, other, numbers(9, 3, seed=4)


def differences(ours, other, inputs):
    """The largest differences of evidence, relative to it, and of predictions: moments of outputs, or probabilities by
    the probit approximation."""
    evidence = float(other.log_marginal_likelihood())
    found = {"log_evidence": abs(float(ours.log_evidence) - evidence) / abs(evidence)}
    if ours.model.likelihood.task == "regression":
        pairs = zip(("mean", "variance"), ours.function_moments(inputs), other(inputs), strict=True)
        return found | {name: float((mine[0] - its.double()).abs().max()) for name, mine, its in pairs}
    return found | {"probability": float((ours.probit(inputs) - other(inputs, link_approx="probit")).abs().max())}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["regression", "classification"])
@pytest.mark.parametrize("form", FORMS)
def test_evidence_and_predictions(form, kind):
    found = differences(*both(form, kind))
    assert len(found) == (3 if kind == "regression" else 2)
    assert max(found.values()) < 1e-4, found
