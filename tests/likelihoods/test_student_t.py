import math

import pytest
import torch
from scipy import stats
from torch.testing import assert_close

from bayesprop.errors import CapabilityError, ConfigurationError
from bayesprop.likelihoods import StudentT

OUTPUTS = torch.tensor([-1.0, 0.0, 2.5, 0.0], dtype=torch.float64)
TARGETS = torch.tensor([0.3, -40.0, 2.0, 1e6], dtype=torch.float64)


@pytest.mark.parametrize("df", [0.5, 1.0, 4.0, 7.3])
def test_density_against_scipy(df):
    frozen = stats.t(df, OUTPUTS.numpy(), 0.7)
    assert_close(
        StudentT(df=df, scale=0.7).log_prob(OUTPUTS, TARGETS, {}), torch.from_numpy(frozen.logpdf(TARGETS.numpy()))
    )


@pytest.mark.parametrize("df", [1, 2, 3, 4, 5, 6, 9, 10, 50, 199, 200])
def test_distribution_function_against_scipy(df):
    frozen = stats.t(df, OUTPUTS.numpy(), 0.7)
    likelihood = StudentT(df=df, scale=0.7)
    assert likelihood.has_cdf
    expected = torch.from_numpy(frozen.cdf(TARGETS.numpy()))
    # 1e-12 absolute: (1 + A) / 2 cancels far in the lower tail, where only the absolute value matters to a quantile.
    assert_close(likelihood.cdf(OUTPUTS, TARGETS, {}), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("df", [2.5, 201.0])
def test_no_closed_form_for_other_degrees_of_freedom(df):
    likelihood = StudentT(df=df, scale=0.7)
    assert not likelihood.has_cdf
    with pytest.raises(CapabilityError, match="whole number of degrees of freedom"):
        likelihood.cdf(OUTPUTS, TARGETS, {})


def test_variance_is_infinite_for_few_degrees_of_freedom():
    assert_close(StudentT(df=4.0, scale=0.7).variance(OUTPUTS, {}), torch.full((4,), 0.98, dtype=torch.float64))
    assert bool(torch.isinf(StudentT(df=2.0, scale=0.7).variance(OUTPUTS, {})).all())


@pytest.mark.parametrize("df", [0.0, -1.0, math.inf, math.nan, True, "4"])
def test_degrees_of_freedom_that_cannot_be(df):
    with pytest.raises(ConfigurationError, match=r"positive degrees of freedom(.|\n)*StudentT\(df=4\.0\)"):
        StudentT(df=df)
