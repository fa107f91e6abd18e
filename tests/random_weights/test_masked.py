"""Masks of inputs and masks of weights: the same law for an example, and different gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from bayesprop import random_weights as rw
from bayesprop.layout import Block, Layout
from bayesprop.random_weights import Masks, NoiseSource, bernoulli, input_units, mask


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def layout_of(network):
    blocks, start = [], 0
    for name, parameter in network.named_parameters():
        blocks.append(Block(name, tuple(parameter.shape), start, module=name.rpartition(".")[0]))
        start = blocks[-1].stop
    return Layout(tuple(blocks))


class Bench:
    def __init__(self, network, inputs):
        self.network, self.inputs = network.double(), inputs
        self.weights = {name: p.detach() for name, p in network.named_parameters()}
        self.units = input_units(network, layout_of(network))
        uses = rw.trace(lambda w, rows: self(w, inputs[:rows]), self.weights)
        self.plan = rw.make_plan(Masks(), uses)

    def __call__(self, weights, inputs):
        return torch.func.functional_call(self.network, weights, (inputs,))

    def masked(self, law, seed=0, inputs=None):
        laws = dict.fromkeys(self.units, law)
        source = NoiseSource(torch.tensor([seed, 0]))
        found = mask(self.weights, self.plan, self.units, laws, source)
        return self(found, self.inputs if inputs is None else inputs)


class Transposed(nn.Module):
    """A dense layer as `x @ w.T`, which a rule must see through."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return x @ self.layer.weight.T + self.layer.bias


NETWORKS = {
    "dense": (nn.Linear(3, 2), numbers(6, 3)),
    "transposed": (Transposed(), numbers(6, 3)),
    "positions": (nn.Linear(3, 2), numbers(6, 5, 3)),
    "convolution": (nn.Conv1d(4, 2, 3, groups=2), numbers(6, 4, 7)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_each_example_has_a_mask_of_its_own_at_all_its_positions(name):
    bench = Bench(*NETWORKS[name])
    assert {bench.plan[weight].rule for weight in bench.units} == {"masked"}
    seen = []

    def law(noise):
        seen.append((noise > 0).double() * 2.0)
        return seen[-1]

    found = bench.masked(law)
    (multiplier,) = seen
    assert multiplier.shape[0] == 6
    assert multiplier.numel() == 6 * next(iter(bench.units.values())).count
    assert_close(found, bench(bench.weights, bench.inputs * multiplier))
    assert len({tuple(row.flatten().tolist()) for row in multiplier}) > 1


def test_an_embedding_and_a_shared_weight_take_one_mask_for_all():
    words = torch.tensor([[0, 4], [4, 2], [1, 1]])
    bench = Bench(nn.Embedding(5, 3), words)
    assert bench.plan["weight"].rule == "shared"
    dropped = bench.masked(lambda noise: torch.tensor([1.0, 0.0, 2.0, 1.0, 3.0], dtype=torch.float64))
    assert_close(dropped[2], torch.zeros(2, 3, dtype=torch.float64))
    assert_close(dropped[0, 1], 3.0 * bench.weights["weight"][4])


@pytest.mark.statistical
@pytest.mark.parametrize("rate", [0.1, 0.4])
def test_moments_of_masks(rate):
    """Mean 1 and variance p / (1 - p); 5 standard errors, of a variance with the fourth moment of the mask."""
    count = 40_000
    drawn = bernoulli(numbers(count), torch.tensor(rate, dtype=torch.float64))
    odds = rate / (1.0 - rate)
    fourth = (1.0 - rate) * odds**4 + rate
    assert set(drawn.unique().tolist()) == {0.0, 1.0 / (1.0 - rate)}
    assert float(drawn.mean()) == pytest.approx(1.0, abs=5.0 * math.sqrt(odds / count))
    assert float(drawn.var()) == pytest.approx(odds, abs=5.0 * math.sqrt((fourth - odds**2) / count))
    assert_close(bernoulli(numbers(9), torch.tensor(0.0)), torch.ones(9))


@pytest.mark.statistical
def test_masks_of_inputs_have_the_law_of_masks_of_the_weight():
    """Of one example: mean and variance of the output over 4000 masks, 5 standard errors (kurtosis below 6)."""
    bench, count, rate = Bench(*NETWORKS["dense"]), 4000, torch.tensor(0.3, dtype=torch.float64)
    one = bench.inputs[:1]
    outputs = torch.cat([bench.masked(lambda n: bernoulli(n, rate), seed, one) for seed in range(count)])
    variance = (one.square() * bench.weights["weight"].square()).sum(1) * float(rate / (1.0 - rate))
    error = (outputs.mean(0) - bench(bench.weights, one)[0]).abs()
    assert bool((error < 5.0 * (variance / count).sqrt()).all())
    assert bool(((outputs.var(0) / variance - 1.0).abs() < 5.0 * math.sqrt(5.0 / count)).all())


def test_gradients_reach_weights_and_rates():
    bench = Bench(*NETWORKS["dense"])
    weight = bench.weights["weight"].requires_grad_(True)
    found = bench.masked(lambda noise: torch.sigmoid(noise))
    (gradient,) = torch.autograd.grad(found.sum(), weight)
    assert gradient.shape == weight.shape
    assert bool((gradient != 0).all())
