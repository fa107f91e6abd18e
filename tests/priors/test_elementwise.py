from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bayesprop import priors
from bayesprop.errors import ConfigurationError

REFUSED = [
    (lambda: priors.Normal(scale=-0.1), "Normal(scale=...) must be positive", "scale=-0.1", "priors.Normal(scale=1.0)"),
    (lambda: priors.Laplace(scale=0.0), "Laplace(scale=...) must be positive", "scale=0", "priors.Laplace(scale=1.0)"),
    (lambda: priors.Cauchy(scale=math.inf), "Cauchy(scale=...) must be positive", "inf", "priors.Cauchy(scale=1.0)"),
    (lambda: priors.Normal(loc=math.nan), "Normal(loc=...)", "nan", "priors.Normal(loc=0.0)"),
    (lambda: priors.Normal(loc=None), "Normal(loc=...)", "None", "priors.Normal(loc=0.0)"),  # type: ignore
    (lambda: priors.Normal(scale="big"), "Normal(scale=...)", "'big'", "priors.Normal(scale=1.0)"),  # type: ignore
    (
        lambda: priors.Normal(scale=torch.tensor([1.0, -3.0])),
        "Normal(scale=...) must be positive",
        "smallest entry is -3",
        "priors.Normal(scale=1.0)",
    ),
    (lambda: priors.StudentT(df=0.0), "StudentT(df=...) must be positive", "df=0", "priors.StudentT(df=4.0)"),
    (lambda: priors.StudentT(df=-2.0), "StudentT(df=...) must be positive", "df=-2", "priors.StudentT(df=4.0)"),
    (
        lambda: priors.ScaleMixture(pi=1.5),
        "ScaleMixture(pi=...) is a probability",
        "pi=1.5",
        "priors.ScaleMixture(pi=0.5",
    ),
    (lambda: priors.ScaleMixture(pi=1.0), "is a probability", "pi=1.0", "priors.Normal(scale=1.0)"),
    (lambda: priors.ScaleMixture(pi=0.0, scale2=0.2), "is a probability", "pi=0.0", "priors.Normal(scale=0.2)"),
    (
        lambda: priors.ScaleMixture(scale1=-1.0),
        "scale1=...) must be positive",
        "scale1=-1",
        "priors.ScaleMixture(pi=0.5",
    ),
    (lambda: priors.ScaleMixture(scale2=0.0), "scale2=...) must be positive", "scale2=0", "priors.ScaleMixture(pi=0.5"),
    (lambda: priors.ScaleMixture(0.5, 0.3, 0.3), "two different scales", "a single normal", "priors.Normal(scale=0.3)"),
    (lambda: priors.Horseshoe(-1.0), "Horseshoe(global_scale=...) must be", "-1", "priors.Horseshoe(global_scale=1.0)"),
    (
        lambda: priors.Normal(scale=priors.Normal()),  # type: ignore
        "a scale is positive, so its density must be one over the positive numbers",
        "a bayesprop.priors.elementwise.Normal",
        "priors.Normal(scale=priors.HalfNormal(scale=1.0))",
    ),
    (
        lambda: priors.Laplace(scale=torch.distributions.HalfCauchy(1.0)),  # type: ignore
        "a scale is positive",
        "torch.distributions.half_cauchy.HalfCauchy",
        "priors.Laplace(scale=priors.HalfCauchy(scale=1.0))",
    ),
    (
        lambda: priors.Cauchy(scale=priors.Cauchy()),  # type: ignore
        "a scale is positive",
        "a bayesprop.priors.elementwise.Cauchy",
        "priors.Cauchy(scale=priors.HalfCauchy(scale=1.0))",
    ),
    (
        lambda: priors.Normal(scale=priors.Gamma),  # type: ignore
        "a scale is positive",
        "the class Gamma",
        "priors.Normal(scale=priors.Gamma(concentration=2.0, rate=1.0))",
    ),
]


@pytest.mark.parametrize(("build", "asked", "received", "write"), REFUSED)
def test_bad_values_are_refused_with_the_line_to_write(build, asked, received, write):
    with pytest.raises(ConfigurationError) as caught:
        build()
    lines = str(caught.value).splitlines()
    assert asked in lines[0]
    assert any(line.startswith("  received: ") and received in line for line in lines)
    assert any(line.startswith("  write: ") and write in line for line in lines)


def test_the_defaults_are_those_of_the_documentation():
    assert priors.Normal().arguments() == {"loc": 0.0, "scale": 1.0}
    assert priors.Cauchy().arguments() == {"df": 1.0, "loc": 0.0, "scale": 1.0}
    assert priors.ScaleMixture().arguments() == {"pi": 0.5, "scale1": 1.0, "scale2": math.exp(-6.0)}


def test_numbers_of_other_libraries_are_floats():
    prior = priors.Normal(loc=np.float32(0.5), scale=2)  # type: ignore
    assert type(prior.loc) is float
    assert type(prior.scale) is float
    assert prior == priors.Normal(0.5, 2.0)


def test_a_parameter_is_not_kept_by_its_graph():
    prior = priors.Normal(loc=torch.nn.Parameter(torch.ones(2)))
    assert isinstance(prior.loc, torch.Tensor)
    assert not prior.loc.requires_grad
