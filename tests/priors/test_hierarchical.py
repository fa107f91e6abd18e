from __future__ import annotations

import math

import pytest
import torch
from scipy import integrate, optimize, stats
from torch import Tensor

from bayesprop import priors
from bayesprop.priors.hierarchical import Piece, Spread

from .conftest import lay_out


def names(bound: priors.BoundPrior) -> list[tuple[str, tuple[int, ...]]]:
    return [(latent.name, latent.shape) for latent in bound.latents]


def test_a_spread_repeats_columns_and_joins_neighbours():
    columns = torch.arange(10.0)
    layer = Spread.of([Piece(2, 1, 3), Piece(2, 1, 2), Piece(3, 1, 1)], centred=False)
    assert layer.pieces == (Piece(2, 1, 5), Piece(3, 1, 1))
    assert layer(columns).tolist() == [2, 2, 2, 2, 2, 3]
    units = Spread.of([Piece(4, 2, 3), Piece(4, 2, 1)], centred=False)
    assert units(columns.expand(2, 10)).tolist() == [[4, 4, 4, 5, 5, 5, 4, 5]] * 2
    single = Spread.of([Piece(4, 6, 1), Piece(0, 4, 1), Piece(4, 2, 1)], centred=True)
    assert single.pieces == (Piece(4, 6, 1), Piece(0, 6, 1))
    assert single(columns).tolist() == [4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5]
    assert Spread.of([Piece(1, 1, 4), Piece(1, 1, 2)], centred=True)(columns).tolist() == [1]  # broadcasts


@pytest.mark.parametrize(
    ("shared", "expected", "owners"),
    [
        ("network", [("prior.scale", ())], [0] * 31),
        (
            "layer",
            [
                ("prior.scale[0]", ()),
                ("prior.scale[2]", ()),
                ("prior.scale[norm]", ()),
                ("prior.scale[temperature]", ()),
            ],
            [0] * 16 + [1] * 10 + [2] * 4 + [3],
        ),
        (
            "unit",
            [
                ("prior.scale[0]", (4,)),
                ("prior.scale[2]", (2,)),
                ("prior.scale[norm]", (4,)),
                ("prior.scale[temperature]", (1,)),
            ],
            [*(0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3), *range(4), *(4, 4, 4, 4, 5, 5, 5, 5), 4, 5, *range(6, 10), 10],
        ),
        (
            "weight",
            [
                ("prior.scale[0.weight]", (4, 3)),
                ("prior.scale[0.bias]", (4,)),
                ("prior.scale[2.weight]", (2, 4)),
                ("prior.scale[2.bias]", (2,)),
                ("prior.scale[norm.weight]", (4,)),
                ("prior.scale[temperature]", ()),
            ],
            list(range(31)),
        ),
    ],
)
def test_who_shares_a_scale(blocks, shared, expected, owners):
    bound = priors.bind(priors.Normal(scale=priors.HalfNormal(shared=shared)), blocks)
    assert names(bound) == expected
    theta = torch.ones(bound.size, dtype=torch.float64)
    theta[31:] = torch.arange(1.0, bound.size - 30)
    scales = torch.exp(torch.arange(1.0, bound.size - 30, dtype=torch.float64))
    torch.testing.assert_close(bound.weights(theta), scales[torch.tensor(owners)], rtol=1e-14, atol=0.0)


def test_names_tell_apart_what_patterns_split(blocks):
    bound = priors.bind(
        {
            "*.weight": priors.Normal(scale=priors.HalfNormal()),
            "*.bias": priors.Normal(scale=priors.HalfNormal(shared="network")),
            "*": priors.Normal(),
        },
        blocks,
    )
    found = [name for name, _ in names(bound)]
    assert found == ["prior.scale[0.weight]", "prior.scale[2.weight]", "prior.scale[norm]", "prior.scale[*.bias]"]


def test_units_of_one_module_may_have_several_lengths():
    blocks = lay_out({"rnn.input": (4, 2), "rnn.hidden": (4, 1), "rnn.output": (3,)})
    bound = priors.bind(priors.Normal(scale=priors.HalfNormal(shared="unit")), blocks)
    assert names(bound) == [("prior.scale[rnn.input+hidden]", (4,)), ("prior.scale[rnn.output]", (3,))]
    assert bound.weights(torch.zeros(bound.size)).shape == (15,)


def test_two_factors_with_the_same_sharing_have_their_own_latents(blocks):
    prior = priors.Normal(scale=priors.HalfNormal(0.5) * priors.HalfCauchy(2.0))
    bound = priors.bind(prior, blocks)
    assert len({name for name, _ in names(bound)}) == len(bound.latents) == 8


