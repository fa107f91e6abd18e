"""The passes over the columns on a GPU, element by element: noise, the sample, and what the update leaves alone.

The arithmetic of the update under every prior and optimiser is compared with the plain path in
tests/inference/variational/test_on_device.py.
"""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Laplace, Normal, StudentT
from torch.nn.functional import softplus

from bayesprop.kernels import columns, noise
from bayesprop.kernels.rooms import room, settle

from .conftest import mixture

SIZES = [1, 3, 511, 1025, 2050]


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("count", SIZES)
def test_noise_is_that_of_the_definition(interpreter, count):
    """Polynomials and logarithms of other bodies: 2e-6 of a number that is at most 6.7."""
    keys = torch.tensor([[7, 0], [2**40 + 3, 5]], device=interpreter)
    found = columns.normal(keys, torch.tensor(2**33 + 9, device=interpreter), 3, count)
    expected = noise.normal_definition(keys, 2**33 + 9, 3, count)
    assert found.shape == (2, count)
    torch.testing.assert_close(found, expected, rtol=0.0, atol=5e-6)


@pytest.mark.parametrize("antithetic", [False, True], ids=["independent", "pairs"])
@pytest.mark.parametrize(("width", "behind"), [(1, 0), (1025, 3), (2047, 1030)])
def test_sample(interpreter, width, behind, antithetic):
    """mean + softplus(rho) * noise for columns with a distribution, the mean for those behind them."""
    mean = settle(draw(3, width + behind).to(interpreter))
    rho = settle(draw(3, width, seed=1).to(interpreter) - 2.0)
    seeds, step = torch.tensor([5, 6, 2**35], device=interpreter), torch.tensor(4, device=interpreter)
    found = columns.sample(mean, rho, seeds, step, 1, 4, antithetic=antithetic)
    draws = torch.arange(2 if antithetic else 4, device=interpreter)
    keys = torch.stack(torch.broadcast_tensors(seeds[:, None], draws), dim=-1)
    eps = noise.normal_definition(keys, 4, 1, width)
    eps = torch.cat((eps, -eps), dim=1) if antithetic else eps
    expected = mean[:, None].expand(-1, 4, -1).clone()
    expected[..., :width] += softplus(rho)[:, None] * eps
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=5e-6)
    assert torch.equal(found[..., width:], expected[..., width:])


def test_sample_in_half_the_bytes(interpreter):
    mean, rho = settle(draw(1, 70).to(interpreter)), settle(draw(1, 70, seed=1).to(interpreter))
    seeds, step = torch.tensor([5], device=interpreter), torch.tensor(4, device=interpreter)
    half = columns.sample(mean, rho, seeds, step, 1, dtype=torch.bfloat16)
    whole = columns.sample(mean, rho, seeds, step, 1)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), whole, rtol=2**-7, atol=0.0)  # the interpreter cuts, a GPU rounds


def test_matrices_that_are_no_rooms_are_refused(interpreter):
    """Bodies write behind the last column: in any other matrix that is the next row."""
    mean = draw(2, 70).to(interpreter)
    seeds, step = torch.tensor([5, 6], device=interpreter), torch.tensor(4, device=interpreter)
    with pytest.raises(AssertionError, match=r"\[2, 70\] with strides \(70, 1\) is no room"):
        columns.sample(settle(mean), mean, seeds, step, 1)


@pytest.mark.parametrize(("family", "parameters"), [("normal", (0.1, 0.5)), ("laplace", (0.1, 0.5)), ("flat", ())])
def test_constants_have_room_for_every_family(family, parameters):
    found = columns.prior_constants(family, *parameters)
    assert found.shape == (4,)
    assert found.dtype == torch.float32


def test_constants_of_particles_and_columns():
    scale = torch.tensor([[0.5], [2.0]])
    found = columns.prior_constants("normal", torch.zeros(1, 3), scale)
    assert found.shape == (2, 3, 4)
    assert found[:, 0, 1].tolist() == [4.0, 0.25]


