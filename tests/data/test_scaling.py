"""Standardising and the way back."""

import dataclasses

import pytest
import torch
from torch.testing import assert_close

from bayesprop.data import Scaling
from bayesprop.errors import DataError


def example(dtype=torch.float64):
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(50, 3, generator=generator, dtype=dtype) * torch.tensor([1.0, 10.0, 0.1]) + 5
    return inputs.to(dtype), (inputs.sum(1) * 3 + 100).to(dtype)


def test_equation_1_mean_zero_and_deviation_one():
    inputs, targets = example()
    scaling = Scaling.of(inputs, targets, True)
    scaled = scaling.scale_inputs(inputs)
    assert isinstance(scaled, torch.Tensor)
    assert_close(scaled.mean(0), torch.zeros(3, dtype=torch.float64))
    assert_close(scaled.std(0, correction=0), torch.ones(3, dtype=torch.float64))
    assert_close(scaling.input_mean, inputs.mean(0))
    assert_close(scaling.input_std, inputs.std(0, correction=0))
    assert scaling.target_mean.shape == ()
    assert_close(scaling.scale_targets(targets), (targets - targets.mean()) / targets.std(correction=0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_there_and_back_keeps_values_and_types(dtype):
    inputs, targets = example(dtype)
    scaling = Scaling.of(inputs, targets, True)
    back = scaling.unscale_inputs(scaling.scale_inputs(inputs))
    assert isinstance(back, torch.Tensor)
    assert_close(back, inputs)
    assert_close(scaling.unscale_targets(scaling.scale_targets(targets)), targets)
    assert scaling.input_mean.dtype == scaling.target_std.dtype == dtype


def test_draws_may_lead_when_going_back():
    inputs, targets = example()
    scaling = Scaling.of(inputs, targets, True)
    draws = scaling.scale_targets(targets).expand(7, -1)
    assert_close(scaling.unscale_targets(draws), targets.expand(7, -1))


def test_a_constant_feature_becomes_zero_and_stays_finite():
    inputs = torch.tensor([[0.1, 1.0], [0.1, 2.0], [0.1, 3.0]])  # 0.1 has no exact mean: a deviation of 1e-9 or so
    scaling = Scaling.of(inputs, torch.full((3,), 4.0), True)
    assert scaling.input_std[0] == 1
    assert scaling.target_std == 1
    scaled = scaling.scale_inputs(inputs)
    assert isinstance(scaled, torch.Tensor)
    assert_close(scaled[:, 0], torch.zeros(3))
    assert_close(scaling.scale_targets(torch.full((3,), 4.0)), torch.zeros(3))


def test_one_row_and_a_deviation_that_underflows_are_constant():
    assert Scaling.of(torch.ones(1, 2), torch.ones(1), True).input_std.tolist() == [1, 1]
    tiny = torch.tensor([[0.0], [1e-300]], dtype=torch.float64)
    assert Scaling.of(tiny, torch.ones(2), "inputs").input_std.tolist() == [1]


def test_large_means_do_not_cost_digits():
    year = torch.tensor([[2000.25], [2010.5], [2020.75]])
    scaling = Scaling.of(year, torch.zeros(3), "inputs")
    back = scaling.unscale_inputs(scaling.scale_inputs(year))
    assert isinstance(back, torch.Tensor)
    assert_close(back, year, rtol=0, atol=2e-4)  # one unit in the last place of float32 near 2000 is 1.2e-4


def test_one_side_only():
    inputs, targets = example()
    only_inputs = Scaling.of(inputs, targets, "inputs")
    assert only_inputs.scales_inputs
    assert not only_inputs.scales_targets
    assert only_inputs.scale_targets(targets) is targets
    assert only_inputs.unscale_targets(targets) is targets
    only_targets = Scaling.of({"x": inputs}, targets, "targets")
    assert not only_targets.scales_inputs
    assert only_targets.scale_inputs(inputs) is inputs
    assert only_targets.unscale_inputs(inputs) is inputs
    assert only_targets.scales_targets
    pair = {"x": inputs}
    assert only_targets.scale_inputs(pair) is pair
    assert only_targets.unscale_inputs(pair) is pair


def test_integers():
    labels = torch.tensor([0, 1, 1])
    scaling = Scaling.of(torch.tensor([[1], [2], [3]]), labels, True)
    assert scaling.scale_targets(labels) is labels
    scaled = scaling.scale_inputs(torch.tensor([[1], [2], [3]]))
    assert isinstance(scaled, torch.Tensor)
    assert scaled.dtype == torch.float32
    assert_close(scaled[:, 0], torch.tensor([-1.0, 0.0, 1.0]) * 1.5**0.5)
    with pytest.raises(DataError, match=r"labels and counts stay as they are[\s\S]*targets.float\(\)"):
        Scaling.of(torch.ones(3, 1), labels, "targets")


def test_several_inputs_and_missing_targets_are_refused():
    with pytest.raises(DataError, match=r'standardize="targets"'):
        Scaling.of((torch.ones(2), torch.ones(2)), torch.ones(2), True)
    with pytest.raises(DataError, match=r'nan at row 1[\s\S]*standardize="inputs"'):
        Scaling.of(torch.ones(2, 1), torch.tensor([0.0, float("nan")]), True)


def test_it_is_frozen_and_moves():
    scaling = Scaling.of(*example(), True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        scaling.input_mean = torch.zeros(3)  # type: ignore[misc]
    moved = scaling.to("meta")
    assert {tensor.device.type for tensor in dataclasses.asdict(moved).values()} == {"meta"}
