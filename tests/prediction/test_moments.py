import math

import pytest
import torch
from torch.testing import assert_close

from bayesprop.likelihoods import Bernoulli, Categorical, Gaussian, HeteroscedasticGaussian
from bayesprop.prediction.moments import class_moments, join, quantity_moments
from bayesprop.prediction.units import Units

IDENTITY = Units.of(None)


def test_draws_that_contradict_each_other_surely_are_epistemic():
    logits = torch.tensor([[[50.0, -50.0]], [[-50.0, 50.0]]], dtype=torch.float64)
    moments = class_moments(Categorical(), logits, {})
    assert_close(moments.mean, torch.full((1, 2), 0.5, dtype=torch.float64))
    assert_close(moments.std, torch.full((1, 2), 0.5, dtype=torch.float64))
    assert moments.total.item() == pytest.approx(math.log(2))
    assert moments.aleatoric.item() == pytest.approx(0, abs=1e-12)
    assert moments.epistemic.item() == pytest.approx(math.log(2))


def test_draws_that_agree_on_a_coin_are_aleatoric():
    moments = class_moments(Bernoulli(), torch.zeros(5, 3, 1, dtype=torch.float64), {})
    assert_close(moments.aleatoric, torch.full((3,), math.log(2), dtype=torch.float64))
    assert_close(moments.epistemic, torch.zeros(3, dtype=torch.float64))


def test_entropies_by_hand():
    probabilities = torch.tensor([[0.9, 0.1], [0.6, 0.4]], dtype=torch.float64)
    moments = class_moments(Categorical(), probabilities.log()[:, None], {})

    def entropy(p):
        return -(p * math.log(p) + (1 - p) * math.log(1 - p))

    assert moments.total.item() == pytest.approx(entropy(0.75))
    assert moments.aleatoric.item() == pytest.approx((entropy(0.9) + entropy(0.6)) / 2)
    assert moments.epistemic.item() == pytest.approx(entropy(0.75) - (entropy(0.9) + entropy(0.6)) / 2)


def test_mutual_information_is_never_negative_in_float32():
    logits = torch.randn(1, 2000, 10, generator=torch.Generator().manual_seed(0)).expand(30, 2000, 10)
    moments = class_moments(Categorical(), logits, {})
    assert bool((moments.epistemic >= 0).all())
    assert bool((moments.epistemic < 1e-5).all())


def test_one_draw_has_no_epistemic_uncertainty(normal):
    classes = class_moments(Categorical(), normal(1, 4, 3), {})
    quantity = quantity_moments(Gaussian(scale=1.0), normal(1, 4, 1), {}, IDENTITY)
    for moments in (classes, quantity):
        assert bool((moments.epistemic == 0).all())
        assert_close(moments.total, moments.aleatoric)
    assert bool((classes.std == 0).all())


def test_law_of_total_variance(normal):
    outputs = normal(50, 4, 2)
    scale = torch.nn.functional.softplus(outputs[:, :, 1]) + 1e-4
    moments = quantity_moments(HeteroscedasticGaussian(), outputs, {}, IDENTITY)
    mean = outputs[:, :, 0]
    second = (mean.square() + scale.square()).mean(0)  # E[y^2] of the mixture
    assert_close(moments.total, second - mean.mean(0).square())
    assert_close(moments.aleatoric, scale.square().mean(0))
    assert_close(moments.epistemic, mean.var(0, correction=0))
    assert_close(moments.std, moments.total.sqrt())


def test_a_learnt_scale_is_noise_of_each_draw(normal):
    scale = torch.tensor([0.5, 1.5], dtype=torch.float64)
    moments = quantity_moments(Gaussian(), normal(2, 3, 1), {"likelihood.scale": scale}, IDENTITY)
    assert_close(moments.aleatoric, torch.full((3,), (0.25 + 2.25) / 2, dtype=torch.float64))


def test_units_reach_every_moment(normal):
    outputs = normal(20, 3, 2)
    units = Units(torch.tensor([5.0, -1.0], dtype=torch.float64), torch.tensor([10.0, 0.1], dtype=torch.float64))
    raw = quantity_moments(Gaussian(scale=0.3), outputs, {}, IDENTITY)
    scaled = quantity_moments(Gaussian(scale=0.3), outputs, {}, units)
    assert_close(scaled.mean, raw.mean * units.scale + units.shift)
    assert_close(scaled.std, raw.std * units.scale)
    for name in ("aleatoric", "epistemic", "total"):
        assert_close(getattr(scaled, name), getattr(raw, name) * units.scale**2)


def test_join_keeps_the_order(normal):
    outputs = normal(5, 6, 3)
    whole = class_moments(Categorical(), outputs, {})
    parts = join([class_moments(Categorical(), outputs[:, rows], {}) for rows in (slice(0, 2), slice(2, 6))])
    for name in ("mean", "std", "aleatoric", "epistemic", "total"):
        assert_close(getattr(parts, name), getattr(whole, name))
