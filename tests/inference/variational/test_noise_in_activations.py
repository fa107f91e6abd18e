"""What the estimators evaluate, written out with the same noise: a wrong value may have right finite differences."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.testing import assert_close

from bayesprop import likelihoods, priors
from bayesprop.inference.variational.gradients import elbo_gradients
from bayesprop.random_weights import Flipout, LocalReparameterization, NoiseSource, SharedWeights
from bayesprop.rng import Rng

from ..conftest import Problem, method_with, normal, same_seeds
from .conftest import weight_noise

PRIORS = {
    "normal": priors.Normal(0.2, 0.5),
    "layer": priors.Normal(0.2, priors.HalfNormal(0.5)),
    "centred": priors.Normal(0.2, priors.HalfNormal(0.5, centred=True)),
    "unit": priors.Laplace(0.2, priors.HalfNormal(0.5, shared="unit")),
}
ROWS = slice(0, 5)


@functools.cache
def _problem(prior: str) -> Problem:
    likelihood = likelihoods.Gaussian(scale=priors.HalfNormal(0.5))
    return Problem(nn.Linear(3, 2).double(), normal(6, 3), prior=PRIORS[prior], likelihood=likelihood, num_data=20)


def _moments(prior: str, mean: Tensor, std: Tensor, latents: Tensor) -> tuple[Tensor, Tensor]:
    """Means and standard deviations of the eight weights, given the latents' columns."""
    if prior in ("normal", "centred"):
        return mean, std
    scale = latents[:-1].exp()  # one for the layer, or one for each of the two units
    weights = scale.repeat_interleave(6 // len(scale))
    every = torch.cat((weights, scale.repeat_interleave(2 // len(scale))))
    return 0.2 + every * mean, every * std


@pytest.mark.parametrize("estimator", [LocalReparameterization(3), Flipout(3), SharedWeights(3)], ids=repr)
@pytest.mark.parametrize("prior", PRIORS)
def test_the_log_likelihood_is_that_of_the_estimators_equation(prior, estimator):
    """Latents are sampled as columns; given them a weight is Gaussian with mean loc + scale m and deviation scale s.

    local:    x w + b + sqrt(x^2 s_w^2 + s_b^2) e             with one e for each example and output
    flipout:  the weight of example n is w + s_w e r_n s_n^T, its bias b + s_b e r_n
    shared:   one w + s_w e, b + s_b e for all examples
    """
    problem, method, rng = _problem(prior), method_with(estimator=estimator), Rng.create(3, 2).at(5)
    model, state = problem.model, problem.state(2)
    found = elbo_gradients(method, model, state, problem.batch(2, ROWS), rng, 1.0).log_likelihood
    inputs, targets, std = problem.inputs[ROWS], problem.targets[ROWS], softplus(state.rho)
    noise, keys = weight_noise(method, rng, model.layout.latent), rng.keys(3)
    expected = torch.zeros(2, 3, dtype=torch.float64)
    for p in range(2):
        for s in range(3):
            latents = (state.mean[p] + std[p] * noise[p, s])[8:]
            mean, spread = _moments(prior, state.mean[p, :8], std[p, :8], latents)
            (w, b), (sw, sb) = ((t[:6].view(2, 3), t[6:]) for t in (mean, spread))
            ew, eb = noise[p, s, :6].view(2, 3), noise[p, s, 6:8]
            source = NoiseSource(keys[p, s], rng.step)
            if isinstance(estimator, LocalReparameterization):
                deviation = (inputs.square() @ sw.square().T + sb.square()).sqrt()
                outputs = inputs @ w.T + b + deviation * source.normal((5, 2), torch.float64, request=0)
            elif isinstance(estimator, Flipout):
                into, out = (source.signs((5, n), torch.float64, request=k) for k, n in ((0, 3), (1, 2)))
                each = w + sw * ew * out[:, :, None] * into[:, None, :]
                outputs = torch.einsum("noi,ni->no", each, inputs) + b + sb * eb * out
            else:
                outputs = inputs @ (w + sw * ew).T + b + sb * eb
            expected[p, s] = torch.distributions.Normal(outputs, latents[-1].exp()).log_prob(targets).sum()
    assert_close(found, 20 / 5 * expected.mean(1), rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("estimator", [LocalReparameterization(2), Flipout(2), SharedWeights(2)], ids=repr)
@pytest.mark.parametrize("words", [6, (4, 5)], ids=["one word", "a sequence"])
def test_a_row_for_padding_is_nothing_under_every_estimator(words, estimator):
    """Neither its mean nor its spread reaches the data term, whose gradient leaves it alone; and no noise is added."""
    shape = words if isinstance(words, tuple) else (words,)
    inputs = torch.arange(torch.Size(shape).numel()).reshape(shape) % 7
    assert bool((inputs == 1).any())
    network = nn.Embedding(7, 3, padding_idx=1).double()
    with torch.no_grad():
        network.weight[1] = 0.7  # the network's own, which need not be 0
    problem = Problem(network, inputs, prior=priors.Normal())
    method, state, moved = method_with(estimator=estimator), problem.state(), problem.state()
    padding = slice(3, 6)
    moved.mean[:, padding] += 5.0
    moved.rho[:, padding] += 3.0
    one, other = (elbo_gradients(method, problem.model, s, problem.batch(), same_seeds(1), 0.0) for s in (state, moved))
    assert torch.equal(one.log_likelihood, other.log_likelihood)
    for gradient in one.by_name.values():
        assert torch.count_nonzero(gradient[:, padding]).item() == 0
        assert torch.count_nonzero(gradient).item() >= 15
    nothing = Problem(
        network, torch.ones_like(inputs), prior=priors.Normal(), likelihood=likelihoods.Gaussian(scale=0.7)
    )
    found = elbo_gradients(method, nothing.model, nothing.state(), nothing.batch(), same_seeds(1), 0.0)
    expected = (
        likelihoods.Gaussian(scale=0.7).log_prob(torch.full_like(nothing.targets, 0.7), nothing.targets, {}).sum()
    )
    assert_close(found.log_likelihood[0], expected, rtol=1e-12, atol=0.0)
