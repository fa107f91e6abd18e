"""What Gaussian and sparse variational dropout share: which columns have noise, and what it is made of."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.inference import GaussianDropout, SparseVariationalDropout
from bayesprop.rng import Rng

from ..conftest import small_network


@pytest.mark.parametrize("method", [GaussianDropout(), SparseVariationalDropout()])
def test_weights_of_layers_have_noise_and_nothing_else(method):
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian(), random="0.*")
    assert list(method.layers(model)) == ["0.weight"]
    noisy = method.has_noise(model, torch.device("cpu"))
    assert noisy.tolist() == [True] * 12 + [False] * 4
    posterior = method.posterior(model, method.init(model, Rng.create(0)))
    std = posterior.std()[0]
    assert bool((std[:12] > 0).all())
    assert torch.count_nonzero(std[12:]) == 0
    theta = posterior.draw(posterior.rng(0), 3)
    assert_close(theta[:, :, 12:], posterior.mean()[:, None, 12:].expand(-1, 3, -1), rtol=0.0, atol=0.0)


def test_both_refuse_priors_that_weights_would_teach():
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian(), prior=priors.Horseshoe())
    for method in (GaussianDropout(), SparseVariationalDropout()):
        with pytest.raises(ConfigurationError, match=f"{type(method).__name__} has the log-uniform prior"):
            method.init(model, Rng.create(0))
