"""The log joint: where network, prior and likelihood meet, on the scale of the full data, for all lanes at once."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch import distributions as td
from torch.utils import _pytree as pytree

from bayesprop import likelihoods, priors
from bayesprop.errors import ConfigurationError
from bayesprop.model import Batch, Model
from bayesprop.random_weights import Flipout

HIERARCHY = {
    "0.*": priors.Normal(0.2, priors.HalfNormal(0.5)),
    "2.weight": priors.Laplace(0.1, priors.HalfCauchy(0.7, shared="unit", centred=True)),
    "*": priors.StudentT(4.0, 0.0, 0.6),
}


def _numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _network() -> nn.Sequential:
    torch.manual_seed(0)  # initial weights of the test network
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def _model(likelihood: likelihoods.Likelihood | None = None, **options: Any) -> Model:
    return Model(_network(), likelihood=likelihood or likelihoods.Gaussian(), **{"prior": HIERARCHY, **options})


def _batch(inputs: Any, targets: Tensor, num_data: int, particles: int = 1) -> Batch:
    """The same rows for every particle."""
    wide = pytree.tree_map(lambda t: t.expand(particles, *t.shape), (inputs, targets))
    return Batch(*wide, num_data=num_data)


def _theta(model: Model, particles: int = 1, draws: int = 1, seed: int = 1) -> Tensor:
    return 0.4 * _numbers(particles, draws, model.layout.size, seed=seed)


INPUTS, TARGETS = _numbers(12, 3, seed=5), _numbers(12, 2, seed=6)


# -- equation (1) -----------------------------------------------------------------------------------------------------


def test_the_log_joint_is_the_sum_of_its_densities():
    """Written out with torch.distributions; each latent is a positive number whose column is its logarithm, so that
    its Jacobian is the column itself, once."""
    model = _model()
    row = _theta(model)[0, 0]
    part = {block.name: row[block.columns].reshape(block.shape) for block in model.layout.blocks}
    scales = {name: column.exp() for name, column in part.items() if "scale" in name}
    assert sorted(scales) == ["likelihood.scale", "prior.scale[0]", "prior.scale[2.weight]"]
    inner, outer, noise = scales["prior.scale[0]"], scales["prior.scale[2.weight]"], scales["likelihood.scale"]
    first, bias = 0.2 + inner * part["0.weight"], 0.2 + inner * part["0.bias"]  # non-centred: columns are standardised
    mean = F.linear(torch.tanh(F.linear(INPUTS, first, bias)), part["2.weight"], part["2.bias"])
    one = torch.ones((), dtype=torch.float64)
    expected = [
        td.Normal(0 * one, one).log_prob(torch.cat((part["0.weight"].flatten(), part["0.bias"]))).sum(),
        td.Laplace(0.1 * one, outer[:, None]).log_prob(part["2.weight"]).sum(),
        td.StudentT(4.0 * one, 0 * one, 0.6 * one).log_prob(part["2.bias"]).sum(),
        td.HalfNormal(0.5 * one).log_prob(inner) + inner.log(),
        (td.HalfCauchy(0.7 * one).log_prob(outer) + outer.log()).sum(),
        td.HalfNormal(one).log_prob(noise) + noise.log(),
    ]
    data = td.Normal(mean, noise).log_prob(TARGETS).sum()
    found = model.log_joint(row[None, None], {}, _batch(INPUTS, TARGETS, num_data=60))
    torch.testing.assert_close(found, (sum(expected) + 60 / 12 * data).reshape(1, 1), rtol=1e-12, atol=1e-12)


def test_the_prior_is_a_density_on_the_columns():
    """Its integral over all columns is 1, by the trapezium rule on a grid that is exact to 1e-8 here: with a latent's
    Jacobian twice it would be E[scale] = sqrt(2 / pi), without it infinite."""
    model = Model(
        nn.Linear(1, 1, bias=False).double(), likelihood=likelihoods.Gaussian(), prior=priors.Normal(0.3, 0.8)
    )
    weight, column = torch.linspace(-9, 9, 400, dtype=torch.float64), torch.linspace(-25, 5, 600, dtype=torch.float64)
    theta = torch.stack(torch.meshgrid(weight, column, indexing="ij"), dim=-1)
    density = model.log_prior(theta).exp()
    assert density.shape == (400, 600)
    total = torch.trapezoid(torch.trapezoid(density, column, dim=1), weight, dim=0)
    torch.testing.assert_close(total, torch.ones((), dtype=torch.float64), rtol=0, atol=1e-8)


def test_its_gradient_is_that_of_central_differences():
    """All columns: weights, latents of both kinds, point estimates. Steps of 1e-5 are exact to about 1e-8 here."""
    model = _model(random=["0.*", "2.weight"], prior={name: HIERARCHY[name] for name in ("0.*", "2.weight")})
    theta, batch = _theta(model), _batch(INPUTS, TARGETS, num_data=60)
    leaf = theta.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model.log_joint(leaf, {}, batch).sum(), leaf)
    steps = 1e-5 * torch.eye(model.layout.size, dtype=torch.float64)
    up, down = (model.log_joint(theta + sign * steps, {}, batch)[0] for sign in (1, -1))
    torch.testing.assert_close(gradient[0, 0], (up - down) / 2e-5, rtol=1e-6, atol=1e-6)
    kinds = [block.kind for block in model.layout.blocks]
    assert kinds == ["random"] * 3 + ["latent"] * 3 + ["point"]


def test_a_scale_of_the_noise_beside_a_network_without_a_bias():
    """The smallest model there is: one weight and one latent, in closed form."""
    model = Model(nn.Linear(1, 1, bias=False).double(), likelihood=likelihoods.Gaussian(), prior=priors.Flat())
    theta = torch.tensor([[[0.5, math.log(2.0)]]], dtype=torch.float64)
    inputs, targets = torch.tensor([[1.0], [2.0]], dtype=torch.float64), torch.tensor([1.0, 0.0], dtype=torch.float64)
    value = model.log_likelihood(theta, {}, _batch(inputs, targets, num_data=2))
    expected = -(0.5**2 + 1.0**2) / 8 - 2 * math.log(2.0) - math.log(2 * math.pi)
    torch.testing.assert_close(value, torch.full((1, 1), expected, dtype=torch.float64))


# -- minibatches ------------------------------------------------------------------------------------------------------

LIKELIHOODS = {
    "gaussian": (likelihoods.Gaussian(), TARGETS),
    "student t": (likelihoods.StudentT(), TARGETS),
    "heteroscedastic": (likelihoods.HeteroscedasticGaussian(), TARGETS[:, 0]),
    "categorical": (likelihoods.Categorical(), torch.arange(12) % 2),
    "bernoulli": (likelihoods.Bernoulli(), torch.stack((torch.arange(12) % 2, torch.arange(12) % 3 // 2), 1)),
}


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("rows", [1, 3, 4])
def test_the_average_over_a_partition_is_the_full_batch(name, rows):
    """Equal minibatches that cover the data once: the mean of their log joints, and of its gradients, is the full
    one."""
    likelihood, targets = LIKELIHOODS[name]
    model = _model(likelihood)
    targets = likelihood.encode(targets)
    leaf = _theta(model, particles=2, draws=3).requires_grad_()

    def value(part: slice) -> tuple[Tensor, Tensor]:
        found = model.log_joint(leaf, {}, _batch(INPUTS[part], targets[part], num_data=12, particles=2))
        return found.detach(), torch.autograd.grad(found.sum(), leaf)[0]

    parts = [value(slice(start, start + rows)) for start in range(0, 12, rows)]
    assert len(parts) == 12 // rows
    for index, whole in enumerate(value(slice(0, 12))):
        average = torch.stack([part[index] for part in parts]).mean(0)
        torch.testing.assert_close(average, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("num_data", [7, 70, 10**6])
def test_a_minibatch_counts_as_many_times_as_it_fits_into_the_data(num_data):
    model, theta = _model(), _theta(_model(), 2, 3)
    batch = _batch(INPUTS[:7], TARGETS[:7], num_data, particles=2)
    assert batch.rows == 7
    data = model.log_likelihood(theta, {}, batch)
    assert data.shape == (2, 3)
    expected = num_data / 7 * data + model.log_prior(theta)
    torch.testing.assert_close(model.log_joint(theta, {}, batch), expected, rtol=1e-13, atol=1e-13)


# -- lanes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vectorised", [True, False], ids=["vmap", "loop"])
def test_particles_and_draws_at_once_equal_one_at_a_time(vectorised):
    """Values and gradients; particles have rows of their own, draws of one particle share them."""
    model = _model()
    model.vectorised = vectorised
    leaf = _theta(model, 3, 2).requires_grad_()
    inputs, targets = torch.stack((INPUTS[:4], INPUTS[4:8], INPUTS[8:])), torch.stack(TARGETS.split(4))
    together = model.log_joint(leaf, {}, Batch(inputs, targets, num_data=12))
    weights = _numbers(3, 2, seed=9)
    (gradient,) = torch.autograd.grad((weights * together).sum(), leaf)
    outputs = model.outputs(leaf.detach(), {}, INPUTS)
    assert outputs.shape == (3, 2, 12, 2)
    for particle in range(3):
        batch = Batch(inputs[particle, None], targets[particle, None], num_data=12)
        for draw in range(2):
            row = leaf[particle, draw].detach()[None, None].requires_grad_()
            alone = model.log_joint(row, {}, batch)
            torch.testing.assert_close(together[particle, draw], alone[0, 0], rtol=1e-12, atol=1e-12)
            (slope,) = torch.autograd.grad(weights[particle, draw] * alone.sum(), row)
            torch.testing.assert_close(gradient[particle, draw], slope[0, 0], rtol=1e-11, atol=1e-12)
            output = model.outputs(row.detach(), {}, INPUTS)
            torch.testing.assert_close(outputs[particle, draw], output[0, 0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("prior", [priors.Normal(scale=0.5), HIERARCHY], ids=["centred", "non-centred"])
def test_weights_and_latents_by_name(prior):
    model = _model(prior=prior, random="*" if prior is HIERARCHY else "0.*")
    theta = _theta(model, 2, 3)
    named = model.weights(theta)
    assert list(named) == [name for name, _ in model.network.named_parameters()]
    for block in model.layout.of_kind("random", "point"):
        assert named[block.name].shape == (2, 3, *block.shape)
    values = model.latent_values(theta)
    torch.testing.assert_close(values["likelihood.scale"], theta[..., model.layout.latent - 1].exp())
    torch.testing.assert_close(named["2.bias"], theta[..., model.layout.by_name["2.bias"].columns])
    factor = theta[..., model.layout.random, None].exp() if prior is HIERARCHY else 1.0
    shift = 0.2 if prior is HIERARCHY else 0.0
    torch.testing.assert_close(named["0.bias"], shift + factor * theta[..., model.layout.by_name["0.bias"].columns])


def test_one_row_given_in_leaves_is_the_same_likelihood():
    """Values and gradients with respect to each weight by itself, for a network with everything that columns have: a
    latent, a point estimate, a padding row."""
    network = nn.Sequential(nn.Embedding(5, 2, padding_idx=1), nn.Flatten(), nn.Linear(6, 1)).double()
    model = Model(network, likelihood=likelihoods.Gaussian(), random="*weight")
    layout, tokens = model.layout, torch.arange(12).reshape(4, 3) % 5
    batch = _batch(tokens, TARGETS[:4, 0], num_data=4)
    theta = _theta(model).requires_grad_()
    expected = model.log_likelihood(theta, {}, batch)
    (gradient,) = torch.autograd.grad(expected.sum(), theta)
    row = theta.detach()[0, 0]
    leaves = [row[block.columns].view(block.shape).requires_grad_() for block in layout.of_kind("random")]
    rest = row[layout.random :].requires_grad_()
    assert (len(leaves), layout.size - layout.random) == (2, 2)
    found = model.row_log_likelihood(leaves, rest, {}, batch)
    torch.testing.assert_close(found, expected[0, 0], rtol=1e-13, atol=1e-13)
    pieces = torch.autograd.grad(found, (*leaves, rest))
    torch.testing.assert_close(torch.cat([piece.flatten() for piece in pieces]), gradient[0, 0], rtol=1e-12, atol=1e-13)


# -- what it says of itself -------------------------------------------------------------------------------------------


def test_a_learnt_scale_starts_in_the_likelihood_and_ends_in_its_column():
    fixed, learnt = _model(likelihoods.Gaussian(scale=0.3)), _model(likelihoods.Gaussian())
    assert learnt.layout.size == fixed.layout.size + 1
    theta = _theta(learnt)
    theta[..., -1] = math.log(0.3)
    batch = _batch(INPUTS, TARGETS, num_data=12)
    alike = fixed.log_likelihood(theta[..., :-1], {}, batch)
    torch.testing.assert_close(learnt.log_likelihood(theta, {}, batch), alike, rtol=1e-13, atol=1e-13)
    assert [latent.name for latent in learnt.latents][-1] == "likelihood.scale"


def test_a_plan_needs_inputs():
    model = _model()
    with pytest.raises(ConfigurationError, match="known once the model has seen inputs") as caught:
        model.plan(Flipout())
    assert "write: model.describe(inputs=X[:8])" in str(caught.value)


def test_the_widest_layer_counts_numbers_not_rows():
    model = Model(nn.Sequential(nn.Linear(3, 50), nn.Tanh(), nn.Linear(50, 2)), likelihood=likelihoods.Gaussian())
    assert model.widest_layer(torch.zeros(2, 3)) == 100
    assert not any(module._forward_hooks for module in model.network.modules())
