"""Log joints read off models: what becomes of the prior's numbers, and of what has none."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bayesprop import likelihoods, priors
from bayesprop.inference.joints import native_joint
from bayesprop.kernels.small_stack import Joint
from bayesprop.model import Model


def model(prior=None, likelihood=None, network: nn.Module | None = None) -> Model:
    network = network or nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    made = Model(network, likelihood=likelihood or likelihoods.Gaussian(0.3), prior=prior)
    made.probe(torch.zeros(4, 2), torch.zeros(4, 1))
    return made


def test_numbers_of_a_normal_prior():
    found = native_joint(model({"0.*": priors.Normal(0.2, 0.5), "*": priors.Normal()}))
    assert isinstance(found, Joint)
    assert found.center[:9].tolist() == pytest.approx([0.2] * 9)
    assert found.precision.tolist() == pytest.approx([4.0] * 9 + [1.0] * 4)
    assert found.scale_column.tolist() == [-1] * 13
    assert found.latents == ()
    assert found.noise == pytest.approx(0.3)


def test_scales_and_noise_that_are_learnt():
    prior = priors.Normal(0.1, priors.HalfNormal(2.0, shared="network"))
    found = native_joint(model(prior, likelihoods.Gaussian(priors.HalfCauchy(0.5))))
    assert isinstance(found, Joint)
    assert set(found.scale_column.tolist()) == {13}
    assert found.loc.tolist() == pytest.approx([0.1] * 13)
    assert found.noise_column == 14
    assert sorted(found.latents) == [(13, 0, 2.0), (14, 1, 0.5)]


def test_it_is_read_once():
    made = model()
    assert native_joint(made) is native_joint(made)


@pytest.mark.parametrize(
    ("network", "prior", "likelihood", "words"),
    [
        (nn.Sequential(nn.Linear(2, 3), nn.GELU(), nn.Linear(3, 1)), None, None, "GELU"),
        (None, priors.Laplace(), None, "a prior that is not normal"),
        (None, None, likelihoods.StudentT(), "the likelihood is StudentT"),
        (
            nn.Sequential(nn.Linear(2, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 1)),
            None,
            None,
            "up to 20,000",
        ),
    ],
)
def test_what_has_none_says_why(network, prior, likelihood, words):
    found = native_joint(model(prior, likelihood, network))
    assert isinstance(found, str)
    assert words in found
