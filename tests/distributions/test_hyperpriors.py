from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from scipy import integrate, stats

from bayesprop.distributions import Gamma, HalfCauchy, HalfNormal, Hyperprior, InverseGamma, Product
from bayesprop.errors import ConfigurationError
from bayesprop.specification import from_json, to_json

POWER = {"scale": 1, "variance": 2, "precision": -2}
CASES: list[tuple[Hyperprior, object]] = [
    (HalfNormal(1.0), stats.halfnorm(scale=1.0)),
    (HalfNormal(0.2), stats.halfnorm(scale=0.2)),
    (HalfCauchy(1.0), stats.halfcauchy(scale=1.0)),
    (HalfCauchy(3.0), stats.halfcauchy(scale=3.0)),
    (InverseGamma(2.0, 0.5), stats.invgamma(2.0, scale=0.5)),
    (InverseGamma(6.0, 6.0), stats.invgamma(6.0, scale=6.0)),
    (Gamma(2.0, 0.5), stats.gamma(2.0, scale=1.0 / 0.5)),
    (Gamma(0.5, 4.0), stats.gamma(0.5, scale=1.0 / 4.0)),
]
EVERY = [(replace(h, of=of), d, of) for h, d in CASES for of in POWER]


def name(value: object) -> str:
    return value.describe() if isinstance(value, Hyperprior) else ""


@pytest.mark.parametrize(("hyperprior", "reference", "of"), EVERY, ids=name)
def test_density_of_the_scale_is_the_change_of_variables(hyperprior, reference, of):
    scale = torch.logspace(-1.5, 1.5, 41, dtype=torch.float64)
    k = POWER[of]
    quantity = scale.numpy() ** k
    expected = reference.logpdf(quantity) + math.log(abs(k)) + (k - 1) * scale.log().numpy()
    found = hyperprior.log_density_of_scale(scale)
    torch.testing.assert_close(found, torch.from_numpy(expected), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("hyperprior", "reference", "of"), EVERY, ids=name)
def test_density_of_the_scale_integrates_to_one(hyperprior, reference, of):
    # In t = log scale the integrand is smooth; +-80 leaves out less than exp(-39) of the heaviest tail, Gamma(1/2) of
    # the scale, whose mass below s is of order sqrt(s).
    def integrand(t: float) -> float:
        scale = torch.tensor(t, dtype=torch.float64).exp()
        return float(torch.exp(hyperprior.log_density_of_scale(scale) + t))

    pieces = [-80.0, -20.0, -6.0, -2.0, 0.0, 2.0, 6.0, 20.0, 80.0]
    total = sum(integrate.quad(integrand, a, b, epsabs=1e-12, limit=200)[0] for a, b in pairwise(pieces))
    assert total == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize(("hyperprior", "reference", "of"), EVERY, ids=name)
def test_learning_starts_inside_the_density(hyperprior, reference, of):
    mass_below = reference.cdf(hyperprior.initial ** POWER[of])
    assert 0.2 < mass_below < 0.8


def test_half_normal_and_half_cauchy_start_at_their_medians():
    assert stats.halfnorm(scale=0.3).cdf(HalfNormal(0.3).initial) == pytest.approx(0.5, abs=1e-12)
    assert HalfCauchy(0.3).initial == 0.3


def test_gamma_on_the_precision_is_inverse_gamma_on_the_variance():
    scale = torch.logspace(-1, 1, 9, dtype=torch.float64)
    precision, variance = Gamma(3.0, 2.0), InverseGamma(3.0, 2.0)
    assert (precision.of, variance.of) == ("precision", "variance")
    torch.testing.assert_close(
        precision.log_density_of_scale(scale), variance.log_density_of_scale(scale), rtol=1e-12, atol=1e-13
    )
    assert precision.initial == pytest.approx(variance.initial, rel=1e-14)


def test_density_is_differentiable_and_batched():
    scale = torch.tensor([0.3, 2.0], dtype=torch.float64)
    gradient = torch.func.vmap(torch.func.grad(HalfNormal(0.5).log_density_of_scale))(scale)
    torch.testing.assert_close(gradient, -scale / 0.25, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize(
    ("build", "message", "line"),
    [
        (lambda: HalfNormal(-1.0), "HalfNormal(scale=...) must be positive", "write: HalfNormal(scale=1.0)"),
        (lambda: HalfCauchy(0.0), "HalfCauchy(scale=...) must be positive", "received: scale=0"),
        (lambda: InverseGamma(1.0, -2.0), "InverseGamma(rate=...) must be positive", "concentration=2.0, rate=1.0"),
        (lambda: Gamma(math.nan, 2.0), "Gamma(concentration=...) must be positive", "write: Gamma("),
        (lambda: HalfNormal(1.0, of="std"), "HalfNormal(of=...)", "'scale', 'variance', 'precision'"),  # type: ignore
        (lambda: HalfNormal(1.0, shared="wieght"), "Did you mean 'weight'?", "'network', 'layer', 'unit', 'weight'"),  # type: ignore
        (lambda: Product(()), "a Product multiplies hyperpriors", "received: ()"),
        (lambda: Product((HalfNormal(), 2.0)), "a Product multiplies hyperpriors", "HalfCauchy(shared="),  # type: ignore
    ],
)
def test_bad_values_are_refused(build, message, line):
    with pytest.raises(ConfigurationError) as caught:
        build()
    assert message in str(caught.value)
    assert line in str(caught.value)


def test_products_are_flat():
    a, b, c = HalfNormal(1.0), HalfCauchy(2.0, shared="weight"), Gamma(1.0, 1.0)
    assert (a * b * c).factors == (a * (b * c)).factors == ((a * b) * (c * a)).factors[:3] == (a, b, c)
    with pytest.raises(TypeError):
        a * 2.0  # type: ignore
    with pytest.raises(TypeError):
        (a * b) * 2.0  # type: ignore
    assert (a * b).describe() == "HalfNormal(1) per layer * HalfCauchy(2) per weight"
    assert c.describe() == "Gamma(1, 1) on the precision per layer"


def test_hyperpriors_travel_in_a_file():
    hyperpriors = (*(h for h, _, _ in EVERY), HalfCauchy(shared="weight", centred=True) * HalfNormal(2.0))
    tensors: dict[str, torch.Tensor] = {}
    assert from_json(to_json(hyperpriors, tensors, "h"), tensors) == hyperpriors
    assert not tensors
