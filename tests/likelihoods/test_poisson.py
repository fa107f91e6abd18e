import pytest
import torch
from scipy import stats
from torch.testing import assert_close

from bayesprop.errors import DataError
from bayesprop.likelihoods import Poisson

LOG_RATES = torch.tensor([-1.0, 0.0, 2.5], dtype=torch.float64)


def test_against_scipy():
    frozen, counts = stats.poisson(LOG_RATES.exp().numpy()), torch.tensor([0, 3, 12])
    expected = torch.from_numpy(frozen.logpmf(counts.numpy()))
    assert_close(Poisson().log_prob(LOG_RATES[:, None], counts, {}), expected)
    assert_close(Poisson().variance(LOG_RATES, {}), torch.from_numpy(frozen.var()))
    for value in (-0.5, 0.0, 0.9, 3.0, 12.7):
        points = torch.full((3,), value, dtype=torch.float64)
        assert_close(Poisson().cdf(LOG_RATES, points, {}), torch.from_numpy(frozen.cdf(points.numpy())))


def test_counts_are_encoded_exactly():
    assert Poisson().encode(torch.tensor([0, 7])).dtype == torch.float32
    large = Poisson().encode(torch.tensor([2**24 + 1, 0]).double())
    assert large.dtype == torch.float64
    assert large[0].item() == 2**24 + 1
    assert Poisson().encode([1.0, 3.0]).tolist() == [1.0, 3.0]


def test_negative_counts():
    with pytest.raises(DataError, match=r"negative value\n  received: -2 in row 1"):
        Poisson().encode(torch.tensor([4, -2]))


def test_fractions():
    with pytest.raises(DataError, match=r"needs counts\n  received: 0\.5 in row 2(.|\n)*likelihoods\.Gaussian\(\)"):
        Poisson().encode([1.0, 2.0, 0.5])


def test_missing_counts():
    with pytest.raises(DataError, match="nan in row 0"):
        Poisson().encode([float("nan"), 2.0])
