"""The gradient of the ELBO under every kind of prior, its parts written out, and what it does with minibatches."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from bayesprop import likelihoods, priors
from bayesprop.inference.variational.bayes_by_backprop import MeanFieldState
from bayesprop.inference.variational.gradients import elbo_gradients, has_closed_form, prior_score
from bayesprop.random_weights import Flipout, LocalReparameterization, SharedWeights

from ..conftest import Problem, method_with, normal, same_seeds, small_network
from .conftest import weight_noise

PRIORS: dict[str, priors.Prior | dict[str, priors.Prior]] = {
    "normal": priors.Normal(0.1, 0.5),
    "laplace": priors.Laplace(0.1, 0.5),
    "flat": priors.Flat(),
    "tensors": {
        "*.weight": priors.Normal(scale=0.7),
        "0.bias": priors.Normal(torch.arange(4.0), 0.3),
        "2.bias": priors.Flat(),
    },
    "student": priors.StudentT(3.0, 0.1, 0.5),
    "mixture": priors.ScaleMixture(0.25, 1.0, 0.1),
    "families": {"0.weight": priors.Laplace(scale=0.3), "*.bias": priors.Cauchy(), "2.weight": priors.ScaleMixture()},
    "layer": priors.Normal(0.1, scale=priors.HalfNormal(0.5)),
    "layer, centred": priors.Normal(0.1, scale=priors.HalfNormal(0.5, centred=True)),
    "unit": priors.Laplace(scale=priors.InverseGamma(2.0, 1.0, of="variance", shared="unit")),
    "unit, centred": priors.StudentT(4.0, scale=priors.Gamma(2.0, 1.0, of="precision", shared="unit", centred=True)),
    "horseshoe": priors.Horseshoe(0.3),
    "horseshoe, centred": priors.Horseshoe(0.3, centred=True),
    "everything": {
        "0.weight": priors.Horseshoe(),
        "*.bias": priors.Normal(scale=priors.HalfNormal(shared="unit", centred=True)),
        "2.weight": priors.Normal(0.5, priors.HalfCauchy(shared="network")),
    },
}
CLOSED = {"normal", "laplace", "flat", "tensors"}
LIKELIHOODS = {
    "known noise": likelihoods.Gaussian(scale=0.7),
    "learnt noise": likelihoods.Gaussian(scale=priors.HalfCauchy(0.5)),
}
ESTIMATORS = [SharedWeights(3), SharedWeights(4, antithetic=True), LocalReparameterization(2), Flipout(2)]


@functools.cache
def _problem(prior: str, likelihood: str = "learnt noise") -> Problem:
    return Problem(small_network(), normal(6, 3), prior=PRIORS[prior], likelihood=LIKELIHOODS[likelihood], num_data=20)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
@pytest.mark.parametrize("kl", ["auto", "monte_carlo"])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("prior", PRIORS)
def test_gradients_are_exact(assert_gradients, prior, likelihood, kl, estimator):
    assert_gradients(_problem(prior, likelihood), method_with(estimator=estimator, kl=kl), kl_weight=0.7)


def test_gradients_with_point_estimates_are_exact(assert_gradients):
    """Columns to the right of those that have a distribution: they get the data's gradient and nothing of the prior."""
    for prior in (priors.Normal(), priors.Horseshoe(0.3)):
        problem = Problem(
            small_network(), normal(6, 3), prior=prior, likelihood=LIKELIHOODS["learnt noise"], random="0.*"
        )
        assert problem.model.layout.size > problem.model.layout.latent
        for estimator in ESTIMATORS:
            assert_gradients(problem, method_with(estimator=estimator, kl="auto"))


@pytest.mark.parametrize("prior", PRIORS)
def test_closed_forms_are_those_of_normal_laplace_and_flat(prior):
    assert has_closed_form(_problem(prior).model) is (prior in CLOSED)


@pytest.mark.parametrize("prior", PRIORS)
def test_score_of_the_prior_is_the_gradient_of_its_log_density(prior):
    model, state = _problem(prior).model, _problem(prior).state(2)
    theta = state.mean[:, None, : model.layout.latent].expand(-1, 3, -1).clone().requires_grad_(True)
    (expected,) = torch.autograd.grad(model.log_prior(theta).sum(), theta)
    found = prior_score(model, theta.detach())
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    alone = prior_score(model, theta.detach(), skip_weights=True)
    noise = model.layout.by_name["likelihood.scale"].columns
    assert torch.count_nonzero(alone[..., : noise.start]).item() == 0
    torch.testing.assert_close(alone[..., noise], expected[..., noise], rtol=1e-10, atol=1e-12)


# -- the parts, written out -------------------------------------------------------------------------------------------


