"""Input units of layers: masked weights are layers with masked inputs."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop.random_weights import input_units, unit_of_column


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(6, 4), (5, 6)),
        (nn.Conv1d(6, 4, 3), (5, 6, 7)),
        (nn.Conv2d(6, 4, 3, groups=2), (5, 6, 7, 7)),
        (nn.ConvTranspose2d(6, 4, 3), (5, 6, 4, 4)),
    ],
)
def test_a_mask_of_the_weight_is_a_mask_of_the_inputs(layer, shape):
    layer = layer.double()
    model = bp.Model(layer, likelihood=bp.likelihoods.Gaussian())
    units = input_units(layer, model.layout)["weight"]
    mask, inputs = numbers(units.count), numbers(*shape, seed=1)
    masked = {"weight": layer.weight * units.along(mask), "bias": layer.bias}
    expected = layer(inputs * mask.reshape(1, -1, *[1] * (len(shape) - 2)))
    assert_close(torch.func.functional_call(layer, masked, (inputs,)), expected)


def test_a_mask_of_an_embedding_drops_words():
    layer = nn.Embedding(5, 3).double()
    units = input_units(layer, bp.Model(layer, likelihood=bp.likelihoods.Gaussian()).layout)["weight"]
    mask, words = numbers(units.count), torch.tensor([[0, 4], [4, 2]])
    expected = layer(words) * mask[words][..., None]
    assert_close(torch.func.functional_call(layer, {"weight": layer.weight * units.along(mask)}, (words,)), expected)


def test_every_column_knows_its_unit():
    network = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2), nn.Conv1d(4, 6, 3, groups=2))
    layout = bp.Model(network, likelihood=bp.likelihoods.Gaussian()).layout
    inputs = input_units(network, layout)
    assert [(name, units.first, units.count) for name, units in inputs.items()] == [
        ("0.weight", 0, 3),
        ("2.weight", 3, 4),
    ]
    found = unit_of_column(inputs, layout)
    assert found[layout.by_name["0.weight"].columns].reshape(2, 3).tolist() == [[0, 1, 2], [0, 1, 2]]
    for name in ("0.bias", "1.weight", "1.bias", "2.bias"):
        assert set(found[layout.by_name[name].columns].tolist()) == {7}  # no unit
    convolution = found[layout.by_name["2.weight"].columns].reshape(6, 2, 3)
    assert convolution[:3].unique().tolist() == [3, 4]
    assert convolution[3:].unique().tolist() == [5, 6]


def test_recurrent_layers_and_attention():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.attention = nn.LSTM(3, 4), nn.MultiheadAttention(4, 2)

    network = Net()
    inputs = input_units(network, bp.Model(network, likelihood=bp.likelihoods.Gaussian()).layout)
    assert {name: units.count for name, units in inputs.items()} == {
        "lstm.weight_ih_l0": 3,
        "lstm.weight_hh_l0": 4,
        "attention.in_proj_weight": 4,
        "attention.out_proj.weight": 4,
    }
