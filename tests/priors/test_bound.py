from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.distributions import Laplace, Normal, StudentT

from bayesprop import priors
from bayesprop.errors import ConfigurationError

from .conftest import SHAPES, lay_out

ZOO: dict[str, priors.Prior | dict[str, priors.Prior]] = {
    "normal": priors.Normal(0.1, 0.5),
    "laplace": priors.Laplace(0.1, 0.5),
    "student": priors.StudentT(3.0, 0.1, 0.5),
    "mixture": priors.ScaleMixture(),
    "flat": priors.Flat(),
    "tensors": {n: priors.Normal(torch.full(s, 0.1), torch.full(s, 0.7)) for n, s in SHAPES.items()},
    "families": {
        "0.weight": priors.Laplace(scale=0.3),
        "*.bias": priors.Normal(scale=2.0),
        "2.*": priors.StudentT(3.0),
        "norm.*": priors.Normal(torch.arange(4.0), 0.2),
        "*": priors.Flat(),
    },
    "layer": priors.Normal(scale=priors.HalfNormal(0.5)),
    "unit, centred": priors.Laplace(scale=priors.InverseGamma(2.0, 1.0, shared="unit", centred=True)),
    "network": priors.StudentT(4.0, 0.3, scale=priors.HalfCauchy(shared="network")),
    "horseshoe": priors.Horseshoe(0.3),
    "horseshoe, centred": priors.Horseshoe(0.3, centred=True),
    "everything": {
        "0.weight": priors.Horseshoe(),
        "*.bias": priors.Normal(scale=priors.HalfNormal(shared="unit", centred=True)),
        "2.weight": priors.Laplace(scale=0.3),
        "*": priors.Normal(0.5, priors.Gamma(2.0, 1.0, shared="layer")),
    },
}


@pytest.fixture(params=ZOO, ids=list(ZOO))
def bound(request, blocks) -> priors.BoundPrior:
    return priors.bind(ZOO[request.param], blocks)


def test_a_mapping_is_the_sum_of_its_parts(blocks):
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(7, 31, generator=generator, dtype=torch.float64)
    bound = priors.bind(ZOO["families"], blocks)
    by_name = {block.name: theta[:, block.columns] for block in blocks}
    one, norm = torch.ones((), dtype=torch.float64), torch.arange(4.0, dtype=torch.float64)
    parts = [
        Laplace(0 * one, 0.3 * one).log_prob(by_name["0.weight"]),
        Normal(0 * one, 2.0 * one).log_prob(torch.cat((by_name["0.bias"], by_name["2.bias"]), -1)),
        StudentT(3.0 * one).log_prob(by_name["2.weight"]),
        Normal(norm, 0.2 * one).log_prob(by_name["norm.weight"]),
    ]
    expected = torch.cat(parts, dim=-1).sum(-1)
    torch.testing.assert_close(bound.log_density(theta), expected, rtol=1e-12, atol=1e-12)


def test_a_mapping_of_hierarchical_priors_is_the_sum_of_its_parts(blocks, draw):
    mapping = {"0.*": priors.Horseshoe(0.2), "*": priors.Laplace(0.1, priors.HalfNormal(0.5, centred=True))}
    whole = priors.bind(mapping, blocks)
    left = priors.bind(mapping["0.*"], lay_out({n: s for n, s in SHAPES.items() if n.startswith("0.")}))
    right = priors.bind(mapping["*"], lay_out({n: s for n, s in SHAPES.items() if not n.startswith("0.")}))
    theta = draw(whole, 4)
    named = {latent.name: latent.size for latent in whole.latents}
    pieces = dict(zip(named, theta[:, 31:].split(list(named.values()), dim=-1), strict=True))
    left_row = torch.cat((theta[:, :16], *(pieces[latent.name] for latent in left.latents)), dim=-1)
    right_row = torch.cat((theta[:, 16:31], *(pieces[latent.name] for latent in right.latents)), dim=-1)
    expected = left.log_density(left_row) + right.log_density(right_row)
    torch.testing.assert_close(whole.log_density(theta), expected, rtol=1e-12, atol=1e-12)
    expected = torch.cat((left.weights(left_row), right.weights(right_row)), dim=-1)
    torch.testing.assert_close(whole.weights(theta), expected, rtol=1e-14, atol=0.0)


