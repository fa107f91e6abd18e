"""Where means start: at the scale of the fan-in, from the particle's seed alone, and as weights under every prior."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.inference.starting_point import fan_in_spread, rho_of, starting_means, starting_rho, starting_scales
from bayesprop.rng import Rng

from .conftest import normal, small_network


class Zoo(nn.Module):
    """One module of each kind that has a rule of its own, and parameters of the user's."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(50, 40)
        self.convolution = nn.Conv2d(6, 40, 3, groups=2)
        self.transposed = nn.ConvTranspose1d(6, 40, 5, groups=2)
        self.recurrent = nn.LSTM(30, 10)
        self.cell = nn.GRUCell(30, 10)
        self.attention = nn.MultiheadAttention(30, 2)
        self.embedding = nn.Embedding(80, 20)
        self.norm = nn.LayerNorm((4, 5))
        self.batch = nn.BatchNorm1d(7)
        self.lengths = nn.Parameter(5.0 + 0.1 * torch.arange(60.0).reshape(60, 1))
        self.factor = nn.Parameter(torch.tensor(0.3))
        self.constant = nn.Parameter(torch.ones(4, 3))


# Standard deviation of the starting means; parameters that are not here start at the network's own value or at 0.
SPREADS = {
    "linear.weight": math.sqrt(2 / 50),
    "convolution.weight": math.sqrt(2 / 27),
    "transposed.weight": math.sqrt(2 * 2 / 30),  # an output meets (6 / 2 inputs) x 5 weights
    "recurrent.weight_ih_l0": math.sqrt(1 / 30),
    "recurrent.weight_hh_l0": math.sqrt(1 / 10),
    "cell.weight_ih": math.sqrt(1 / 30),
    "cell.weight_hh": math.sqrt(1 / 10),
    "attention.in_proj_weight": math.sqrt(1 / 30),
    "attention.out_proj.weight": math.sqrt(2 / 30),
}
OWN = {"embedding.weight", "lengths"}  # the mean and the spread that the network gave them
ZERO = {"linear.bias", "convolution.bias", "transposed.bias", "attention.out_proj.bias"}


def _model(network: nn.Module, prior=None, **options) -> bp.Model:
    return bp.Model(network, likelihood=likelihoods.Gaussian(scale=1.0), prior=prior, **options)


@pytest.fixture(scope="module")
def zoo() -> bp.Model:
    with bp.rng.quarantine(0):
        return _model(Zoo())


def _by_name(model: bp.Model, theta: Tensor) -> dict[str, Tensor]:
    return {name: weight.double() for name, weight in model.weights(theta).items()}


@pytest.mark.statistical
def test_weights_start_at_the_scale_of_their_fan_in(zoo):
    """20 particles. Means within 5 standard errors of 0, variances within 5 of theirs (a relative sqrt(2 / n)).

    Two z-tests each for 11 parameters: one choice of seeds in 79 000 fails.
    """
    theta = _by_name(zoo, starting_means(zoo, Rng.create(0, 20), "fan_in"))
    own = dict(zoo.network.named_parameters())
    looked = 0
    for name, values in theta.items():
        if name not in SPREADS and name not in OWN:
            continue
        centre = own[name].detach().double().mean() if name in OWN else 0.0
        spread = float(own[name].detach().double().std()) if name in OWN else SPREADS[name]
        count = values.numel()
        assert abs(float((values - centre).mean())) < 5.0 * spread / math.sqrt(count), name
        assert float((values - centre).square().mean()) == pytest.approx(spread**2, rel=5.0 * math.sqrt(2 / count)), (
            name
        )
        looked += 1
    assert looked == 11


def test_biases_start_at_zero_and_the_rest_where_the_network_has_it(zoo):
    theta = _by_name(zoo, starting_means(zoo, Rng.create(0, 2), "fan_in"))
    own = dict(zoo.network.named_parameters())
    others = theta.keys() - SPREADS.keys() - OWN - ZERO
    assert len(theta) == 26
    assert others >= {"norm.weight", "batch.bias", "factor", "constant", "recurrent.bias_ih_l0", "cell.bias_hh"}
    for name in ZERO:
        assert torch.count_nonzero(theta[name]).item() == 0
    for name in others:
        assert torch.equal(theta[name], own[name].detach().double().expand_as(theta[name]))