def test_horseshoe_is_a_half_cauchy_per_weight_times_one_per_layer(blocks, draw):
    shoe = priors.bind(priors.Horseshoe(0.1), blocks)
    spelt = priors.HalfCauchy(1.0, shared="weight") * priors.HalfCauchy(0.1, shared="layer")
    product = priors.bind(priors.Normal(scale=spelt), blocks)
    theta = draw(shoe, 3)
    assert names(shoe) == names(product)
    assert torch.equal(shoe.log_density(theta), product.log_density(theta))
    assert torch.equal(shoe.weights(theta), product.weights(theta))


@pytest.mark.statistical
def test_every_weight_of_a_horseshoe_has_its_own_local_scale():
    # If one local scale were drawn for all weights, the weights of a draw would be Gaussian: q99 / q50 of |w| = 3.82.
    # The horseshoe at a fixed global scale: |w| is half-Cauchy times half-normal; its quantiles are computed below.
    blocks = lay_out({"a.weight": (500, 400)})
    bound = priors.bind(priors.Horseshoe(1.0), blocks)
    generator = torch.Generator().manual_seed(3)
    z = torch.randn(200_000, generator=generator, dtype=torch.float64)
    local = torch.tan(0.5 * math.pi * torch.rand(200_000, generator=generator, dtype=torch.float64))
    theta = torch.cat((z, local.log(), torch.full((1,), math.log(0.3), dtype=torch.float64)))
    size = bound.weights(theta).abs()
    ratio = (size.quantile(0.99) / size.quantile(0.5)).item()

    def mass_below(w: float) -> float:  # P(|W| < w) = E[2 Phi(w / local) - 1] over the local half-Cauchy
        return integrate.quad(lambda u: 2 * stats.norm.cdf(w / math.tan(0.5 * math.pi * u)) - 1, 0, 1, limit=200)[0]

    upper, middle = (optimize.brentq(lambda w, p=p: mass_below(w) - p, 1e-3, 1e3) for p in (0.99, 0.5))
    expected = upper / middle
    # Relative standard error of q99: sqrt(p (1 - p) / n) / (density * q99), with density * q99 about 1 - p = 0.01 in a
    # Cauchy tail: sqrt(0.99 / 0.01 / 200000) = 2.2 %; the median adds 0.5 %. Five standard errors: 12 %.
    assert ratio == pytest.approx(expected, rel=0.12)
    assert expected > 30.0
    one_for_all = torch.cat((z, torch.full((200_001,), 0.3, dtype=torch.float64)))
    gaussian = bound.weights(one_for_all).abs()
    assert (gaussian.quantile(0.99) / gaussian.quantile(0.5)).item() == pytest.approx(3.82, rel=0.05)


def hand_written(weight: list[float], logs: dict[str, float], centred: bool) -> float:
    """Normal weights whose scale is half-normal(0.5) per layer, in scalars: columns x, and t = log scale.

    log p = sum_i log N(x_i; ...) + log HalfNormal(e^t; 0.5) + t, the last term being log |d e^t / dt|.
    """
    total = 0.0
    for x, module in zip(weight, ("a", "a", "b"), strict=True):
        scale = math.exp(logs[module])
        total += stats.norm.logpdf(x, 0.2, scale) if centred else stats.norm.logpdf(x, 0.0, 1.0)
    for t in logs.values():
        total += math.log(2.0) + stats.norm.logpdf(math.exp(t), 0.0, 0.5) + t
    return total


@pytest.mark.parametrize("centred", [False, True])
def test_log_density_equals_the_scalar_formula_with_its_jacobian(centred):
    blocks = lay_out({"a.weight": (1, 1), "a.bias": (1,), "b.bias": (1,)})
    bound = priors.bind(priors.Normal(loc=0.2, scale=priors.HalfNormal(0.5, centred=centred)), blocks)
    theta = torch.tensor([0.3, -1.2, 0.7, -0.4, 0.9], dtype=torch.float64)
    expected = hand_written([0.3, -1.2, 0.7], {"a": -0.4, "b": 0.9}, centred)
    assert bound.log_density(theta).item() == pytest.approx(expected, rel=1e-13)
    weights = bound.weights(theta).tolist()
    factors = (1.0, 1.0, 1.0) if centred else (math.exp(-0.4), math.exp(-0.4), math.exp(0.9))
    shift = 0.0 if centred else 0.2
    assert weights == pytest.approx([shift + f * x for f, x in zip(factors, (0.3, -1.2, 0.7), strict=True)], rel=1e-14)
    assert bound.centred is centred


