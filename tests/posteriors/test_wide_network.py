"""The kernel of an infinitely wide network: the recursion by hand, wide finite networks, and what has no limit."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.posteriors.dual_activations import Erf
from bayesprop.posteriors.wide_network import WideNetwork
from bayesprop.rng import Rng, Stream


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def model_of(*layers: nn.Module, prior: priors.Prior | None = None, **options) -> bp.Model:
    options = {"likelihood": likelihoods.Gaussian(0.1), "prior": prior, **options}
    return bp.Model(nn.Sequential(*layers).double(), **options)


UNEVEN = {"*weight": priors.Normal(scale=torch.tensor([[1.0, 2.0]])), "*": priors.Normal()}
NONE = torch.zeros(1, 0, dtype=torch.float64)


def test_two_rectified_layers_by_hand():
    """One input; the formula of Cho and Saul written out for single numbers."""
    model = model_of(nn.Linear(1, 5), nn.ReLU(), nn.Linear(5, 1, bias=False), prior=priors.Normal(scale=0.7))
    x, y = 0.8, -0.3
    v = 0.49
    a, b, c = v + v * x * x, v + v * y * y, v + v * x * y
    angle = math.acos(c / math.sqrt(a * b))
    expected = 5 * v * math.sqrt(a * b) * (math.sin(angle) + (math.pi - angle) * math.cos(angle)) / (2 * math.pi)
    rows = torch.tensor([[[x], [y]]], dtype=torch.float64)
    found = WideNetwork(model).own(NONE, rows)[0]
    assert float(found[0, 1]) == pytest.approx(expected, rel=1e-12)
    assert float(found[0, 0]) == pytest.approx(5 * v * 0.5 * a, rel=1e-12)


def test_a_linear_network_is_linear_regression():
    model = model_of(nn.Flatten(), nn.Linear(6, 2), prior=priors.Normal(scale=0.5))
    rows = normal(4, 2, 3)
    expected = 0.25 + 0.25 * rows.flatten(1) @ rows.flatten(1).T
    assert_close(WideNetwork(model).own(NONE, rows[None])[0], expected)
    assert_close(WideNetwork(model).diagonal(NONE, rows[None])[0], expected.diagonal())


@pytest.mark.statistical
@pytest.mark.parametrize("activation", [nn.ReLU(), Erf(), nn.Tanh()])
def test_a_wide_network_with_random_weights_has_this_covariance(activation: nn.Module):
    """4000 networks of two hidden layers of 200 units. Tolerance: five standard errors of a covariance,
    sqrt((k_ii k_jj + k_ij^2) / 4000), and 3 / 200 of the scale for the finite width, whose effect is O(1 / n)."""
    width, count, scale = 200, 4000, 1.2 / math.sqrt(200)
    prior = {"*.weight": priors.Normal(scale=scale), "*.bias": priors.Normal(scale=0.3)}
    layers = (nn.Linear(2, width), activation, nn.Linear(width, width), activation, nn.Linear(width, 1))
    first = {"0.weight": priors.Normal(scale=0.9), **prior}
    model = bp.Model(nn.Sequential(*layers), likelihood=likelihoods.Gaussian(0.1), prior=first)
    rows = torch.tensor([[1.0, 0.0], [0.5, -1.0], [-1.0, 2.0]])
    expected = WideNetwork(model).own(NONE, rows[None])[0]
    found = []
    for part in range(20):
        noise = Rng.create(part).normal(model.layout.size, Stream.INITIAL, draws=count // 20)
        std = model.bound_prior.prior_std()
        found.append(model.outputs(noise * std.float(), model.initial_buffers(1), rows)[0, :, :, 0])
    outputs = torch.cat(found).double()
    sampled = outputs.T @ outputs / count
    size = expected.diagonal()
    error = ((size[:, None] * size + expected.square()) / count).sqrt()
    assert bool(((sampled - expected).abs() < 5.0 * error + 3.0 / width * size.max()).all())


def test_scales_that_are_learnt_are_multiplied_in():
    prior = priors.Normal(scale=priors.HalfNormal(1.0, shared="layer"))
    layers = (nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    learnt, rows = WideNetwork(model_of(*layers, prior=prior)), normal(1, 4, 2)
    scales = torch.tensor([[0.6, 1.7]], dtype=torch.float64)
    fixed = {"0.*": priors.Normal(scale=0.6), "2.*": priors.Normal(scale=1.7)}
    expected = WideNetwork(model_of(*layers, prior=fixed)).own(NONE, rows)
    assert_close(learnt.own(scales.log(), rows), expected)
    leaf = scales.log().requires_grad_(True)
    assert torch.autograd.gradcheck(lambda t: learnt.own(t, rows), (leaf,))


def test_particles_have_their_own_scales():
    prior = priors.Normal(scale=priors.HalfNormal(1.0))
    network, rows = WideNetwork(model_of(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1), prior=prior)), normal(2, 4, 2)
    hyper = torch.tensor([[0.1, -0.2], [0.5, 0.3]]).double()
    both = network(hyper, rows, rows[:, :3])
    assert both.shape == (2, 4, 3)
    assert_close(both[1:], network(hyper[1:], rows[1:], rows[1:, :3]))


@pytest.mark.parametrize(
    ("layers", "options", "received"),
    [
        ((nn.Linear(2, 3), nn.Dropout(0.1), nn.Linear(3, 1)), {}, "1: Dropout"),
        ((nn.Linear(2, 3), nn.ReLU()), {}, "does not end in a dense layer"),
        ((nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)), {"random": "2.*"}, "0.weight, which is fixed"),
        ((nn.Linear(2, 1),), {"prior": priors.Laplace()}, r"another prior \(laplace\)"),
        ((nn.Linear(2, 1),), {"prior": priors.Normal(0.5, 1.0)}, "another prior"),
        ((nn.Linear(2, 1),), {"prior": priors.Normal(scale=priors.HalfNormal(1.0, centred=True))}, "a centred scale"),
        ((nn.Linear(2, 1),), {"prior": UNEVEN}, "several scales"),
    ],
)
def test_what_has_no_limit_is_refused(layers, options, received):
    with pytest.raises(ConfigurationError, match=received) as caught:
        WideNetwork(model_of(*layers, **options))
    assert "the infinitely wide network is known for dense layers with a normal prior" in str(caught.value)
    assert "BayesByBackprop()" in str(caught.value)
