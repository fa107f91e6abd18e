"""A normalizing flow: one map in both directions, densities against brute-force determinants, files, refusals."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
import torch
from torch.testing import assert_close

import bayesprop as bp
from bayesprop.errors import ConfigurationError
from bayesprop.posteriors import DiagonalGaussian, NormalizingFlow
from bayesprop.posteriors.normalizing_flow import Warp, bend, warp
from bayesprop.testing import LinearRegression


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def flow(particles=2, layers=3, hidden=5, size=0.3):
    module = warp(4, layers, hidden)
    parameters = size * numbers(particles, module.size, seed=1)
    mean, std = numbers(particles, 4, seed=2), 0.2 + numbers(particles, 4, seed=3).abs()
    shape = torch.tensor([[layers, hidden]]).repeat(particles, 1)
    return NormalizingFlow(LinearRegression().model, mean, std, parameters, shape, {})


def test_the_map_runs_in_both_directions_and_knows_its_determinant():
    module = warp(4, 3, 5)
    parameters, white = 0.5 * numbers(2, module.size, seed=1), numbers(2, 6, 4)
    bent, determinant = bend(module, parameters, white)
    back, inverse = bend(module, parameters, bent, inverse=True)
    assert_close(back, white)
    assert_close(inverse, -determinant)
    assert float((bent - white).abs().max()) > 0.1
    for particle in range(2):
        own = parameters[particle : particle + 1]
        for draw in range(3):
            one = torch.func.jacrev(lambda z, own=own: bend(module, own, z[None, None])[0][0, 0])
            jacobian = one(white[particle, draw])
            assert_close(torch.linalg.slogdet(jacobian)[1], determinant[particle, draw])
        assert_close(bend(module, own, white[particle : particle + 1])[0][0], bent[particle])


def test_every_number_is_moved():
    """Two couplings reach both halves; their networks start at the identity."""
    module = warp(5, 2, 8)
    start = module.start(numbers(1, module.size))
    white = numbers(1, 3, 5)
    assert_close(bend(module, start, white), (white, torch.zeros(1, 3).double()))
    moved = bend(module, start + 0.1, white)[0]
    assert bool((moved != white).all())
    pieces = start[0].split([parameter.numel() for parameter in module.parameters()])
    named = dict(zip(dict(module.named_parameters()), pieces, strict=True))
    first = [piece for name, piece in named.items() if name.endswith("hyper.0.weight")]
    assert len(first) == 2
    assert all(float(weights.abs().max()) > 0.1 for weights in first)


def test_the_density_of_a_draw_is_that_of_its_noise():
    q = flow()
    theta = q.draw(q.rng(0), 7)
    for particle in range(2):
        one = q.member(particle)
        tensors = one.tensors()
        bent = (theta[particle : particle + 1] - tensors["mean"]) / tensors["std"]
        white = bend(one._warp, tensors["parameters"], bent, inverse=True)[0]

        def weights(z, t=tensors, module=one._warp):
            return t["mean"][0] + t["std"][0] * bend(module, t["parameters"], z[None, None])[0][0, 0]

        jacobian = torch.func.jacrev(weights)
        for draw in range(3):
            normal = torch.distributions.Normal(0.0, 1.0).log_prob(white[0, draw]).sum()
            expected = normal - torch.linalg.slogdet(jacobian(white[0, draw]))[1]
            assert_close(q.log_density(theta)[particle, draw], expected)
    assert_close(q.log_density(theta[:, 0]), q.log_density(theta)[:, 0])


@pytest.mark.statistical
def test_the_identity_is_a_gaussian():
    """Moments of 2,048 draws and the divergence of 4,000 within five standard errors."""
    module, mean, std = warp(4, 2, 6), numbers(1, 4), 0.3 + numbers(1, 4, seed=5).abs()
    start = module.start(numbers(1, module.size))
    model = LinearRegression().model
    q = NormalizingFlow(model, mean, std, start, torch.tensor([[2, 6]]), {})
    gaussian = DiagonalGaussian(model, mean, std, {})
    theta = numbers(1, 6, 4, seed=7)
    assert_close(q.log_density(theta), gaussian.log_density(theta))
    assert bool(((q.mean() - mean).abs() < 5.0 * std / 2048**0.5).all())
    assert_close(q.std(), std, rtol=5.0 / (2 * 2048) ** 0.5, atol=0.0)
    draws = q.draw(q.rng(0), 4_000)
    each = q.log_density(draws) - model.log_prior(draws)
    assert abs(float(q.kl(4_000)) - float(gaussian.kl())) < 5.0 * float(each.std()) / 4_000**0.5


def test_a_draw_is_the_same_whatever_is_drawn_with_it_and_after_loading(tmp_path):
    q = flow()
    together = q.draw(q.rng(3), 12)
    assert_close(q.draw(q.rng(3), 5, first=7), together[:, 7:])
    q.save(tmp_path / "q.bayes")
    again = bp.load(tmp_path / "q.bayes", network=torch.nn.Linear(3, 1).double())
    assert isinstance(again, NormalizingFlow)
    assert_close(again.draw(again.rng(3), 12), together)


def test_parameters_of_another_flow_are_refused():
    q = flow()
    tensors = q.tensors() | {"shape": torch.tensor([[2, 5]] * 2)}
    with pytest.raises(ConfigurationError, match="these are not the parameters of this flow"):
        NormalizingFlow.from_tensors(q.model, tensors, {}, q.context)


def test_one_column_is_refused():
    with pytest.raises(ConfigurationError, match="a coupling layer needs two numbers") as caught:
        Warp(1, 2, 4)
    assert "write: BayesByBackprop()" in str(caught.value)


def test_without_zuko_the_extra_is_named(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name="zuko")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ConfigurationError, match="a normalizing flow needs zuko, which is not installed") as caught:
        Warp(4, 2, 4)
    assert 'pip install "bayesprop[flows]"' in str(caught.value)


def test_distributions_are_checked_as_before():
    """Zuko's import switches off the checks of all distributions of the process."""
    code = (
        "import torch; from bayesprop.posteriors.normalizing_flow import Warp; Warp(3, 1, 2);"
        "print(torch.distributions.Distribution._validate_args)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
