import torch
from scipy import stats
from torch.testing import assert_close

from bayesprop.data.scaling import Scaling
from bayesprop.prediction.units import Units


def scaling(mean, std):
    return Scaling(torch.zeros(()), torch.ones(()), torch.tensor(mean), torch.tensor(std))


def test_without_a_scaling_nothing_changes():
    units = Units.of(None)
    assert units.identity
    assert units.log_scale((3,)) == 0.0
    assert_close(units.original(torch.ones(2)), torch.ones(2))


def test_inputs_alone_standardised_change_nothing():
    assert Units.of(scaling(0.0, 1.0)).identity


def test_there_and_back():
    units = Units.of(scaling([2000.0, -1.0], [10.0, 0.5]))
    values = torch.tensor([[2015.25, 3.0]], dtype=torch.float64)
    assert_close(units.original(units.standard(values)), values)
    assert_close(units.widths(torch.ones(1, 2)), torch.tensor([[10.0, 0.5]]))
    assert_close(units.widths(torch.ones(1, 2), power=2), torch.tensor([[100.0, 0.25]]))
    assert units.original(torch.ones(1, 2)).dtype == torch.float32


def test_one_column_of_targets_scales_a_vector():
    units = Units.of(scaling([3.0], [2.0]))
    assert_close(units.original(torch.ones(5)), torch.full((5,), 5.0))


def test_jacobian_against_scipy():
    units = Units.of(scaling([3.0, 1.0], [2.0, 0.1]))
    y = torch.tensor([4.0, 1.05], dtype=torch.float64)
    z = units.standard(y)
    standard = stats.norm(0, 1).logpdf(z.numpy()).sum()
    original = stats.norm([3.0, 1.0], [2.0, 0.1]).logpdf(y.numpy()).sum()
    # The numbers are float32: 0.1 is one part in 1e8 off.
    assert abs(standard - units.log_scale((2,)) - original) < 1e-6


def test_one_scale_for_all_targets_of_a_row_counts_each():
    assert abs(Units.of(scaling(0.0, 2.0)).log_scale((3, 4)) - 12 * torch.tensor(2.0).log().item()) < 1e-6
