"""The rule of local reparameterisation: its equations in every form, its root, and noise of the size of the outputs."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bayesprop import random_weights as rw
from bayesprop.random_weights import flipout, local
from bayesprop.rng import Rng

KEY = torch.tensor([8, 1])


def _numbers(*shape: int, seed: int = 2) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _random(
    *shape: int, source: rw.NoiseSource, rules=local.RULES, dim: int = 0, scale: float = 0.3
) -> rw.RandomWeight:
    mean, spread = _numbers(2, *shape, seed=sum(shape))
    return rw.RandomWeight.create(mean, scale * spread.abs(), None, rules.get, source, example_dim=dim)


def _epsilon(*shape: int, request: int = 0) -> Tensor:
    return rw.NoiseSource(KEY).normal(shape, torch.float64, request)


# -- the root ---------------------------------------------------------------------------------------------------------


def test_the_root_is_the_square_root():
    values = torch.tensor([0.25, 1e-300, 4.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(local.root(values), values.sqrt(), rtol=0, atol=0)
    positive = (_numbers(6).abs() + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(local.root, (positive,))


def test_the_root_has_derivative_zero_at_zero():
    """sqrt has an infinite one there, and 0 * inf is nan in the product with the derivative of x^2."""
    scale = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(local.root(scale.square()).sum(), scale)
    torch.testing.assert_close(gradient, torch.zeros(3, dtype=torch.float64), rtol=0, atol=0)
    (plain,) = torch.autograd.grad(scale.square().sqrt().sum(), scale)
    assert torch.isnan(plain).all()


# -- equations --------------------------------------------------------------------------------------------------------


def test_only_the_weight_is_random():
    source = rw.NoiseSource(KEY)
    weight = _random(3, 4, source=source)
    inputs, bias = _numbers(5, 4), _numbers(3)
    deviation = (inputs.square() @ weight.draw.scale.square().T).sqrt()
    expected = F.linear(inputs, weight.draw.mean, bias) + deviation * _epsilon(5, 3)
    torch.testing.assert_close(F.linear(inputs, weight, bias), expected)
    assert source.requests == 1


def test_only_the_bias_is_random():
    source = rw.NoiseSource(KEY)
    bias = _random(3, source=source)
    inputs, weight = _numbers(5, 4), _numbers(3, 4)
    expected = F.linear(inputs, weight, bias.draw.mean) + bias.draw.scale * _epsilon(5, 3)
    torch.testing.assert_close(F.linear(inputs, weight, bias), expected)
    assert source.requests == 1


@pytest.mark.parametrize("form", ["matmul", "operator", "mm", "addmm"])
def test_products_by_hand_are_the_linear_layer(form):
    inputs, outputs = _numbers(5, 4), []
    for by_hand in (False, True):
        source = rw.NoiseSource(KEY)
        weight, bias = _random(3, 4, source=source), _random(3, source=source)
        if not by_hand:
            outputs.append(F.linear(inputs, weight, bias if form == "addmm" else None))
        elif form == "addmm":
            outputs.append(torch.addmm(bias, inputs, weight.T))
        else:
            outputs.append(
                {"matmul": torch.matmul, "operator": lambda a, b: a @ b, "mm": torch.mm}[form](inputs, weight.T)
            )
    torch.testing.assert_close(outputs[0], outputs[1])


def test_an_embedding_has_the_deviation_of_the_row_that_is_looked_up():
    source = rw.NoiseSource(KEY)
    weight, indices = _random(6, 3, source=source), torch.tensor([4, 0, 4])
    expected = weight.draw.mean[indices] + weight.draw.scale[indices] * _epsilon(3, 3)
    torch.testing.assert_close(F.embedding(indices, weight), expected)
    assert (expected[0] - expected[2]).abs().min() > 0  # one row, two examples, two samples


def test_the_second_layer_sees_the_variance_of_its_own_inputs():
    """Two layers with noise in the first one's outputs: m and v of the second are taken at those."""
    source = rw.NoiseSource(KEY)
    first, second = _random(4, 3, source=source), _random(2, 4, source=source)
    hidden = torch.tanh(F.linear(_numbers(5, 3), first))
    output = F.linear(hidden, second)
    deviation = (hidden.square() @ second.draw.scale.square().T).sqrt()
    expected = hidden @ second.draw.mean.T + deviation * _epsilon(5, 2, request=1)
    torch.testing.assert_close(output, expected)


def test_the_example_dimension_may_stand_behind_one_of_length_one():
    source = rw.NoiseSource(KEY)
    weight = _random(3, 4, source=source, dim=1)
    inputs = _numbers(1, 5, 4)
    deviation = (inputs.square() @ weight.draw.scale.square().T).sqrt()
    torch.testing.assert_close(F.linear(inputs, weight), inputs @ weight.draw.mean.T + deviation * _epsilon(1, 5, 3))


def test_the_weight_itself_is_never_drawn():
    source = rw.NoiseSource(KEY)
    weight = _random(300, 400, source=source)
    drawn: list[int] = []
    normal = source.normal

    def counting(shape, dtype, request=None):
        drawn.append(math.prod(shape))
        return normal(shape, dtype, request)

    source.normal = counting
    F.linear(_numbers(5, 400), weight)
    assert drawn == [5 * 300]


def test_positions_that_share_a_weight_take_flipouts_rule():
    for function, shape, inputs in (
        (F.linear, (3, 4), _numbers(5, 2, 4)),
        (F.conv1d, (3, 4, 2), _numbers(5, 4, 6)),
        (lambda i, w: F.embedding(i, w), (6, 3), torch.tensor([[0, 1], [5, 5], [2, 0]])),
    ):
        outputs = [
            function(inputs, _random(*shape, source=rw.NoiseSource(KEY), rules=rules))
            for rules in (local.RULES, flipout.RULES)
        ]
        torch.testing.assert_close(outputs[0], outputs[1], rtol=0, atol=0)


def test_without_spread_it_is_the_operation_itself():
    weight = _random(3, 4, source=rw.NoiseSource(KEY), scale=0.0)
    inputs = _numbers(5, 4)
    torch.testing.assert_close(F.linear(inputs, weight), F.linear(inputs, weight.draw.mean), rtol=0, atol=0)


def test_it_has_a_rule_for_all_that_can_be_read():
    assert rw.LocalReparameterization().rules is local.RULES
    assert set(local.RULES) == set(flipout.RULES)
    assert len(local.RULES) == 15


# -- law --------------------------------------------------------------------------------------------------------------


@pytest.mark.statistical
def test_examples_have_independent_noise():
    """n equal examples: the mean of their outputs is Gaussian with variance v / n, v = sum x^2 scale^2.

    Tolerance: 5 standard errors, v / n sqrt(2 / K) for the variance of a Gaussian with a known mean; 9 numbers, which
    one key in 190 000 fails by chance; the key is fixed.
    """
    count, row = 4000, _numbers(1, 4)
    mean, spread = _numbers(2, 3, 4, seed=7)
    for examples in (1, 4, 16):

        def mean_output(key: Tensor, examples: int = examples) -> Tensor:
            weight = rw.RandomWeight.create(mean, spread.abs(), None, local.RULES.get, rw.NoiseSource(key))
            return F.linear(row.expand(examples, 4), weight).mean(0) - F.linear(row, mean)[0]

        found = torch.func.vmap(mean_output)(Rng.create(1).keys(draws=count)[0])
        variance = row.square() @ spread.square().T / examples
        assert ((found.square().mean(0) - variance[0]).abs() / (variance[0] * math.sqrt(2 / count))).max() < 5
