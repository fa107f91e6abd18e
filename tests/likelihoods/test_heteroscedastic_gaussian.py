import numpy as np
import pytest
import torch
from scipy import stats
from torch.testing import assert_close

from bayesprop.errors import DataError
from bayesprop.likelihoods import HeteroscedasticGaussian

OUTPUTS = torch.tensor([[0.5, -1.0, 0.2, -30.0], [2.0, 0.0, 1.0, 3.0]], dtype=torch.float64)
TARGETS = torch.tensor([[0.0, -1.0], [2.5, 1.0]], dtype=torch.float64)
MEAN = OUTPUTS[:, :2].numpy()
SCALE = np.logaddexp(0, OUTPUTS[:, 2:].numpy()) + 1e-4


def test_equation_1_against_scipy():
    likelihood, frozen = HeteroscedasticGaussian(), stats.norm(MEAN, SCALE)
    expected = torch.from_numpy(frozen.logpdf(TARGETS.numpy()).sum(1))
    assert_close(likelihood.log_prob(OUTPUTS, TARGETS, {}), expected)
    assert_close(likelihood.mean(OUTPUTS, {}), torch.from_numpy(MEAN))
    assert_close(likelihood.variance(OUTPUTS, {}), torch.from_numpy(SCALE**2))
    assert_close(likelihood.cdf(OUTPUTS, TARGETS, {}), torch.from_numpy(frozen.cdf(TARGETS.numpy())))


def test_one_target():
    outputs = torch.zeros(3, 2)
    HeteroscedasticGaussian().check(outputs, torch.zeros(3))
    assert HeteroscedasticGaussian().mean(outputs, {}).shape == (3,)


def test_images():
    outputs, targets = torch.zeros(2, 2, 4, 5), torch.zeros(2, 4, 5)
    HeteroscedasticGaussian().check(outputs, targets)
    assert HeteroscedasticGaussian().mean(outputs, {}).shape == (2, 4, 5)
    assert HeteroscedasticGaussian().log_prob(outputs, targets, {}).shape == (2,)


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 3)])
def test_odd_outputs(shape):
    with pytest.raises(
        DataError, match=r"two outputs for each target(.|\n)*outputs \(4, 2\)\n  write: a last layer with 2"
    ):
        HeteroscedasticGaussian().check(torch.zeros(shape), torch.zeros(4))


def test_even_outputs_of_the_wrong_number():
    with pytest.raises(DataError, match=r"one output for each target"):
        HeteroscedasticGaussian().check(torch.zeros(4, 4), torch.zeros(4))
