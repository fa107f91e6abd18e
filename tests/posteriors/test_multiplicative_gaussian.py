"""Noise in proportion to weights: alpha, sparsity, draws, files, refusals."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.errors import CapabilityError
from bayesprop.posteriors import MultiplicativeGaussian

MEAN = torch.tensor([[1.0, -2.0, 0.0, 0.5], [1.0, 2.0, 3.0, 0.5]])
STD = torch.tensor([[0.5, 2.0, 0.0, 0.0], [0.5, 0.5, 0.5, 0.0]])


def posterior():
    model = bp.Model(nn.Linear(3, 1), likelihood=likelihoods.Gaussian(0.1))
    return MultiplicativeGaussian(model, MEAN, STD, {})


def test_alpha_and_sparsity():
    found = posterior()
    assert found.alpha("weight")[0].tolist() == [[0.25, 1.0, float("inf")]]
    assert found.member(1).alpha("weight").shape == (1, 3)
    assert found.sparsity() == {"weight": pytest.approx(1.0 / 6.0), "all": pytest.approx(1.0 / 6.0)}
    assert found.layers == ("weight",)


def test_draws_and_files(tmp_path):
    found = posterior()
    theta = found.draw(found.rng(0), 4)
    assert torch.count_nonzero(theta[0, :, 2]) == 0
    assert_close(theta[:, :, 3], MEAN[:, 3:].expand(-1, 4))
    found.save(tmp_path / "one.bayes")
    again = bp.load(tmp_path / "one.bayes", network=nn.Linear(3, 1))
    assert isinstance(again, MultiplicativeGaussian)
    assert_close(again.draw(again.rng(0), 4), theta, rtol=0.0, atol=0.0)


def test_it_has_no_density():
    found = posterior()
    for ask in (found.entropy, found.kl, lambda: found.log_density(MEAN[:, None])):
        with pytest.raises(CapabilityError, match="biases have no noise, dropped weights are 0"):
            ask()
