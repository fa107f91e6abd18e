import numpy as np
import torch
from scipy import stats
from torch.testing import assert_close

from bayesprop.likelihoods import Gaussian
from bayesprop.likelihoods.gaussian import standard_normal_cdf

OUTPUTS = torch.tensor([-1.0, 0.0, 2.5], dtype=torch.float64)
TARGETS = torch.tensor([0.3, -4.0, 2.0], dtype=torch.float64)


def test_density_and_distribution_function_against_scipy():
    likelihood, frozen = Gaussian(scale=0.7), stats.norm(OUTPUTS.numpy(), 0.7)
    assert_close(likelihood.log_prob(OUTPUTS[:, None], TARGETS, {}), torch.from_numpy(frozen.logpdf(TARGETS.numpy())))
    assert_close(likelihood.cdf(OUTPUTS, TARGETS, {}), torch.from_numpy(frozen.cdf(TARGETS.numpy())))
    assert_close(likelihood.variance(OUTPUTS, {}), torch.from_numpy(np.full(3, frozen.std()[0] ** 2)))


def test_both_tails_of_the_distribution_function():
    far = torch.tensor([-30.0, -5.0, 0.0, 5.0, 30.0], dtype=torch.float64)
    found = standard_normal_cdf(far)
    assert_close(found, torch.from_numpy(stats.norm.cdf(far.numpy())), rtol=1e-13, atol=0)


def test_a_learnt_scale_is_read_from_the_latents():
    latents = {"likelihood.scale": torch.tensor(0.7, dtype=torch.float64), "prior.scale[0]": torch.tensor(9.0)}
    assert_close(Gaussian().log_prob(OUTPUTS, TARGETS, latents), Gaussian(scale=0.7).log_prob(OUTPUTS, TARGETS, {}))
    assert_close(Gaussian().variance(OUTPUTS, latents), torch.full((3,), 0.49, dtype=torch.float64))


def test_the_gradient_reaches_the_scale():
    scale = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    Gaussian().log_prob(OUTPUTS, TARGETS, {"likelihood.scale": scale}).sum().backward()
    residual = TARGETS - OUTPUTS
    assert_close(scale.grad, (residual**2 / 0.7**3 - 1 / 0.7).sum())


def test_several_targets_are_summed():
    outputs, targets = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))
    frozen = stats.norm(outputs.numpy(), 2.0)
    expected = torch.from_numpy(frozen.logpdf(targets.numpy()).sum(1))
    assert_close(Gaussian(scale=2.0).log_prob(outputs, targets, {}), expected.float())