def test_the_signal_keeps_its_size_through_a_rectified_network():
    """He et al. 2015: the mean square of the activations of a deep network neither dies nor explodes."""
    with bp.rng.quarantine(0):
        network = nn.Sequential(*(layer for _ in range(12) for layer in (nn.Linear(200, 200), nn.ReLU())))
    model = _model(network)
    theta = starting_means(model, Rng.create(1), "fan_in")
    inputs = normal(50, 200).float()
    outputs = model.outputs(theta[:, None], model.initial_buffers(1), inputs)
    ratio = float(outputs.square().mean() / inputs.square().mean())
    assert 0.2 < ratio < 5.0  # 1 in expectation, exp(+-0.5) over seeds; without the rectifier's 2 it would be 2^-12


@pytest.mark.parametrize("start", ["fan_in", "network", 0.3, 1, (-0.2, 0.2)])
def test_a_member_of_a_population_starts_where_it_starts_alone(zoo, start):
    everyone = Rng.create(5, 3)
    together = starting_means(zoo, everyone, start)
    assert together.shape == (3, zoo.layout.size)
    for particle in range(3):
        alone = starting_means(zoo, Rng(everyone.seeds[particle : particle + 1]), start)
        assert torch.equal(alone[0], together[particle])
    assert torch.equal(together[0], together[1]) is (start == "network")
    assert torch.equal(starting_means(zoo, everyone.at(7).at(0), start), together)


def test_the_start_does_not_depend_on_the_networks_weights_and_leaves_them_alone():
    first, second = small_network(), small_network()
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.mul_(-3.0)
    before = copy.deepcopy(second.state_dict())
    found = [starting_means(_model(network), Rng.create(2), "fan_in") for network in (first, second)]
    assert torch.equal(*found)
    assert found[0].dtype == torch.float64
    for name, value in second.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_start_at_the_network(zoo):
    theta = _by_name(zoo, starting_means(zoo, Rng.create(0, 2), "network"))
    for name, parameter in zoo.network.named_parameters():
        assert torch.equal(theta[name], parameter.detach().double().expand_as(theta[name]))


@pytest.mark.statistical
def test_a_start_at_numbers(zoo):
    """Normal and uniform, by the moments of 2 x 14 000 numbers: within 5 standard errors (once in 400 000 seeds)."""
    rng = Rng.create(3, 2)
    wide = starting_means(zoo, rng, 0.3).double()
    assert torch.count_nonzero(starting_means(zoo, rng, 0.0)).item() == 0
    torch.testing.assert_close(starting_means(zoo, rng, 0.6).double(), 2.0 * wide)
    assert float(wide.mean()) == pytest.approx(0.0, abs=5.0 * 0.3 / math.sqrt(wide.numel()))
    assert float(wide.var()) == pytest.approx(0.09, rel=5.0 * math.sqrt(2.0 / wide.numel()))
    uniform = starting_means(zoo, rng, (-0.2, 0.6)).double()
    assert -0.2 <= float(uniform.min()) < -0.199
    assert 0.599 < float(uniform.max()) <= 0.6
    assert float(uniform.mean()) == pytest.approx(0.2, abs=5.0 * 0.8 / math.sqrt(12.0 * wide.numel()))
    # The fourth moment of a uniform distribution is 9/5 of the squared variance, 0.8^2 / 12.
    assert float(uniform.var()) == pytest.approx(0.64 / 12.0, rel=5.0 * math.sqrt(0.8 / wide.numel()))


PRIORS = {
    "layer": priors.Normal(0.4, priors.HalfNormal(0.5)),
    "unit": priors.Laplace(scale=priors.InverseGamma(2.0, 1.0, shared="unit")),
    "centred": priors.Normal(0.4, priors.HalfNormal(0.5, centred=True)),
    "horseshoe": priors.Horseshoe(0.1),
    "some": {"0.*": priors.Horseshoe(0.1), "*": priors.Normal()},
}


@pytest.mark.parametrize("start", ["fan_in", "network", 0.3, (-0.2, 0.2)])
@pytest.mark.parametrize("prior", PRIORS)
def test_weights_start_at_the_same_place_under_every_prior(prior, start):
    """A non-centred column holds z of weight = loc + scale z: it starts where the weight is the wanted one."""
    plain, hierarchical = _model(small_network(), priors.Normal()), _model(small_network(), PRIORS[prior])
    rng = Rng.create(4, 2)
    expected, theta = starting_means(plain, rng, start), starting_means(hierarchical, rng, start)
    random = plain.layout.random
    found = hierarchical.bound_prior.weights(theta[:, : hierarchical.layout.latent])
    torch.testing.assert_close(found, expected[:, :random], rtol=1e-12, atol=1e-13)
    assert len(hierarchical.latents) > 0
    for latent in hierarchical.latents:
        value = latent.constrain(theta[:, hierarchical.layout.by_name[latent.name].columns])
        torch.testing.assert_close(value, torch.full_like(value, latent.initial), rtol=1e-12, atol=0.0)