@pytest.mark.parametrize("of", ["scale", "variance", "precision"])
@pytest.mark.parametrize("family", [priors.Normal, priors.Laplace, priors.Cauchy])
def test_centred_and_non_centred_are_one_density_in_two_coordinates(blocks, draw, of, family):
    def prior(centred: bool) -> priors.Prior:
        return family(loc=0.3, scale=priors.Gamma(2.0, 1.5, of=of, shared="unit", centred=centred))

    plain, standardised = priors.bind(prior(True), blocks), priors.bind(prior(False), blocks)
    theta = draw(standardised, 5)
    weights = standardised.weights(theta)
    moved = torch.cat((weights, theta[:, 31:]), dim=-1)
    # p(x, t) = p(w, t) |d w / d x|, and d w / d x is the scale.
    one_further = standardised.weights(torch.cat((theta[:, :31] + 1.0, theta[:, 31:]), dim=-1))
    jacobian = torch.log(one_further - weights).sum(-1)
    torch.testing.assert_close(
        standardised.log_density(theta), plain.log_density(moved) + jacobian, rtol=1e-10, atol=1e-10
    )


def test_a_product_may_be_centred_in_part(blocks, draw):
    local = priors.HalfCauchy(shared="weight", centred=True)
    bound = priors.bind(priors.Normal(loc=0.1, scale=local * priors.HalfNormal(0.5, shared="network")), blocks)
    theta = draw(bound, 2)
    x, log_local, log_global = theta[:, :31], theta[:, 31:62], theta[:, 62:]
    torch.testing.assert_close(bound.weights(theta), 0.1 + log_global.exp() * x, rtol=1e-14, atol=0.0)
    expected = torch.distributions.Normal(torch.zeros_like(x), log_local.exp()).log_prob(x).sum(-1)
    expected += (math.log(2.0 / math.pi) - torch.log1p(torch.exp(2 * log_local)) + log_local).sum(-1)
    expected += (math.log(2.0) + torch.distributions.Normal(0.0, 0.5).log_prob(log_global.exp()) + log_global).sum(-1)
    torch.testing.assert_close(bound.log_density(theta), expected, rtol=1e-6, atol=0.0)
    assert not bound.centred


def test_latents_start_where_their_hyperprior_says(blocks):
    bound = priors.bind(priors.Normal(scale=priors.HalfCauchy(0.2)), blocks)
    assert [latent.initial_column() for latent in bound.latents] == pytest.approx([math.log(0.2)] * 4, rel=1e-12)


@pytest.mark.statistical
@pytest.mark.parametrize("prior", [priors.Normal(0.3, priors.HalfNormal(shared="unit")), priors.Horseshoe()])
def test_moments_of_non_centred_weights_against_monte_carlo(blocks, prior):
    bound = priors.bind(prior, blocks)
    generator = torch.Generator().manual_seed(5)
    mean = torch.randn(bound.size, generator=generator, dtype=torch.float64)
    std = 0.05 + 0.25 * torch.rand(bound.size, generator=generator, dtype=torch.float64)
    draws = 100_000
    noise = torch.randn(draws, bound.size, generator=generator, dtype=torch.float64)
    weights = bound.weights(mean + std * noise)
    found_mean, found_std = bound.weight_moments(mean, std)
    # Five standard errors of a mean over the draws (with the exact std), and of a variance (with the sampled fourth
    # moment): 31 + 31 two-sided tests fail together once in 28 000 seeds.
    mean_error = found_std / math.sqrt(draws)
    assert bool(((weights.mean(0) - found_mean).abs() < 5.0 * mean_error).all())
    squares = (weights - found_mean).square()
    variance_error = squares.std(0) / math.sqrt(draws)
    assert bool(((squares.mean(0) - found_std.square()).abs() < 5.0 * variance_error).all())


def test_moments_in_closed_form_for_one_weight():
    bound = priors.bind(priors.Normal(loc=2.0, scale=priors.HalfNormal()), lay_out({"a.weight": (1,)}))
    mean, std = torch.tensor([0.7, -0.3], dtype=torch.float64), torch.tensor([0.4, 0.5], dtype=torch.float64)
    first = math.exp(-0.3 + 0.125)  # E[s], log s ~ N(-0.3, 0.5^2)
    second = math.exp(-0.6 + 0.5)  # E[s^2]
    expected = (2.0 + first * 0.7, math.sqrt(second * (0.49 + 0.16) - (first * 0.7) ** 2))
    assert [moment.item() for moment in bound.weight_moments(mean, std)] == pytest.approx(expected, rel=1e-13)


def test_moments_without_uncertain_scales_are_those_of_the_columns(blocks):
    bound = priors.bind(priors.Normal(scale=priors.HalfNormal()), blocks)
    mean, std = torch.full((bound.size,), 0.5, dtype=torch.float64), torch.zeros(bound.size, dtype=torch.float64)
    std[:31] = 1e-3
    found: tuple[Tensor, Tensor] = bound.weight_moments(mean, std)
    torch.testing.assert_close(found[0], bound.weights(mean), rtol=1e-14, atol=0.0)
    torch.testing.assert_close(found[1], math.exp(0.5) * std[:31], rtol=1e-14, atol=0.0)
