"""Numbers for layers, and for their columns."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.errors import ConfigurationError
from bayesprop.inference.dropout.layers import counts_of, droppable, for_each_layer, inputs_of, of_columns

from ..conftest import small_network


def test_numbers_of_layers_as_numbers_of_columns():
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian())
    found = of_columns(torch.tensor([[0.1, 0.2]]), model, 1.0)
    layout = model.layout
    expected = {"0.weight": 0.1, "0.bias": 1.0, "2.weight": 0.2, "2.bias": 1.0}
    for name, value in expected.items():
        columns = found[0, layout.by_name[name].columns]
        assert_close(columns, torch.full_like(columns, value))


@pytest.mark.parametrize(("kind", "counts"), [("layer", [1, 1]), ("unit", [3, 4]), ("weight", [12, 4])])
def test_numbers_of_units_and_weights(kind, counts):
    """Each column gets the number of its own layer, input or weight, counted over all layers."""
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian())
    assert counts_of(droppable(model, "this"), kind) == counts
    found = of_columns(torch.arange(float(sum(counts)))[None], model, -1.0, kind)[0]
    first = found[model.layout.by_name["0.weight"].columns].reshape(4, 3)
    second = found[model.layout.by_name["2.weight"].columns]
    expected = {"layer": torch.zeros(4, 3), "unit": torch.arange(3.0).repeat(4, 1), "weight": torch.arange(12.0)}
    assert_close(first, expected[kind].reshape(4, 3))
    after = {"layer": torch.ones(4), "unit": torch.arange(3.0, 7.0), "weight": torch.arange(12.0, 16.0)}
    assert_close(second, after[kind])
    assert set(found[model.layout.by_name["0.bias"].columns].tolist()) == {-1.0}


def test_patterns_particles_and_numbers():
    names = ["0.weight", "2.weight"]
    assert for_each_layer(0.3, names, 2, "rate", 0.0).tolist() == [[0.3, 0.3]] * 2
    assert for_each_layer({"2.*": 0.3}, names, 1, "rate", 0.0).tolist() == [[0.0, 0.3]]
    assert for_each_layer(torch.tensor([0.25, 0.5]), names, 2, "rate", 0.0).tolist() == [[0.25, 0.25], [0.5, 0.5]]
    with pytest.raises(ConfigurationError, match="rate: the pattern 'head' matches no parameter"):
        for_each_layer({"head": 0.3}, names, 1, "rate", 0.0)


def test_a_network_without_layers_is_refused():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, 1))

        def forward(self, x):
            return x @ self.weight

    with pytest.raises(ConfigurationError, match="has no layer of a known kind") as caught:
        droppable(bp.Model(Own(), likelihood=likelihoods.Gaussian()), "MCDropout(rate=...)")
    assert "write: MCDropout()  # with torch.nn.Dropout where the network should drop" in str(caught.value)


def test_layers_are_looked_for_once_for_each_model():
    model, other = (bp.Model(small_network(), likelihood=likelihoods.Gaussian()) for _ in range(2))
    assert inputs_of(model) is inputs_of(model)
    assert inputs_of(model) == inputs_of(other)
    assert inputs_of(model) is not inputs_of(other)
