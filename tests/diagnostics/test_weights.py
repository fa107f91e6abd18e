"""Signal to noise of weights whose moments are written down."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.diagnostics import decibels, signal_to_noise
from bayesprop.diagnostics.weights import ratio


@pytest.fixture
def model():
    return bp.Model(nn.Linear(3, 1).double(), likelihood=likelihoods.Gaussian(0.5))


def gaussian(model, mean, std):
    rows = [torch.tensor(values, dtype=torch.float64) for values in (mean, std)]
    return bp.posteriors.DiagonalGaussian(model, *rows, {})


def test_by_name_and_in_the_shape_of_the_parameter(model):
    found = signal_to_noise(gaussian(model, [[3.0, -0.2, 1.0, 0.5]], [[1.5, 0.1, 4.0, 0.5]]))
    assert list(found) == ["weight", "bias"]
    assert_close(found["weight"], torch.tensor([[2.0, 2.0, 0.25]], dtype=torch.float64))
    assert_close(found["bias"], torch.tensor([1.0], dtype=torch.float64))


def test_particles_come_first(model):
    found = signal_to_noise(gaussian(model, [[1.0] * 4, [2.0] * 4], [[0.5] * 4, [0.5] * 4]))
    assert_close(found["weight"], torch.tensor([[[2.0] * 3], [[4.0] * 3]], dtype=torch.float64))


def test_what_is_known_is_infinite_and_what_is_removed_is_zero():
    mean, std = torch.tensor([2.0, 0.0, 0.0]), torch.tensor([0.0, 0.0, 1.0])
    assert ratio(mean, std).tolist() == [float("inf"), 0.0, 0.0]


def test_decibels_are_those_of_amplitudes():
    assert_close(decibels(torch.tensor([1.0, 10.0, 0.1, 2.0])), torch.tensor([0.0, 20.0, -20.0, 6.0206]))
    assert decibels(torch.tensor(0.0)) == -float("inf")


def test_weights_of_a_non_centred_prior_are_meant_not_their_columns():
    """A weight s z with log s ~ N(m, v^2): its ratio is below that of z, because s is not known either."""
    made = bp.Model(
        nn.Linear(2, 1, bias=False).double(), likelihood=likelihoods.Gaussian(0.5), prior=priors.Horseshoe(0.2)
    )
    mean = torch.full((1, made.layout.size), 0.7, dtype=torch.float64)
    std = torch.full((1, made.layout.latent), 0.3, dtype=torch.float64)
    posterior = bp.posteriors.DiagonalGaussian(made, mean, std, {})
    found = signal_to_noise(posterior)["weight"]
    assert_close(found, (posterior.mean("weight") / posterior.std("weight")).abs())
    assert bool((found < 0.7 / 0.3).all())
