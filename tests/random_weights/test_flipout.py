"""The rule of flipout: its equation in every form of operation, whose noise it takes, and how its variance falls."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bayesprop import random_weights as rw
from bayesprop.random_weights import flipout, operations
from bayesprop.rng import Rng

KEY = torch.tensor([8, 1])


def _numbers(*shape: int, seed: int = 2) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _pair(*shape: int, key: Tensor = KEY, dim: int = 0, scale: float = 0.3) -> tuple[rw.RandomWeight, rw.NoiseSource]:
    """A random weight with weight-sized noise of its own, and the source of its signs."""
    source = rw.NoiseSource(key)
    mean, spread, noise = _numbers(3, *shape, seed=sum(shape))
    weight = rw.RandomWeight.create(mean, scale * spread.abs(), noise, flipout.RULES.get, source, example_dim=dim)
    return weight, source


def test_only_the_weight_is_random():
    weight, source = _pair(3, 4)
    inputs, bias = _numbers(5, 4), _numbers(3)
    output = F.linear(inputs, weight, bias)
    assert source.requests == 2
    s, r = (source.signs(shape, torch.float64, i) for i, shape in enumerate(((5, 4), (5, 3))))
    expected = F.linear(inputs, weight.draw.mean, bias) + F.linear(inputs * s, weight.draw.perturbation) * r
    torch.testing.assert_close(output, expected)
    assert (output - F.linear(inputs, weight.draw.mean, bias)).abs().min() > 0


def test_only_the_bias_is_random():
    """There is nothing to sum over, so that the signs of the outputs alone tell examples apart."""
    bias, source = _pair(3)
    inputs, weight = _numbers(5, 4), _numbers(3, 4)
    output = F.linear(inputs, weight, bias)
    assert source.requests == 1
    r = source.signs((5, 3), torch.float64, 0)
    torch.testing.assert_close(output, F.linear(inputs, weight, bias.draw.mean) + bias.draw.perturbation * r)
    images, kernel = _numbers(2, 4, 6, 5), _numbers(3, 4, 2, 2)
    bias, source = _pair(3)
    r = rw.NoiseSource(KEY).signs((2, 3, 1, 1), torch.float64)
    expected = F.conv2d(images, kernel, bias.draw.mean) + bias.draw.perturbation[:, None, None] * r
    torch.testing.assert_close(F.conv2d(images, kernel, bias), expected)


@pytest.mark.parametrize("dim", [0, 1])
def test_all_positions_of_an_example_have_its_signs(dim):
    """With equal inputs at all positions the outputs of an example are equal there, and differ between examples."""
    weight, source = _pair(3, 4, dim=dim)
    shape = (5, 6, 4) if dim == 0 else (6, 5, 4)
    output = F.linear(torch.ones(shape, dtype=torch.float64), weight).movedim(dim, 0)
    torch.testing.assert_close(output, output[:, :1].expand_as(output), rtol=0, atol=0)
    assert (output[0] - output[1]).abs().max() > 0.01
    signs = [(5, 1, 4), (5, 1, 3)] if dim == 0 else [(1, 5, 4), (1, 5, 3)]
    s, r = (source.signs(one, torch.float64, i) for i, one in enumerate(signs))
    perturbed = s @ weight.draw.perturbation.T * r
    torch.testing.assert_close((output - weight.draw.mean.sum(1)).movedim(0, dim), perturbed.expand(*shape[:-1], 3))


def test_a_pass_repeated_has_the_same_signs():
    """Activation checkpointing asks one weight twice: the same numbers, no new requests."""
    weight, source = _pair(3, 4)
    inputs = _numbers(5, 4)
    first, second = F.linear(inputs, weight), F.linear(inputs, weight)
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert source.requests == 2


def test_two_weights_have_signs_of_their_own():
    source = rw.NoiseSource(KEY)

    zero, inputs = torch.zeros(4, dtype=torch.float64), torch.ones(50, 4, dtype=torch.float64)
    outputs = []
    for _ in range(2):
        bias = rw.RandomWeight.create(zero, zero + 1, zero + 1, flipout.RULES.get, source)
        outputs.append(F.linear(inputs, zero.expand(4, 4), bias))
        assert set(outputs[-1].flatten().tolist()) == {-1.0, 1.0}
    assert (outputs[0] != outputs[1]).any()
    assert source.requests == 2


@pytest.mark.parametrize("function", [torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__])
def test_products_by_hand_are_the_linear_layer(function):
    inputs = _numbers(5, 4)
    weight, _ = _pair(3, 4)
    expected = F.linear(inputs, weight)
    twin, _ = _pair(3, 4)
    torch.testing.assert_close(function(inputs, twin.T), expected)


def test_addmm_is_the_linear_layer_with_its_bias():
    inputs = _numbers(5, 4)
    (weight, source), (bias, _) = _pair(3, 4), _pair(3)
    bias = rw.RandomWeight.create(bias.draw.mean, bias.draw.scale, bias.draw.noise, flipout.RULES.get, source)
    expected = F.linear(inputs, weight, bias)
    torch.testing.assert_close(torch.addmm(bias, inputs, weight.T), expected)
    assert source.requests == 2


def test_without_spread_it_is_the_operation_itself():
    weight, _ = _pair(6, 2, 3, scale=0.0)
    images = _numbers(3, 4, 8)
    plain = F.conv1d(images, weight.draw.mean, stride=3, padding=2, groups=2)
    torch.testing.assert_close(F.conv1d(images, weight, stride=3, padding=2, groups=2), plain, rtol=0, atol=0)


def test_it_has_a_rule_for_all_that_can_be_read():
    assert rw.Flipout().rules is flipout.RULES
    assert set(flipout.RULES) == set(operations.rules(flipout.evaluate))
    assert len(flipout.RULES) == 15


@pytest.mark.statistical
def test_the_variance_of_a_batch_falls_with_the_batch():
    """n equal examples: outputs with variance v = sum x^2 scale^2 are uncorrelated, so that their mean has v / n.

    The perturbations of two examples are D r s^T with other signs, whose products are fair; a shared sample would leave
    v. Tolerance: 5 standard errors. The mean of n signs times one Gaussian is no Gaussian, so the error of its variance
    is taken from the draws: 9 numbers, which one key in 190 000 fails by chance; the key is fixed.
    """
    count, row = 4000, _numbers(1, 4)
    mean, spread = _numbers(2, 3, 4, seed=7)
    for examples in (1, 4, 16):

        def mean_output(key: Tensor, examples: int = examples) -> Tensor:
            weight = rw.RandomWeight.create(mean, spread.abs(), None, flipout.RULES.get, rw.NoiseSource(key))
            return F.linear(row.expand(examples, 4), weight).mean(0) - F.linear(row, mean)[0]

        found = torch.func.vmap(mean_output)(Rng.create(1).keys(draws=count)[0])
        expected = row.square() @ spread.square().T / examples
        error = found.square().std(0) / math.sqrt(count)
        assert ((found.square().mean(0) - expected[0]).abs() / error).max() < 5
