"""Made-up data against their formulas."""

import math

import pytest
import torch
from torch.testing import assert_close

from bayesprop.data import blundell_curve, gap_regression, two_moons
from bayesprop.errors import ConfigurationError

MAKERS = (two_moons, blundell_curve, gap_regression)


@pytest.mark.parametrize("make", MAKERS)
def test_a_function_of_its_arguments(make):
    data, again, other = make(31, seed=4), make(31, seed=4), make(31, seed=5)
    assert data.num_data == 31
    assert data.inputs.dtype == torch.float32
    assert_close(data.inputs, again.inputs)
    assert_close(data.targets, again.targets)
    assert float((data.inputs - other.inputs).abs().max()) > 0
    assert make(1).num_data == 1


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("bad", [{"num_data": 0}, {"seed": -1}])
def test_bad_arguments(make, bad):
    with pytest.raises(ConfigurationError, match="at least one row"):
        make(**bad)


def test_equation_1_moons_lie_on_their_circles():
    data = two_moons(400, noise=0.0)
    assert isinstance(data.inputs, torch.Tensor)
    for label, centre, sign in ((0, (0.0, 0.0), 1), (1, (1.0, 0.5), -1)):
        points = data.inputs[data.targets == label] - torch.tensor(centre)
        assert_close(points.norm(dim=1), torch.ones(200))
        assert float((sign * points[:, 1]).min()) >= -1e-6
    assert (two_moons(5).targets == 0).sum() == 3


@pytest.mark.statistical
def test_equation_2_the_curve():
    data = blundell_curve(4000)
    assert isinstance(data.inputs, torch.Tensor)
    x, y = data.inputs[:, 0].double(), data.targets.double()
    assert 0 <= float(x.min()) <= float(x.max()) <= 0.5

    def curve(e):
        return x + 0.3 * torch.sin(2 * math.pi * (x + e)) + 0.3 * torch.sin(4 * math.pi * (x + e)) + e

    # Solve (2) for e by bisection where the right side grows with e: there the noise is what the formula says.
    slope = 1 + 0.6 * math.pi * torch.cos(2 * math.pi * x) + 1.2 * math.pi * torch.cos(4 * math.pi * x)
    low, high = torch.full_like(x, -0.1), torch.full_like(x, 0.1)
    for _ in range(60):
        middle = (low + high) / 2
        above = curve(middle) > y
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    noise = low[slope > 5]
    assert noise.numel() > 500
    # Standard error of a standard deviation: s / sqrt(2 n). Five of them fail once in 1.7 million.
    assert abs(float(noise.std()) - 0.02) < 5 * 0.02 / math.sqrt(2 * noise.numel())


@pytest.mark.statistical
def test_equation_3_the_gap():
    data = gap_regression(4000)
    assert isinstance(data.inputs, torch.Tensor)
    x, y = data.inputs[:, 0], data.targets
    left = (x >= -1) & (x <= -0.7)
    right = (x >= 0.5) & (x <= 1)
    assert (int(left.sum()), int(right.sum())) == (2000, 2000)
    noise = y - torch.cos(4 * x + 0.8)
    # Five standard errors of a mean and of a standard deviation over 4000 rows: each fails once in 1.7 million.
    assert abs(float(noise.mean())) < 5 * 0.1 / math.sqrt(4000)
    assert abs(float(noise.std()) - 0.1) < 5 * 0.1 / math.sqrt(2 * 4000)
