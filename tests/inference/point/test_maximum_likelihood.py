"""MLE: least squares where the likelihood is Gaussian, and nothing of the prior."""

from __future__ import annotations

import pytest
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.inference import MLE, SGD, Constant
from bayesprop.rng import Rng
from bayesprop.testing import MethodSuite

from ..conftest import normal, small_network


class TestMLE(MethodSuite):
    def make(self):
        return MLE(learning_rate=0.02)

    def check_linear_regression(self, problem):
        """Least squares, whatever the prior says."""
        method = MLE(learning_rate=0.1, optimizer=SGD(0.8), schedule=Constant())
        posterior = bp.fit(problem.model, problem.data, method, epochs=600, batch_size=None, progress=False)
        assert_close(posterior.mean()[0], problem.least_squares, rtol=0.0, atol=1e-8)
        assert float((problem.least_squares - problem.mean).abs().max()) > 1e-3


def test_the_prior_is_not_looked_at():
    data = (normal(12, 3), normal(12, 1, seed=1))
    found = []
    for prior in (priors.Normal(0.0, 1.0), priors.Normal(5.0, 0.001), priors.Flat()):
        model = bp.Model(small_network(), likelihood=likelihoods.Gaussian(0.5), prior=prior)
        found.append(bp.fit(model, data, MLE(), epochs=3, batch_size=4, progress=False).mean())
    assert_close(found[0], found[1], rtol=0.0, atol=0.0)
    assert_close(found[0], found[2], rtol=0.0, atol=0.0)


def test_scales_that_only_a_prior_can_estimate_are_refused():
    model = bp.Model(
        nn.Linear(3, 1), likelihood=likelihoods.Gaussian(0.5), prior=priors.Normal(0.0, priors.HalfNormal(1.0))
    )
    with pytest.raises(ConfigurationError, match="MLE does not look at the prior") as caught:
        MLE().init(model, Rng.create(0))
    assert "write: bp.inference.MAP()" in str(caught.value)