def test_score_is_the_gradient_and_ignores_further_columns(bound, draw):
    theta = draw(bound, 3, 2, extra=5).requires_grad_()
    value = bound.log_density(theta)
    assert value.shape == (3, 2)
    score = bound.score(theta.detach())
    assert score.shape == theta.shape
    assert torch.count_nonzero(score[..., bound.size :]).item() == 0
    if value.requires_grad:  # a flat prior has no graph
        (expected,) = torch.autograd.grad(value.sum(), theta)
        torch.testing.assert_close(score, expected, rtol=1e-10, atol=1e-12)
    with torch.inference_mode():
        torch.testing.assert_close(bound.score(theta.detach()), score, rtol=0.0, atol=0.0)


def test_everything_runs_under_vmap_and_grad(bound, draw):
    theta = draw(bound, 4)
    for function in (bound.log_density, bound.score, bound.weights):
        torch.testing.assert_close(torch.func.vmap(function)(theta), function(theta), rtol=1e-12, atol=1e-12)
    gradient = torch.func.vmap(torch.func.grad(lambda row: bound.log_density(row)))(theta)
    torch.testing.assert_close(gradient, bound.score(theta), rtol=1e-10, atol=1e-12)


def test_constants_that_were_moved_inside_a_transform_are_still_good(blocks, draw):
    bound = priors.bind(ZOO["families"], blocks)
    theta = draw(bound, 4).float()
    inside = torch.func.vmap(torch.func.grad(bound.log_density))(theta)  # the first call: it fills the cache
    torch.testing.assert_close(inside, bound.score(theta))
    vectors = [value for group in bound.groups for value in group.arguments.values() if not isinstance(value, float)]
    assert len(vectors) == 2
    for vector in vectors:
        assert vector.like(theta).dtype == torch.float32
        assert vector.like(theta) is vector.like(theta + 1.0)
        assert vector.like(theta.double()).dtype == torch.float64


def test_single_precision_stays_single(bound, draw):
    theta = draw(bound, 2)
    found = bound.log_density(theta.float())
    assert found.dtype == torch.float32
    assert bound.score(theta.float()).dtype == bound.weights(theta.float()).dtype == torch.float32
    # 31 to 100 terms, each rounded to 2^-24 of at most a few hundred.
    torch.testing.assert_close(found.double(), bound.log_density(theta), rtol=1e-5, atol=1e-4)


def test_weights_and_columns_are_inverse(bound, draw):
    theta = draw(bound, 3, extra=2)
    weights = bound.weights(theta)
    assert weights.shape == (3, 31)
    torch.testing.assert_close(bound.columns(weights, theta), theta[:, :31], rtol=1e-12, atol=1e-12)
    if bound.centred:
        assert weights.data_ptr() == theta.data_ptr()
        assert bound.weight_moments(theta, theta)[1].data_ptr() == theta.data_ptr()


def closed(bound: priors.BoundPrior) -> bool:
    return not bound.latents and all(group.density.name in ("normal", "laplace", "flat") for group in bound.groups)


def test_divergence_is_there_exactly_when_it_has_a_closed_form(bound):
    assert bound.has_kl is closed(bound)
    mean, std = torch.zeros(2, bound.size), torch.ones(2, bound.size)
    for found in (bound.kl(mean, std), bound.kl_columns(mean, std), bound.kl_gradients(mean, std)):
        assert (found is not None) is closed(bound)


@pytest.mark.parametrize("name", ["normal", "laplace", "flat", "tensors"])
def test_divergence_its_columns_and_its_gradients_agree(blocks, draw, name):
    bound = priors.bind(ZOO[name], blocks)
    mean, std = draw(bound, 3, extra=2).requires_grad_(), draw(bound, 3, extra=2, seed=1).exp().requires_grad_()
    total, columns = bound.kl(mean, std), bound.kl_columns(mean, std)
    assert total is not None
    assert columns is not None
    assert columns.shape == (3, 31)
    torch.testing.assert_close(total, columns.sum(-1), rtol=1e-14, atol=0.0)
    expected = torch.autograd.grad(total.sum(), (mean, std), materialize_grads=True, allow_unused=True)
    found = bound.kl_gradients(mean.detach(), std.detach())
    assert found is not None
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-13)


def test_divergence_of_a_mapping_is_the_sum_of_its_parts(blocks, draw):
    bound = priors.bind(
        {"*.bias": priors.Laplace(0.1, 0.4), "2.weight": priors.Flat(), "*": priors.Normal(0.2, 0.6)}, blocks
    )
    mean, std = draw(bound, 2), draw(bound, 2, seed=1).exp()
    alone: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "0.bias": lambda m, s: priors.bind(priors.Laplace(0.1, 0.4), lay_out({"x": (4,)})).kl_columns(m, s),
        "2.bias": lambda m, s: priors.bind(priors.Laplace(0.1, 0.4), lay_out({"x": (2,)})).kl_columns(m, s),
        "2.weight": lambda m, s: priors.bind(priors.Flat(), lay_out({"x": (8,)})).kl_columns(m, s),
    }  # type: ignore
    columns = bound.kl_columns(mean, std)
    assert columns is not None
    for block in blocks:
        m, s = mean[:, block.columns], std[:, block.columns]
        one = torch.tensor(0.6, dtype=torch.float64)
        normal = torch.distributions.kl_divergence(Normal(m, s), Normal(one / 3.0, one))
        expected = alone[block.name](m, s) if block.name in alone else normal
        torch.testing.assert_close(columns[:, block.columns], expected, rtol=1e-12, atol=1e-12)


