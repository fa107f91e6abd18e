"""When a layer counts as collapsed, on posteriors that are written down; fits that collapse are in test_health.py."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bayesprop as bp
from bayesprop import diagnostics, likelihoods, priors

CATEGORICAL = likelihoods.Categorical()


def network(inputs: int = 2, outputs: int = 2) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, outputs))


def gaussian(prior, mean, std, net=None):
    """A posterior with one mean and one standard deviation everywhere."""
    model = bp.Model(net or network(), likelihood=CATEGORICAL, prior=prior)
    rows = torch.full((1, model.layout.size), mean), torch.full((1, model.layout.latent), std)
    return bp.posteriors.DiagonalGaussian(model, *rows, model.initial_buffers(1))


WEIGHTS = ["0.weight", "2.weight", "4.weight"]


@pytest.mark.parametrize(
    ("mean", "std", "collapsed"),
    [
        (0.0, 1.0, True),
        (0.31, 1.0, True),  # m^2 / 2 = 0.048 nats
        (0.33, 1.0, False),  # 0.054
        (0.0, 0.8, True),  # (s^2 - 1) / 2 - log s = 0.043
        (0.0, 0.75, False),  # 0.069
        (0.0, 1.2, True),  # 0.038
        (0.0, 1.3, False),  # 0.083
        (0.0, 0.02, False),
    ],
)
def test_a_collapsed_layer_has_less_than_a_twentieth_of_a_nat_a_weight(mean, std, collapsed):
    expected = WEIGHTS if collapsed else []
    assert diagnostics.collapsed_layers(gaussian(priors.Normal(scale=1.0), mean, std)) == expected
    # The same in other units: the prior twice as wide, and everything with it; Laplace has a closed form, too.
    assert diagnostics.collapsed_layers(gaussian(priors.Normal(scale=2.0), 2.0 * mean, 2.0 * std)) == expected


@pytest.mark.parametrize(
    "prior",
    [
        priors.ScaleMixture(pi=0.5, scale1=1.0, scale2=0.1),
        priors.StudentT(df=4.0, scale=1.0),
        priors.Normal(scale=priors.HalfNormal(1.0)),
    ],
    ids=["mixture", "student", "hierarchical"],
)
def test_priors_without_a_closed_form_are_compared_by_their_moments(prior):
    spread = float(bp.Model(network(), likelihood=CATEGORICAL, prior=prior).bound_prior.prior_std()[0])
    for mean, std, collapsed in ((0.0, 1.0, True), (0.3, 1.0, True), (0.4, 1.0, False), (0.0, 0.7, False)):
        found = diagnostics.collapsed_layers(gaussian(prior, mean * spread, std * spread))
        assert found == (WEIGHTS if collapsed else []), (mean, std)


@pytest.mark.parametrize(
    "prior", [priors.Normal(scale=1.0), priors.StudentT(df=10.0, scale=0.9)], ids=["kl", "moments"]
)
def test_a_layer_with_a_few_units_that_speak_has_not_collapsed(prior):
    """All units but one are switched off: on average there are 0.025 nats a weight, and the layer works."""
    posterior = gaussian(prior, 0.0, 1.0)
    assert diagnostics.collapsed_layers(posterior) == WEIGHTS
    block = posterior.model.layout.by_name["2.weight"]
    rows = posterior.moments()[0][0, block.columns].view(block.shape)
    rows[0] = (0.05 * block.shape[0]) ** 0.5
    assert float(rows.square().mean()) / 2 == pytest.approx(0.025)
    assert diagnostics.collapsed_layers(posterior) == ["0.weight", "4.weight"]


@pytest.mark.parametrize("prior", [priors.Flat(), priors.Cauchy(scale=1.0)])
@pytest.mark.parametrize("std", [0.02, 1.0, 10.0])
def test_nothing_can_collapse_to_what_has_no_moments(prior, std):
    assert diagnostics.collapsed_layers(gaussian(prior, 0.0, std)) == []


def test_only_the_layers_that_have_collapsed_are_named():
    mapping = {"2.weight": priors.Normal(scale=1.0), "4.weight": priors.Flat(), "*": priors.Normal(scale=0.1)}
    assert diagnostics.collapsed_layers(gaussian(mapping, 0.0, 1.0)) == ["2.weight"]
    assert diagnostics.collapsed_layers(gaussian(mapping, 0.0, 0.1)) == ["0.weight"]


@pytest.mark.parametrize("make", [priors.from_posterior, lambda p: priors.pretrained(p.mean_network(), scale=1.0)])
def test_staying_near_a_prior_that_was_learnt_is_no_collapse(make):
    """The posterior of one task is the prior of the next, which brings nothing new."""
    first = gaussian(priors.Normal(scale=1.0), 0.0, 1.0)
    first.moments()[0].copy_(torch.linspace(-1.0, 1.0, first.model.layout.size))
    prior = make(first)
    second = gaussian(prior, 0.0, 1.0)
    second.moments()[0].copy_(first.moments()[0])
    assert float(second.model.bound_prior.kl(*second.moments())) == pytest.approx(0.0, abs=1e-3)
    assert diagnostics.collapsed_layers(second) == []
    # One location for all weights is a belief like others, wherever it lies.
    assert diagnostics.collapsed_layers(gaussian(priors.Normal(loc=2.0, scale=1.0), 2.0, 1.0)) == WEIGHTS


def test_a_point_is_no_distribution_that_could_collapse():
    assert diagnostics.collapsed_layers(gaussian(priors.Normal(scale=1.0), 0.0, 1.0).at_mean()) == []