def _log_likelihood(problem: Problem, theta: Tensor, rows: slice = slice(None)) -> Tensor:
    """log p(D | w) of the small network without the library: theta is one row, of weights and log noise scale."""
    w, b, v, c = theta[:12].view(4, 3), theta[12:16], theta[16:20].view(1, 4), theta[20:21]
    inputs, targets = problem.inputs[rows], problem.targets[rows]
    outputs = torch.tanh(inputs @ w.T + b) @ v.T + c
    scale = theta[21].exp() if len(theta) > 21 else torch.tensor(0.7, dtype=torch.float64)
    return torch.distributions.Normal(outputs, scale).log_prob(targets).sum()


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("estimator", [SharedWeights(1), SharedWeights(3), SharedWeights(4, antithetic=True)], ids=repr)
def test_the_log_likelihood_is_that_of_the_sampled_weights_on_the_scale_of_the_data(estimator, likelihood):
    problem, method = _problem("normal", likelihood), method_with(estimator=estimator, kl="auto")
    state, rng = problem.state(2), same_seeds(2)
    found = elbo_gradients(method, problem.model, state, problem.batch(2, slice(0, 4)), rng, 1.0).log_likelihood
    theta = state.mean[:, None] + softplus(state.rho)[:, None] * weight_noise(method, rng, problem.model.layout.latent)
    expected = torch.stack([torch.stack([_log_likelihood(problem, t, slice(0, 4)) for t in row]) for row in theta])
    torch.testing.assert_close(found, 20 / 4 * expected.mean(1), rtol=1e-12, atol=0.0)


def _numbers(*values: float) -> list[Tensor]:
    return [torch.tensor(value, dtype=torch.float64) for value in values]


DENSITIES = {
    "normal": (priors.Normal(0.1, 0.5), torch.distributions.Normal(*_numbers(0.1, 0.5))),
    "laplace": (priors.Laplace(0.1, 0.5), torch.distributions.Laplace(*_numbers(0.1, 0.5))),
    "student": (priors.StudentT(3.0, 0.1, 0.5), torch.distributions.StudentT(*_numbers(3.0, 0.1, 0.5))),
    "mixture": (
        priors.ScaleMixture(0.25, 1.0, 0.1),
        torch.distributions.MixtureSameFamily(
            torch.distributions.Categorical(torch.tensor([0.25, 0.75], dtype=torch.float64)),
            torch.distributions.Normal(torch.zeros(2), torch.tensor([1.0, 0.1], dtype=torch.float64)),
        ),
    ),
}