def test_exact_divergence_of_the_classic_network():
    # 784-400-400-10 with prior N(0, 1), means 0 and rho = -3: the divergence of one column, times their number.
    blocks = lay_out(
        {
            "0.weight": (400, 784),
            "0.bias": (400,),
            "2.weight": (400, 400),
            "2.bias": (400,),
            "4.weight": (10, 400),
            "4.bias": (10,),
        }
    )
    bound = priors.bind(priors.Normal(), blocks)
    assert bound.random == 478_410
    std = torch.nn.functional.softplus(torch.full((bound.random,), -3.0, dtype=torch.float64))
    found = bound.kl(torch.zeros_like(std), std)
    assert found is not None
    sigma = math.log1p(math.exp(-3.0))
    exact = 478_410 * (0.5 * sigma**2 - 0.5 - math.log(sigma))
    assert found.item() == pytest.approx(exact, rel=1e-12)
    assert exact == pytest.approx(1_208_259.09, abs=0.01)


@pytest.mark.parametrize(
    ("prior", "expected"),
    [
        (priors.Normal(0.3, 0.5), [0.5] * 31),
        (priors.Laplace(scale=0.5), [0.5 * math.sqrt(2.0)] * 31),
        (priors.StudentT(4.0, scale=0.5), [0.5 * math.sqrt(2.0)] * 31),
        (priors.ScaleMixture(0.25, 2.0, 0.5), [math.sqrt(1.1875)] * 31),
        ({"0.*": priors.Normal(scale=2.0), "*": priors.Laplace()}, [2.0] * 16 + [math.sqrt(2.0)] * 15),
        (priors.Laplace(scale=priors.HalfNormal()), [math.sqrt(2.0)] * 31),  # the columns are standardised
        (priors.Flat(), None),
        (priors.Cauchy(), None),
        (priors.StudentT(2.0), None),
        ({"0.*": priors.Normal(), "*": priors.Flat()}, None),
        (priors.Normal(scale=priors.HalfNormal(centred=True)), None),
    ],
)
def test_standard_deviation_of_the_columns(blocks, prior, expected):
    found = priors.bind(prior, blocks).prior_std()
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert found.tolist() == pytest.approx(expected, rel=1e-14)


def test_too_few_columns_are_refused(blocks):
    bound = priors.bind(priors.Normal(scale=priors.HalfNormal()), blocks)
    for function in (bound.log_density, bound.score, bound.weights):
        with pytest.raises(ConfigurationError, match=r"\(\.\.\., 35\) or wider: 31 weights and 4 latents") as caught:
            function(torch.zeros(2, 31))
        assert "received: a tensor of shape [2, 31]" in str(caught.value)


def test_many_parameters_of_one_family_need_no_loop():
    # 120 parameters of one family: the density's function must be called once, whatever the number of parameters.
    shapes = {f"{i}.weight": (20, 20) for i in range(120)}
    bound = priors.bind(
        {name: priors.Normal(torch.full(s, 0.1), 1.0 + i) for i, (name, s) in enumerate(shapes.items())},
        lay_out(shapes),
    )
    calls: list[int] = []
    density = bound.groups[0].density
    original = density.log_density
    object.__setattr__(density, "log_density", lambda *a: calls.append(1) or original(*a))
    try:
        bound.log_density(torch.zeros(bound.size))
    finally:
        object.__setattr__(density, "log_density", original)
    assert calls == [1]


def test_densities_of_columns_sum_to_the_density_of_the_row(bound, draw):
    """But for the hyperpriors of scales that are learnt."""
    theta = draw(bound, 2)
    total = bound.log_density_columns(theta).sum(-1)
    for columns, latent, _ in bound.hyperpriors:
        total = total + latent.unconstrained_log_density(theta[..., columns])
    assert bound.log_density_columns(theta).shape == (2, bound.random)
    torch.testing.assert_close(total, bound.log_density(theta), rtol=1e-12, atol=1e-12)
