"""All mass at one point."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.errors import CapabilityError
from bayesprop.posteriors import Delta


@pytest.fixture
def delta(model) -> Delta:
    """Three particles of a model with latents and point estimates."""
    made = model("points")
    location = torch.randn(3, made.layout.size, generator=torch.Generator().manual_seed(2), dtype=made.dtype)
    return Delta(made, location, made.initial_buffers(3))


def test_every_draw_is_the_location(delta):
    for seed, first in ((0, 0), (5, 40)):
        drawn = delta.draw(delta.rng(seed), 4, first)
        assert drawn.shape == (3, 4, delta.model.layout.size)
        assert_close(drawn, delta.location[:, None].expand(-1, 4, -1), rtol=0.0, atol=0.0)


def test_moments(delta):
    assert_close(delta.mean(), delta.location, rtol=0.0, atol=0.0)
    assert_close(delta.std(), torch.zeros_like(delta.location), rtol=0.0, atol=0.0)
    weight = delta.model.layout.block("0.weight")
    assert_close(delta.mean("0.weight"), delta.location[:, weight.columns].reshape(3, 4, 3), rtol=0.0, atol=0.0)
    noise = delta.model.layout.block("likelihood.scale")
    assert_close(delta.mean("likelihood.scale"), delta.location[:, noise.start].exp(), rtol=1e-14, atol=0.0)
    assert_close(delta.std("likelihood.scale"), torch.zeros(3).double(), rtol=0.0, atol=0.0)


def test_one_particle_has_no_epistemic_uncertainty(delta, rows):
    prediction = delta.member(1).predict(rows("points"), draws=7)
    assert prediction.num_draws == 1
    assert_close(prediction.epistemic, torch.zeros(6, 2).double(), rtol=0.0, atol=1e-14)
    scale = delta.mean("likelihood.scale")[1]
    assert_close(prediction.aleatoric, (scale**2).expand(6, 2), rtol=1e-12, atol=0.0)


def test_several_particles_disagree(rows):
    """Var[y] = E[noise variance] + Var[f], with the three functions of a linear network written out."""
    model = bp.Model(nn.Linear(3, 1).double(), likelihood=likelihoods.Gaussian(0.5))
    location = torch.randn(3, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    inputs = rows("plain")
    functions = location[:, :3] @ inputs.T + location[:, 3:]
    prediction = Delta(model, location, {}).predict(inputs, draws=3)
    assert prediction.num_draws == 3
    assert_close(prediction.mean, functions.mean(0), rtol=1e-12, atol=1e-14)
    assert_close(prediction.epistemic, functions.var(0, correction=0), rtol=1e-12, atol=1e-14)
    assert_close(prediction.aleatoric, torch.full((6,), 0.25).double(), rtol=1e-12, atol=0.0)


def test_what_needs_a_density_is_refused_and_says_who_has_one(delta, rows):
    targets = torch.zeros(6, 2, dtype=torch.float64)
    with pytest.raises(
        CapabilityError, match="the ELBO needs log_density, which a Delta posterior does not have"
    ) as caught:
        bp.elbo(delta, (rows("points"), targets))
    message = str(caught.value)
    assert "received: capabilities ['moments', 'weights']" in message
    assert "DiagonalGaussian" in message.partition("expected: one of ")[2]
    assert isinstance(caught.value, TypeError)


def test_its_tensors_make_it_again(delta):
    again = Delta.from_tensors(delta.model, delta.tensors(), delta.buffers, delta.context)
    assert list(delta.tensors()) == ["location"]
    assert_close(again.location, delta.location, rtol=0.0, atol=0.0)
    assert again.particles == 3


def test_it_is_saved_and_loaded(delta, network, rows, tmp_path):
    delta.save(tmp_path / "delta.bayes")
    again = bp.load(tmp_path / "delta.bayes", network=network("points"))
    assert isinstance(again, Delta)
    assert_close(again.location, delta.location, rtol=0.0, atol=0.0)
    assert_close(again.predict(rows("points"), 6).mean, delta.predict(rows("points"), 6).mean, rtol=0.0, atol=0.0)
