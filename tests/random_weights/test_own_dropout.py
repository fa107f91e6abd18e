"""Dropout layers of a network with masks from the counter."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from bayesprop.random_weights import NoiseSource, dropout_modules, elsewhere, seeded, silent


def source(seed=0, draw=0):
    return NoiseSource(torch.tensor([seed, draw]))


def say(module, x, seed=0, rows=None):
    network = nn.Sequential(module)
    with seeded(dropout_modules(network), source(seed), rows):
        return network(x)


KINDS = {
    "Dropout": (nn.Dropout(0.3), (50, 6, 4), 4),
    "Dropout1d": (nn.Dropout1d(0.3), (50, 6, 4), 1),
    "Dropout2d": (nn.Dropout2d(0.3), (50, 6, 4, 4), 1),
    "Dropout3d": (nn.Dropout3d(0.3), (50, 6, 2, 2, 2), 1),
}


@pytest.mark.statistical
@pytest.mark.parametrize("name", KINDS)
def test_what_is_kept_is_scaled_and_channels_are_dropped_whole(name):
    """300 units or more: 5 standard errors of a share of 0.7 are 0.14."""
    module, shape, values = KINDS[name]
    found = say(module.eval(), torch.ones(shape))
    assert_close(found.unique(), torch.tensor([0.0, 1.0 / 0.7]))
    assert abs(float((found > 0).float().mean()) - 0.7) < 0.14
    assert max(len(channel.unique()) for channel in found.flatten(0, 1)) == (2 if values > 1 else 1)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", [nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_alpha_dropout_keeps_mean_and_variance(kind):
    """Of standard normal numbers; 5 standard errors with a kurtosis below 4."""
    count = 100_000
    x = torch.randn(count, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = say(kind(0.2), x)
    assert float(found.mean()) == pytest.approx(0.0, abs=5.0 / math.sqrt(count))
    assert float(found.var()) == pytest.approx(1.0, abs=5.0 * math.sqrt(3.0 / count))


def test_one_function_for_all_rows():
    """With the number of rows given all of them share a mask, however many they are; without it they do not."""
    x = torch.ones(7, 5)
    alike, own = say(nn.Dropout(0.5), x, rows=7), say(nn.Dropout(0.5), x)
    assert_close(alike, alike[:1].expand(7, 5))
    assert_close(say(nn.Dropout(0.5), x[:2], rows=2), alike[:2])
    assert not torch.equal(own, own[:1].expand(7, 5))
    late = say(nn.Dropout(0.5), torch.ones(4, 7, 5), rows=7)  # time first
    assert_close(late, late[:, :1].expand(4, 7, 5))
    assert not torch.equal(late[0], late[1])


def test_another_key_is_another_mask_and_the_global_generator_stays():
    before, x = torch.get_rng_state(), torch.ones(8, 8)
    assert_close(say(nn.Dropout(0.5), x, seed=3), say(nn.Dropout(0.5), x, seed=3))
    assert not torch.equal(say(nn.Dropout(0.5), x, seed=3), say(nn.Dropout(0.5), x, seed=4))
    assert torch.equal(torch.get_rng_state(), before)


def test_modules_are_as_they_were_afterwards():
    network = nn.Sequential(nn.Dropout(0.5), nn.LSTM(2, 2, num_layers=2, dropout=0.3))
    before = network.state_dict()
    with pytest.raises(ZeroDivisionError), seeded(dropout_modules(network), source()):
        raise ZeroDivisionError
    with silent(network):
        assert torch.equal(network[0](torch.ones(9)), torch.ones(9))
        assert network[1].dropout == 0.0
    assert network[1].dropout == 0.3
    assert "forward" not in vars(network[0])
    assert network.state_dict().keys() == before.keys()


def test_dropout_of_everything_and_of_nothing():
    assert dropout_modules(nn.Sequential(nn.Dropout(0.0), nn.Dropout(1.0)))[0].p == 1.0
    assert torch.count_nonzero(say(nn.Dropout(1.0), torch.ones(5))).item() == 0


def test_dropout_inside_of_operations_is_named():
    network = nn.ModuleDict({"lstm": nn.LSTM(2, 2, num_layers=2, dropout=0.3), "dense": nn.Linear(2, 2)})
    network["attention"] = nn.MultiheadAttention(2, 1, dropout=0.1)
    assert elsewhere(network) == ["lstm (LSTM, dropout=0.3)", "attention (MultiheadAttention, dropout=0.1)"]
    assert elsewhere(nn.Linear(2, 2)) == []
