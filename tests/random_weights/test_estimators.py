"""The equations of the rules, the law that they follow, and what the estimators refuse."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesprop import random_weights as rw
from bayesprop.errors import ConfigurationError
from bayesprop.rng import Rng

ESTIMATORS = [rw.SharedWeights(), rw.LocalReparameterization(), rw.Flipout()]
KEY = torch.tensor([5, 0])


def _numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def _keys(count: int) -> Tensor:
    return Rng.create(3).keys(draws=count)[0]


def _draws(one, count: int) -> Tensor:
    """Outputs for many keys: (count, *output)."""
    return torch.func.vmap(lambda key: one(one.means, one.scales, key))(_keys(count))


def _moments(one) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    return one.means, {name: scale.square() for name, scale in one.scales.items()}


# -- equations ---------------------------------------------------------------------------------------------------------


def test_the_equation_of_local_reparameterisation(bench):
    one = bench(nn.Linear(4, 3), _numbers(5, 4), rw.LocalReparameterization())
    (w, b), (vw, vb) = (group.values() for group in _moments(one))
    epsilon = rw.NoiseSource(KEY).normal((5, 3), torch.float64, request=0)
    expected = one.inputs @ w.T + b + (one.inputs**2 @ vw.T + vb).sqrt() * epsilon
    torch.testing.assert_close(one(one.means, one.scales, KEY), expected)


@pytest.mark.parametrize(
    ("network", "shape"),
    [
        (nn.Linear(4, 3), (5, 4)),
        (nn.Linear(4, 3), (5, 2, 4)),
        (nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), (5, 4, 5, 4)),
        (nn.ConvTranspose1d(4, 6, 3, stride=2, output_padding=1, groups=2), (5, 4, 3)),
    ],
    ids=["linear", "linear over a sequence", "grouped convolution", "grouped transposed convolution"],
)
def test_flipout_gives_each_example_one_weight_sample(bench, network, shape):
    """With its own signs written into the weight, each example is an ordinary forward pass of the layer."""
    one = bench(copy.deepcopy(network), _numbers(*shape), rw.Flipout())
    outputs, noises, source = one(one.means, one.scales, KEY), one.noises(KEY), rw.NoiseSource(KEY)
    out = one.means["bias"].numel()
    groups = getattr(network, "groups", 1)
    s = source.signs((5, 4), torch.float64, request=0)
    r = source.signs((5, out), torch.float64, request=1)
    for example in range(5):
        perturbed = {n: m.clone() for n, m in one.means.items()}
        perturbed["bias"] += one.scales["bias"] * noises["bias"] * r[example]
        # The weight's first two axes are (out, in / groups), or (in, out / groups) for transposed convolutions.
        blocks = zip(s[example].chunk(groups), r[example].chunk(groups), strict=True)
        if "Transpose" in type(network).__name__:
            signs = torch.cat([torch.outer(block_s, block_r) for block_s, block_r in blocks])
        else:
            signs = torch.cat([torch.outer(block_r, block_s) for block_s, block_r in blocks])
        signs = signs.reshape(*signs.shape, *[1] * (perturbed["weight"].dim() - 2))
        perturbed["weight"] += one.scales["weight"] * noises["weight"] * signs
        alone = one.forward(perturbed, one.inputs[example : example + 1])
        torch.testing.assert_close(outputs[example : example + 1], alone)


def test_flipout_of_an_embedding_flips_channels_per_example(bench):
    indices = torch.tensor([[0, 1, 1], [1, 0, 2], [2, 2, 2]])
    one = bench(nn.Embedding(3, 4), indices, rw.Flipout())
    r = rw.NoiseSource(KEY).signs((3, 1, 4), torch.float64, request=0)
    perturbation = one.scales["weight"] * one.noises(KEY)["weight"]
    expected = one.means["weight"][indices] + perturbation[indices] * r
    torch.testing.assert_close(one(one.means, one.scales, KEY), expected)


def test_local_reparameterisation_uses_flipout_where_positions_share(bench):
    for network, inputs in (
        (nn.Conv1d(3, 2, 3), _numbers(4, 3, 6)),
        (nn.Linear(3, 2), _numbers(4, 5, 3)),
        (nn.Embedding(7, 3), torch.arange(12).reshape(4, 3) % 7),
    ):
        flip, local = (bench(network, inputs, e) for e in (rw.Flipout(), rw.LocalReparameterization()))
        torch.testing.assert_close(local(local.means, local.scales, KEY), flip(flip.means, flip.scales, KEY))


# -- law --------------------------------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("kind", ["linear", "convolution", "embedding"])
def test_moments_of_the_outputs_are_the_exact_gaussian_ones(bench, kind, estimator):
    """Each output is Gaussian with closed-form moments.

    Tolerance: 5 standard errors, sd / sqrt(K) for the mean and var * sqrt(2 / K) for the variance. With the 72 numbers
    that are compared at most, one key in 24 000 fails by chance; the key is fixed.
    """
    if kind == "linear":
        one = bench(nn.Linear(4, 3), _numbers(3, 4), estimator)
        pairs = zip((one.inputs, one.inputs**2), _moments(one), strict=True)
        mean, variance = (F.linear(x, *m.values()) for x, m in pairs)
    elif kind == "convolution":
        one = bench(nn.Conv1d(2, 3, 3, stride=2, padding=1), _numbers(3, 2, 7), estimator)
        pairs = zip((one.inputs, one.inputs**2), _moments(one), strict=True)
        mean, variance = (F.conv1d(x, *m.values(), stride=2, padding=1) for x, m in pairs)
    else:
        one = bench(nn.Embedding(5, 3), torch.tensor([0, 3, 3, 4]), estimator)
        mean, variance = (m["weight"][one.inputs] for m in _moments(one))
    count = 20_000
    draws = _draws(one, count)
    assert ((draws.mean(0) - mean).abs() / (variance / count).sqrt()).max() < 5
    assert ((draws.var(0) - variance).abs() / (variance * math.sqrt(2 / count))).max() < 5


@pytest.mark.statistical
def test_flipout_keeps_the_joint_distribution_over_positions(bench):
    """Covariance between two positions of an example is that of a shared weight; between examples it is zero.

    cov(y[o,p], y[o,q]) = sum_{c,k} scale[o,c,k]^2 x[c,p+k] x[c,q+k] + scale_b[o]^2; tolerance 5 standard errors,
    sqrt((v_p v_q + cov^2) / K) for jointly Gaussian outputs, which are exceeded once in 8 000 keys among 200 numbers;
    the key is fixed. Independent noise per position would give zero.
    """
    inputs = _numbers(3, 2, 6)
    inputs[1] = inputs[0] + 0.1  # two examples that a shared weight would correlate almost fully
    windows = inputs.unfold(2, 3, 1)  # (example, channel, position, kernel)
    count = 20_000
    for estimator in (rw.SharedWeights(), rw.Flipout(), rw.LocalReparameterization()):
        one = bench(nn.Conv1d(2, 3, 3), inputs, estimator)
        _, variance = _moments(one)
        exact = torch.einsum("ock,ncpk,ncqk->nopq", variance["weight"], windows, windows)
        exact += variance["bias"][:, None, None]
        draws = _draws(one, count)
        centred = draws - draws.mean(0)
        within = torch.einsum("snop,snoq->nopq", centred, centred) / count
        diagonal = exact.diagonal(dim1=-2, dim2=-1)
        error = ((diagonal[..., :, None] * diagonal[..., None, :] + exact**2) / count).sqrt()
        assert ((within - exact).abs() / error).max() < 5
        assert (exact[0, :, 0, 1].abs() / error[0, :, 0, 1]).max() > 5  # the test can tell it from zero

        between = (centred[:, 0] * centred[:, 1]).mean(0)
        shared = torch.einsum("ock,cpk,cpk->op", variance["weight"], windows[0], windows[1]) + variance["bias"][:, None]
        scale = ((diagonal[0] * diagonal[1] + shared**2) / count).sqrt()
        expected = shared if isinstance(estimator, rw.SharedWeights) else torch.zeros_like(shared)
        assert ((between - expected).abs() / scale).max() < 5
        assert (shared.abs() / scale).min() > 5


@pytest.mark.statistical
def test_gradients_agree_in_the_mean_and_are_ordered_in_variance(bench):
    """Loss averaged over a batch of 128: equal mean gradients, variance local <= flipout <= shared.

    Mean: z-test at 5 standard errors of 2 x 92 gradients, which one key in 9 000 fails by chance; the key is fixed.
    The variances differ by factors of 6 and more, and 1000 draws give each to some 5 percent.
    """
    inputs, count = _numbers(128, 3), 1000
    targets = torch.sin(2 * inputs[:, :1])
    network = nn.Sequential(nn.Linear(3, 9), nn.Tanh(), nn.Linear(9, 1))
    means, variances = {}, {}
    for estimator in ESTIMATORS:
        one = bench(network, inputs, estimator)

        def loss(mean, scale, key, one=one):
            return (one(mean, scale, key) - targets).square().mean()

        gradient = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)), in_dims=(None, None, 0))
        groups = gradient(one.means, one.scales, _keys(count))
        found = torch.cat([part.flatten(1) for group in groups for part in group.values()], dim=1)
        name = type(estimator).__name__
        means[name], variances[name] = found.mean(0), found.var(0)
    for name in ("Flipout", "LocalReparameterization"):
        error = ((variances[name] + variances["SharedWeights"]) / count).sqrt()
        assert ((means[name] - means["SharedWeights"]).abs() / error).max() < 5
    total = {name: float(v.sum()) for name, v in variances.items()}
    assert total["LocalReparameterization"] < 0.5 * total["Flipout"]
    assert total["Flipout"] < 0.5 * total["SharedWeights"]


# -- refusal ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [rw.SharedWeights, rw.LocalReparameterization, rw.Flipout])
@pytest.mark.parametrize("samples", [0, -1, 1.5, True, "2"])
def test_samples_must_be_a_positive_whole_number(estimator, samples):
    with pytest.raises(ConfigurationError) as caught:
        estimator(samples=samples)
    assert f"received: samples={samples!r}" in str(caught.value)
    assert f"write: {estimator.__name__}(samples=1)" in str(caught.value)


def test_antithetic_samples_come_in_pairs():
    with pytest.raises(ConfigurationError, match=r"write: SharedWeights\(samples=4, antithetic=True\)"):
        rw.SharedWeights(samples=3, antithetic=True)
    assert rw.SharedWeights(samples=2, antithetic=True).samples == 2
    assert rw.SharedWeights(samples=3).rules == {}


def test_the_public_names_are_listed_in_order():
    assert rw.__all__ == sorted(rw.__all__)
    assert all(hasattr(rw, name) for name in rw.__all__)