def step_of(interpreter, width: int, rule: columns.Rule, prior: columns.Prior, *, particles: int = 2, parts: int = 3):
    """An update without moments, noise's share and all; what it was given and what came out."""
    mean = settle(draw(particles, width).to(interpreter))
    rho = settle(draw(particles, width, seed=1).to(interpreter) - 2.0)
    gradient, pieces = draw(particles, 1, width, seed=2).to(interpreter), draw(particles, parts, seed=3).to(interpreter)
    seeds, now = torch.arange(particles, device=interpreter) + 9, torch.tensor(6, device=interpreter)
    numbers = torch.tensor([[0.1], [0.05], [0.3], [1.0], [1.0]], device=interpreter).expand(5, particles).contiguous()
    before = mean.clone(), rho.clone()
    ahead = room(particles, 1, width, device=interpreter).fill_(float("nan"))
    value = columns.update(
        mean, rho, {}, gradient, pieces, seeds, now, 1, numbers, rule=rule, prior=prior, scores=None, random=width,
        antithetic=False, likelihood_scale=-0.5, kl_scale=0.25, value_scale=10.0, ahead=ahead,
    )  # fmt: skip
    keys = torch.stack((seeds, torch.zeros_like(seeds)), dim=-1)
    return before, (mean, rho), gradient[:, 0], pieces, (value, ahead[:, 0]), keys


DENSITIES = {
    "normal": ((0.3, 0.7), Normal),
    "laplace": ((-0.2, 0.4), Laplace),
    "student_t": ((3.0, 0.1, 0.6), StudentT),
    "scale_mixture": ((0.25, 1.5, 0.2), None),
}


@pytest.mark.parametrize("family", DENSITIES)
@pytest.mark.parametrize("width", [5, 513])
def test_update_by_plain_descent(interpreter, width, family):
    """Equations 3 and 4 of the paper in double precision: the same noise, the score of torch's own density."""
    parameters, make = DENSITIES[family]
    constants = columns.prior_constants(family, *parameters).view(1, 1, 4).to(interpreter)
    prior = columns.Prior(family, constants, exact=False)
    before, after, gradient, pieces, (value, ahead), keys = step_of(interpreter, width, columns.Rule("sgd"), prior)
    mean, rho = (t.double() for t in before)
    eps, std = noise.normal_definition(keys, 6, 1, width).double(), torch.log1p(rho.exp())
    w = (mean + std * eps).requires_grad_()
    density = mixture(*parameters) if make is None else make(*parameters)
    (score,) = torch.autograd.grad(density.log_prob(w.cpu()).sum(), w)
    by_weight = -0.5 * gradient.double() - 0.3 * 0.25 * score
    by_rho = (by_weight * eps - 0.3 * 0.25 / std) / (1.0 + (-rho).exp())
    torch.testing.assert_close(after[0].double(), mean - 0.1 * by_weight, rtol=2e-5, atol=1e-5)
    torch.testing.assert_close(after[1].double(), rho - 0.05 * by_rho, rtol=2e-5, atol=1e-5)
    torch.testing.assert_close(value, 10.0 * pieces.sum(1), rtol=1e-5, atol=1e-5)
    following = noise.normal_definition(keys, 7, 1, width)
    torch.testing.assert_close(ahead, after[0] + softplus(after[1]) * following, rtol=1e-5, atol=1e-5)


def test_scales_that_are_nothing_or_everything(interpreter):
    """rho from -200 to 60: finite steps, and a std that keeps its digits where exp(rho) is far below one."""
    rho = settle(torch.tensor([[-200.0, -80.0, -20.0, -9.0, 0.0, 9.0, 60.0]], device=interpreter))
    mean = settle(torch.zeros_like(rho))
    seeds, step = torch.tensor([5], device=interpreter), torch.tensor(4, device=interpreter)
    found = columns.sample(mean, rho, seeds, step, 1)[0, 0].double()
    eps = noise.normal_definition(torch.tensor([5, 0], device=interpreter), 4, 1, 7).double()
    expected = torch.log1p(rho[0].double().clamp_min(-80.0).exp()) * eps
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0.0)


def test_rules_of_optimisers():
    absent = torch.zeros(1)
    kept = {name: torch.ones(1) for name in ("mean.first", "mean.second", "rho.velocity")}
    assert columns.Rule("adam").moments(kept, "mean", absent) == (kept["mean.first"], kept["mean.second"])
    assert columns.Rule("momentum").moments(kept, "rho", absent) == (kept["rho.velocity"], absent)
    assert columns.Rule("sgd").moments(kept, "mean", absent) == (absent, absent)