def test_point_estimates_and_a_learnt_noise_start_where_they_are_told():
    network = small_network()
    model = bp.Model(network, likelihood=likelihoods.Gaussian(scale=priors.HalfNormal(0.5)), random="0.*")
    for start in ("fan_in", "network", 0.3, (-0.2, 0.2)):
        theta = starting_means(model, Rng.create(0, 2), start)
        named = model.weights(theta)
        for name in ("2.weight", "2.bias"):
            assert torch.equal(named[name], network.get_parameter(name).detach().expand_as(named[name]))
        noise = model.latent_values(theta)["likelihood.scale"]
        torch.testing.assert_close(noise, torch.full_like(noise, model.likelihood.latents[0].initial))


def test_spread_of_a_single_number_is_its_own_value(zoo):
    named = dict(zoo.network.named_parameters())
    blocks = {block.name: block for block in zoo.layout.blocks}
    modules = dict(zoo.network.named_modules())
    found = {n: fan_in_spread(b, modules[b.module], named[n]) for n, b in blocks.items()}
    assert {n for n, spread in found.items() if spread > 0.0} == SPREADS.keys() | OWN
    for name, spread in SPREADS.items():
        assert found[name] == pytest.approx(spread, rel=1e-14)
    assert found["factor"] == found["norm.weight"] == found["constant"] == 0.0


@pytest.mark.parametrize("start", ["fan-in", None, (0.1,), (0.0, 1.0, 2.0), [0.0, 1.0]])
def test_other_starts_are_refused(zoo, start):
    with pytest.raises(ConfigurationError, match="initial_mean says where the means start") as caught:
        starting_means(zoo, Rng.create(0), start)
    assert f"received: {start!r}" in str(caught.value)
    assert 'expected: "fan_in", "network", a standard deviation or a pair (low, high)' in str(caught.value)
    assert 'write: initial_mean="fan_in"' in str(caught.value)


def test_scales_relative_to_the_means_or_the_same_everywhere():
    """MOPED: a fifth of each mean's size, at least a fiftieth of the parameter's root mean square."""
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian())
    mean = starting_means(model, Rng.create(3, particles=2))
    layout = model.layout
    assert torch.equal(starting_scales(model, mean, 0.03), torch.full((2, layout.latent), 0.03, dtype=mean.dtype))
    found = starting_scales(model, mean, 0.03, relative_scale=0.2)
    for block in layout.of_kind("random"):
        for row, scales in zip(mean[:, block.columns], found[:, block.columns], strict=True):
            least = 0.02 * float(row.double().square().mean().sqrt())
            expected = (0.2 * row.abs()).clamp_min(least) if least > 0.0 else torch.full_like(row, 0.03)
            torch.testing.assert_close(scales, expected)
    assert bool((found[:, layout.random :] == 0.03).all())
    method = bp.inference.BayesByBackprop(initial_mean="network", relative_initial_scale=0.2)
    posterior = method.posterior(model, method.init(model, Rng.create(3)))
    weight = model.layout.of_kind("random")[0].name
    expected = 0.2 * dict(model.network.named_parameters())[weight].detach().abs()
    chosen = expected > 0.1 * expected.square().mean().sqrt()
    assert bool(chosen.any())
    torch.testing.assert_close(posterior.std(weight)[chosen].to(expected), expected[chosen], rtol=1e-4, atol=0.0)


def test_rho_is_the_inverse_of_softplus_and_a_draw_stays_between_its_bounds():
    scales = torch.tensor([1e-12, 1e-3, 0.02, 1.0, 30.0], dtype=torch.float64)
    torch.testing.assert_close(torch.nn.functional.softplus(rho_of(scales)), scales, rtol=1e-9, atol=0.0)
    model = bp.Model(small_network(), likelihood=likelihoods.Gaussian())
    fixed, drawn = (starting_rho(model, Rng.create(3, particles=2), rho) for rho in (-3.0, (-3.5, -3.0)))
    assert fixed.shape == drawn.shape == (2, model.layout.latent)
    assert bool((fixed == -3.0).all())
    assert -3.5 <= float(drawn.min()) < -3.4 < -3.1 < float(drawn.max()) <= -3.0
