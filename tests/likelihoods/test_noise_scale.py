import pytest
import torch
from torch.testing import assert_close

from bayesprop.distributions.hyperpriors import Gamma, HalfCauchy, HalfNormal, InverseGamma
from bayesprop.errors import ConfigurationError
from bayesprop.likelihoods import Gaussian, StudentT
from bayesprop.likelihoods.noise_scale import LEARNT, NAME, check_scale, scale_latents, scale_value


def test_a_known_scale_has_no_latent():
    assert scale_latents(0.3) == ()
    assert Gaussian(scale=2).latents == ()
    assert scale_value(2, {}, torch.zeros(3)) == 2.0


@pytest.mark.parametrize("hyperprior", [HalfNormal(2.0), HalfCauchy(0.5), InverseGamma(2.0, 1.0), Gamma(2.0, 1.0)])
def test_a_hyperprior_makes_one_latent(hyperprior):
    (latent,) = Gaussian(scale=hyperprior).latents
    assert latent.name == NAME == "likelihood.scale"
    assert latent.shape == ()
    assert latent.initial == hyperprior.initial
    value = torch.tensor([0.3, 2.0])
    assert_close(latent.log_density(value), hyperprior.log_density_of_scale(value))
    assert latent.constrain(torch.zeros(4, 7, 1)).shape == (4, 7)


def test_the_scale_is_learnt_unless_given():
    assert Gaussian().scale == StudentT().scale == LEARNT == HalfNormal(1.0)


def test_the_value_of_a_draw_has_the_dtype_of_the_outputs():
    value = scale_value(LEARNT, {NAME: torch.tensor(0.5, dtype=torch.float64)}, torch.zeros(2))
    assert isinstance(value, torch.Tensor)
    assert value.dtype == torch.float32


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf"), True, "small", torch.ones(2)])
def test_scales_that_cannot_be(scale):
    with pytest.raises(ConfigurationError, match=r"standard deviation, not its variance(.|\n)*Gaussian\(scale=0\.1\)"):
        check_scale(scale, "Gaussian")


@pytest.mark.parametrize("shared", ["unit", "weight"])
def test_a_hyperprior_for_weights(shared):
    with pytest.raises(ConfigurationError, match=r"one noise scale(.|\n)*HeteroscedasticGaussian\(\)"):
        StudentT(scale=HalfNormal(1.0, shared=shared))