@pytest.mark.parametrize("name", DENSITIES)
@pytest.mark.parametrize("weights", ["uniform", "geometric"])
def test_one_step_is_the_step_of_blundell_et_al(name, weights):
    """Their steps 1-7 with the same noise, minibatch by minibatch: f_i = pi_i [log q - log p(w)] - log p(D_i | w).

        d mu = df/dw + df/dmu                                                                                (3)
        d rho = df/dw eps / (1 + exp(-rho)) + df/drho                                                        (4)

    and mu <- mu - alpha d mu, with derivatives of f by w and by theta apart. Their alpha is the learning rate here
    times M / N.
    """
    prior, density = DENSITIES[name]
    problem = Problem(small_network(), normal(6, 3), prior=prior, likelihood=LIKELIHOODS["known noise"])
    batches, alpha = 3, 0.01
    method = method_with(learning_rate=alpha * 6 / batches, kl="monte_carlo", kl_weights=weights)
    pi = [1 / 3] * 3 if weights == "uniform" else [4 / 7, 2 / 7, 1 / 7]
    state = problem.state()
    for index in range(batches):
        rows, rng = slice(2 * index, 2 * index + 2), same_seeds(1, step=index)
        mu, rho = (t[0].clone().requires_grad_(True) for t in (state.mean, state.rho))
        eps = weight_noise(method, rng, 21)[0, 0]
        w = (mu + torch.log1p(rho.exp()) * eps).detach().requires_grad_(True)
        log_q = torch.distributions.Normal(mu, torch.log1p(rho.exp())).log_prob(w).sum()
        f = pi[index] * (log_q - density.log_prob(w).sum()) - _log_likelihood(problem, w, rows)
        by_w, by_mu, by_rho = torch.autograd.grad(f, (w, mu, rho))
        delta_mu = by_w + by_mu
        delta_rho = by_w * eps / (1.0 + torch.exp(-rho)) + by_rho
        state, _ = method.update(problem.model, state, problem.batch(1, rows, index=index, count=batches), rng)
        torch.testing.assert_close(state.mean[0], (mu - alpha * delta_mu).detach(), rtol=1e-11, atol=1e-13)
        torch.testing.assert_close(state.rho[0], (rho - alpha * delta_rho).detach(), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("prior", ["normal", "mixture", "layer, centred", "horseshoe"])
def test_stick_the_landing_is_the_path_derivative(prior):
    """d/dtheta of log q(w(theta); theta fixed) - log p(w(theta)) - log p(D | w(theta)), averaged over the samples."""
    problem = _problem(prior)
    method = method_with(estimator=SharedWeights(3), kl="auto", stick_the_landing=True)
    state, rng, weight = problem.state(), same_seeds(1), 0.7
    found = elbo_gradients(method, problem.model, state, problem.batch(), rng, weight)
    mean, rho = state.mean.clone().requires_grad_(True), state.rho.clone().requires_grad_(True)
    eps = weight_noise(method, rng, state.rho.shape[1])
    theta = mean[:, None] + softplus(rho)[:, None] * eps
    log_q = torch.distributions.Normal(mean.detach()[:, None], softplus(rho).detach()[:, None]).log_prob(theta).sum(-1)
    divergence = (log_q - problem.model.log_prior(theta)).mean()
    data = problem.model.log_likelihood(theta, problem.model.initial_buffers(1), problem.batch()).mean() * 20 / 6
    expected = torch.autograd.grad((weight * divergence - data) / 20, (mean, rho))
    torch.testing.assert_close((found.by_name["mean"], found.by_name["rho"]), expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_stick_the_landing_leaves_out_the_score_term_under_every_estimator(estimator):
    """The term that is left out, d log q(w; theta) / d theta with w fixed, has the expectation 0:

    eps / std  for the mean,       (eps^2 - 1) / std * slope  for rho.
    """
    problem, weight, state = _problem("everything"), 0.7, _problem("everything").state()
    full, landing = (method_with(estimator=estimator, kl="monte_carlo", stick_the_landing=on) for on in (False, True))
    found = [elbo_gradients(m, problem.model, state, problem.batch(), same_seeds(1), weight) for m in (full, landing)]
    eps, std = weight_noise(full, same_seeds(1), state.rho.shape[1]), softplus(state.rho)
    score_of_mean = eps.mean(1) / std
    score_of_rho = (eps.square().mean(1) - 1.0) / std * torch.sigmoid(state.rho)
    torch.testing.assert_close(
        found[0].by_name["mean"] - found[1].by_name["mean"], weight / 20 * score_of_mean, rtol=1e-9, atol=1e-12
    )
    torch.testing.assert_close(
        found[0].by_name["rho"] - found[1].by_name["rho"], weight / 20 * score_of_rho, rtol=1e-9, atol=1e-12
    )


# -- minibatches and particles ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [SharedWeights(2), SharedWeights(2, antithetic=True)], ids=repr)
@pytest.mark.parametrize("prior", ["normal", "mixture", "horseshoe"])
def test_minibatches_average_to_the_full_batch(prior, estimator):
    """With given noise the average over a partition is the full batch, exactly: value and gradients, for every size."""
    problem = Problem(small_network(), normal(12, 3), prior=PRIORS[prior], likelihood=LIKELIHOODS["learnt noise"])
    method = method_with(estimator=estimator, kl="auto")
    state, rng = problem.state(2), same_seeds(2)
    full = elbo_gradients(method, problem.model, state, problem.batch(2), rng, 1.0)
    for size in (1, 2, 3, 4, 6):
        parts = [
            elbo_gradients(method, problem.model, state, problem.batch(2, slice(i, i + size)), rng, 1.0)
            for i in range(0, 12, size)
        ]
        average = torch.stack([part.log_likelihood for part in parts]).mean(0)
        torch.testing.assert_close(average, full.log_likelihood, rtol=1e-12, atol=0.0)
        for name in ("mean", "rho"):
            average = torch.stack([part.by_name[name] for part in parts]).mean(0)
            torch.testing.assert_close(average, full.by_name[name], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_the_weight_of_the_kl_may_differ_between_particles(estimator):
    """Gradients are affine in it: nothing but the data at 0, and twice the way at 2."""
    problem, method = _problem("everything"), method_with(estimator=estimator, kl="auto")
    state = problem.state()
    buffers = problem.model.initial_buffers(3)
    three = MeanFieldState(state.mean.repeat(3, 1), state.rho.repeat(3, 1), {}, buffers)
    weights = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    found = elbo_gradients(method, problem.model, three, problem.batch(3), same_seeds(3), weights)
    one = elbo_gradients(method, problem.model, state, problem.batch(1), same_seeds(1), 1.0)
    for name, (data, full, twice) in found.by_name.items():
        torch.testing.assert_close(twice - full, full - data, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(full, one.by_name[name][0], rtol=1e-9, atol=1e-12)
        assert not torch.allclose(full, data)
