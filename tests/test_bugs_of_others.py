"""Mistakes that libraries of this kind have made: the objective. Each stays out because a test for it is in.

The docstring of a test says what goes wrong elsewhere. `test_bugs_of_others_in_networks.py` is about networks that
become Bayesian, `test_bugs_of_others_in_state.py` about files, copies, generators and populations. Mistakes that the
tests of a room already keep out are rows of `ELSEWHERE`.
"""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import softplus

import bayesprop as bp
from bayesprop import likelihoods, priors
from bayesprop.model import Batch
from bayesprop.rng import Rng, Stream

# What goes wrong elsewhere -> the test that keeps it out here. The list is exact: a test that is gone is an error.
ELSEWHERE = {
    "the divergence of the classic network is 15 instead of 1.2 million nats": (
        "priors/test_bound.py::test_exact_divergence_of_the_classic_network"
    ),
    "a scale is used as a variance": "distributions/test_normal.py::test_scale_is_a_standard_deviation_not_a_variance",
    "a mixture's density underflows to minus infinity": (
        "distributions/test_scale_mixture.py::test_far_in_the_tail_the_wide_component_speaks"
    ),
    "aleatoric and epistemic do not add up": "prediction/test_moments.py::test_law_of_total_variance",
    "entropies of classes are added wrongly": "prediction/test_moments.py::test_entropies_by_hand",
    "one draw has a mutual information of NaN": (
        "prediction/test_moments.py::test_one_draw_has_no_epistemic_uncertainty"
    ),
    "log-probabilities are averaged instead of probabilities": (
        "prediction/test_mixture.py::test_log_prob_averages_probabilities_and_not_their_logarithms"
    ),
    "memory of a prediction grows with its draws": "prediction/test_chunks.py::test_a_large_source_is_never_in_memory",
    "predictions depend on how they are cut into pieces": (
        "prediction/test_prediction.py::test_the_size_of_chunks_changes_no_statistic"
    ),
    "NLL and Brier score are sums, not means": "metrics/test_classification.py::test_against_scikit_learn",
    "rows on the edge of a calibration bin are lost": (
        "metrics/test_calibration.py::test_an_edge_belongs_to_the_bin_below"
    ),
    "flipout adds the mean a second time": (
        "random_weights/test_estimators.py::test_flipout_gives_each_example_one_weight_sample"
    ),
    "a recurrent network draws new weights at each time step": (
        "random_weights/test_random_weight.py::test_a_recurrent_network_sees_one_draw_at_all_time_steps"
    ),
    "rows of an epoch are drawn with replacement": (
        "data/test_data.py::test_an_epoch_has_equal_batches_that_cover_everything"
    ),
    "N has to be given by the user and is forgotten": (
        "training/test_bad_streams.py::test_a_loader_whose_length_is_unknown"
    ),
    "one logit is taken as one class of probability 1": ("training/test_bad_outputs.py::test_one_output_for_classes"),
    "a target (n, 1) is broadcast against outputs (n,)": (
        "training/test_bad_targets.py::test_a_column_of_targets_is_a_vector"
    ),
    "a parameter that is not used is an error": (
        "training/test_bad_networks.py::test_weights_that_are_not_used_go_to_their_prior"
    ),
    "a NaN does not say where it comes from": (
        "training/test_bad_calls.py::test_a_learning_rate_that_is_far_too_large"
    ),
    "a fit in the linear optimum looks like any other": (
        "diagnostics/test_health.py::test_a_fit_of_two_moons_in_the_linear_optimum_is_not"
    ),
}


def test_what_others_keep_out_is_still_kept_out():
    assert len(ELSEWHERE) == 20
    folder, missing = Path(__file__).parent, []
    for place in ELSEWHERE.values():
        name, _, function = place.partition("::")
        tree = ast.parse((folder / name).read_text(encoding="utf-8"))
        if function not in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}:
            missing.append(place)
    assert not missing, "write the test's new name, or the test:\n" + "\n".join(missing)


# -- a problem, and its objective written out --------------------------------------------------------------------------


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent = nn.LSTM(3, 2, batch_first=True)
        self.last = nn.Linear(2, 1)

    def forward(self, x):
        return self.last(self.recurrent(x.unsqueeze(1).expand(-1, 4, -1))[0][:, -1])


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))[:, :1]


NETWORKS = {
    "perceptron": lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)),
    "recurrent": Recurrent,
    "tied": Tied,
}
PRIOR, SCALE, NUM_DATA, ROWS = priors.Normal(loc=0.2, scale=0.5), 0.7, 40, 5


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def method(**settings) -> bp.inference.BayesByBackprop:
    named = {
        "learning_rate": 0.01,
        "optimizer": "adam",
        "estimator": bp.random_weights.SharedWeights(samples=1),
        "kl": "auto",
        "kl_weights": "uniform",
        "temperature": 1.0,
        "initial_mean": "fan_in",
        "initial_scale": 0.1,
        "schedule": bp.inference.Constant(),
    }
    return bp.inference.BayesByBackprop(**{**named, **settings})


def objective(model: bp.Model, mean: Tensor, rho: Tensor, noise: Tensor, batch: Batch, *, sampled: bool) -> Tensor:
    """[KL - N/n mean_s log p(batch | w_s)] / N of one particle, with everything from torch and nothing from here.

    Sampled, the divergence is mean_s -log p(w_s) minus the entropy of q, which needs no sampling.
    """
    std = softplus(rho)
    q, p = Normal(mean, std), Normal(torch.full_like(mean, 0.2), torch.full_like(std, 0.5))
    divergence = -q.entropy().sum() if sampled else kl_divergence(q, p).sum()
    likelihood = torch.zeros((), dtype=torch.float64)
    for epsilon in noise:
        flat, weights = mean + std * epsilon, {}
        for block in model.layout.blocks:
            for name in (block.name, *block.aliases):
                weights[name] = flat[block.columns].reshape(block.shape)
        outputs = torch.func.functional_call(model.network, weights, (batch.inputs[0],), tie_weights=False)
        likelihood = likelihood + Normal(outputs[:, 0], SCALE).log_prob(batch.targets[0]).sum() / len(noise)
        if sampled:
            divergence = divergence - p.log_prob(flat).sum() / len(noise)
    return (divergence - NUM_DATA / ROWS * likelihood) / NUM_DATA


def one_step(name: str, **settings):
    """(gradients of a step of gradient descent, those of the objective), each for mean and rho."""
    model = bp.Model(NETWORKS[name]().double(), likelihood=likelihoods.Gaussian(scale=SCALE), prior=PRIOR)
    inputs, targets = numbers(ROWS, 3, seed=1), numbers(ROWS, seed=2)
    model.probe(inputs, targets)
    model.set_mode(True)
    batch = Batch(inputs[None], targets[None], NUM_DATA)
    how = method(learning_rate=1.0, optimizer=bp.inference.SGD(momentum=0.0), **settings)
    rng = Rng.create(3)
    state = how.init(model, rng)
    mean, rho = state.mean[0].clone().requires_grad_(), state.rho[0].clone().requires_grad_()
    state, _ = how.update(model, state, batch, rng.at(7))
    samples, antithetic = how.estimator.samples, getattr(how.estimator, "antithetic", False)
    noise = rng.at(7).normal(len(rho), Stream.WEIGHTS, samples // 2 if antithetic else samples, torch.float64)[0]
    noise = torch.cat((noise, -noise)) if antithetic else noise
    value = objective(model, mean, rho, noise, batch, sampled=how.kl == "monte_carlo")
    expected = torch.autograd.grad(value, (mean, rho))
    return (mean.detach() - state.mean[0], rho.detach() - state.rho[0]), expected


# -- gradients ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kl", ["auto", "monte_carlo"])
@pytest.mark.parametrize(("samples", "antithetic"), [(1, False), (3, False), (4, True)])
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_of_several_samples(name, samples, antithetic, kl):
    """Noise that is kept in one buffer is overwritten by the second pass before the first is differentiated: the
    gradient of the deviations is then wrong for every number of samples but one, and for recurrent networks always.
    Also seen: the divergence left out, counted twice for recurrent layers, divided by the batch or by the layers, taken
    as a mean; N / n forgotten; derivatives with respect to the deviation used for its logarithm."""
    estimator = bp.random_weights.SharedWeights(samples=samples, antithetic=antithetic)
    found, expected = one_step(name, estimator=estimator, kl=kl)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_the_gradient_that_sticks_to_the_landing_vanishes_at_the_posterior():
    """The part of the gradient that is to be left out is left in for the mean, where a result is thrown away: then the
    gradient is noise where q is the posterior, and should be zero for every draw."""
    inputs, targets = numbers(12, 1, seed=1), numbers(12, seed=2)
    model = bp.Model(nn.Linear(1, 1, bias=False).double(), likelihood=likelihoods.Gaussian(scale=SCALE), prior=PRIOR)
    model.probe(inputs, targets)
    model.set_mode(True)
    precision = inputs.square().sum() / SCALE**2 + 4.0
    mean = ((inputs[:, 0] * targets).sum() / SCALE**2 + 0.2 * 4.0) / precision
    found = {}
    for sticks in (False, True):
        how = method(
            learning_rate=1.0, optimizer=bp.inference.SGD(momentum=0.0), kl="monte_carlo", stick_the_landing=sticks
        )
        state = how.init(model, Rng.create(0))
        state.mean.fill_(float(mean))
        state.rho.fill_(float(torch.log(torch.expm1(precision.rsqrt()))))
        before = state.mean.clone(), state.rho.clone()
        state, _ = how.update(model, state, Batch(inputs[None], targets[None], 12), Rng.create(5))
        found[sticks] = before[0] - state.mean, before[1] - state.rho
    zero = torch.zeros(1, 1, dtype=torch.float64)
    torch.testing.assert_close(found[True], (zero, zero), rtol=0.0, atol=1e-12)
    assert min(float(gradient.abs()) for gradient in found[False]) > 1e-3


@pytest.mark.parametrize("rho", [100.0, 30.0, -30.0])
def test_deviations_far_out_neither_overflow_nor_vanish(rho):
    """log(1 + exp(rho)), written like that, is infinite at 100 and zero at -40: the loss is then NaN."""
    model = bp.Model(nn.Linear(2, 1), likelihood=likelihoods.Gaussian(scale=1.0), prior=priors.Normal(scale=1.0))
    inputs, targets = numbers(6, 2).float(), numbers(6, seed=1).float()
    model.probe(inputs, targets)
    model.set_mode(True)
    how = method(initial_rho=rho, initial_scale=bp.inference.BayesByBackprop.initial_scale)
    state = how.init(model, Rng.create(0))
    expected = torch.full((1, 3), rho if rho > 0 else math.exp(rho))
    torch.testing.assert_close(how.posterior(model, state).std(), expected)
    state, info = how.update(model, state, Batch(inputs[None], targets[None], 6), Rng.create(1))
    for tensor in (state.mean, state.rho, info.log_likelihood):
        assert bool(torch.isfinite(tensor).all())
    assert bool(torch.isfinite(how.posterior(model, state).kl()).all())


@pytest.mark.parametrize(
    ("prior", "slope"),
    [
        (priors.Normal(scale=0.5), lambda x: -x / 0.25),
        (priors.Laplace(scale=0.5), lambda x: -x.sign() / 0.5),
        (priors.ScaleMixture(pi=0.5, scale1=1.0, scale2=0.01), lambda x: -x),
        (priors.StudentT(df=3.0, scale=1.0), lambda x: -4.0 * x / (3.0 + x.square())),
    ],
    ids=["normal", "laplace", "mixture", "student"],
)
def test_priors_pull_at_weights_that_are_far_away(prior, slope):
    """log(exp(log p) + 1e-6), written against log(0), has gradient zero where it is needed most."""
    model = bp.Model(nn.Linear(3, 1, bias=False), likelihood=likelihoods.Gaussian(scale=1.0), prior=prior)
    weights = torch.tensor([[40.0, -300.0, 1e4]])
    torch.testing.assert_close(model.bound_prior.score(weights), slope(weights))
    leaf = weights.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model.log_prior(leaf).sum(), leaf)
    torch.testing.assert_close(gradient, slope(weights))


# -- what is reported --------------------------------------------------------------------------------------------------

INPUTS = numbers(NUM_DATA, 3, seed=11)
TARGETS = INPUTS @ torch.tensor([1.0, -0.5, 0.25], dtype=torch.float64) + 0.3 * numbers(NUM_DATA, seed=12)


def fit(net: nn.Module, data=(INPUTS, TARGETS), *, likelihood=None, prior=PRIOR, epochs=3, batch_size=10, **settings):
    model = bp.Model(net.double(), likelihood=likelihood or likelihoods.Gaussian(scale=SCALE), prior=prior)
    how = settings.pop("how", None) or method()
    settings = {"seed": 0, "starts": 1, "report_every": 1, **settings}
    return bp.fit(model, data, how, epochs=epochs, batch_size=batch_size, progress=False, **settings)


@pytest.mark.parametrize("batch_size", [7, None])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_divergence_is_the_sum_over_all_weights(name, batch_size):
    """Seen: the mean over the weights, or over each tensor, instead of the sum; divided by the number of layers or by
    the batch; off by 1/2 for each weight, where the entropy's constant is lost; with q and p swapped; each recurrent
    layer counted twice."""
    posterior = fit(NETWORKS[name](), batch_size=batch_size)
    mean, std = (moment[0] for moment in posterior.moments())
    p = Normal(torch.full_like(mean, 0.2), torch.full_like(std, 0.5))
    expected = kl_divergence(Normal(mean, std), p).sum()
    assert mean.numel() == sum(parameter.numel() for parameter in NETWORKS[name]().parameters())
    torch.testing.assert_close(posterior.kl()[0], expected, rtol=1e-12, atol=0.0)
    entry = posterior.context.history[-1]
    assert entry["kl"] == pytest.approx(float(expected), rel=1e-12)
    assert entry["elbo"] == pytest.approx(entry["log_likelihood"] - entry["kl"], rel=1e-12)
    swapped = kl_divergence(p, Normal(mean, std)).sum()
    assert float((swapped - expected).abs()) > 1.0


@pytest.mark.parametrize("batch_size", [7, 40, None])
def test_the_elbo_is_that_of_the_full_data(batch_size):
    """The loss that is shown is divided by N over the batch, so that it is no ELBO and two runs cannot be compared."""
    posterior = fit(nn.Linear(3, 1), batch_size=batch_size)
    model, centre = posterior.model, posterior.mean()
    narrow = bp.posteriors.DiagonalGaussian(model, centre, torch.full_like(centre, 1e-9), {}, posterior.context)
    weights = model.weights(centre[0])
    outputs = torch.func.functional_call(model.network, weights, (INPUTS,))
    exact = Normal(outputs[:, 0], SCALE).log_prob(TARGETS).sum() - narrow.kl()[0]
    torch.testing.assert_close(bp.elbo(narrow, (INPUTS, TARGETS), draws=2)[0], exact, rtol=1e-8, atol=0.0)
    twice = torch.cat((INPUTS, INPUTS)), torch.cat((TARGETS, TARGETS))
    both = bp.elbo(narrow, twice, draws=2)[0] + narrow.kl()[0]
    torch.testing.assert_close(both, 2.0 * (exact + narrow.kl()[0]), rtol=1e-8, atol=0.0)


def test_scores_of_validation_data_are_means():
    """A negative log-likelihood that is printed as a sum grows with the number of rows that it is taken over."""
    validation = INPUTS[:8], TARGETS[:8]
    twice = tuple(torch.cat((part, part)) for part in validation)
    once, again = (fit(nn.Linear(3, 1), validation=some).context.history[-1] for some in (validation, twice))
    for name in ("validation_nll", "validation_rmse", "epistemic_share"):
        assert again[name] == pytest.approx(once[name], rel=1e-9)


# -- the posterior that it leads to ------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize(("batch_size", "epochs"), [(10, 250), (None, 1000)])
def test_the_posterior_of_a_linear_model(batch_size, epochs):
    """Whoever has to scale the divergence by hand scales it wrongly: deviations are then too small by orders of
    magnitude, or they are the prior's. With everything in its place they are 1 / sqrt(Lambda_ii).

    Noise of minibatches and of draws is left over at the end of the training: ten percent are allowed, and the wrong
    scales are wrong by more: a mean in place of the sum over three weights by 40 %."""
    precision = INPUTS.T @ INPUTS / SCALE**2 + 4.0 * torch.eye(3, dtype=torch.float64)
    mean = torch.linalg.solve(precision, INPUTS.T @ TARGETS / SCALE**2 + 0.2 * 4.0)
    deviations = precision.diagonal().rsqrt()
    how = method(
        learning_rate=0.05,
        estimator=bp.random_weights.SharedWeights(samples=4, antithetic=True),
        schedule=bp.inference.Cosine(),
    )
    posterior = fit(nn.Linear(3, 1, bias=False), how=how, epochs=epochs, batch_size=batch_size, report_every=epochs)
    torch.testing.assert_close(posterior.std()[0], deviations, rtol=0.1, atol=0.0)
    assert float(((posterior.mean()[0] - mean) / deviations).abs().max()) < 0.1


@pytest.mark.statistical
def test_the_noise_is_learnt_and_no_squared_error():
    """The mean squared error as a likelihood claims a noise of variance 1/2, whatever the noise is. From 400 residuals
    a deviation is known to 3.5 percent: 18 percent are five standard errors."""
    inputs = numbers(400, 1, seed=21)
    targets = 2.0 * inputs[:, 0] + 0.2 * numbers(400, seed=22)
    how = method(learning_rate=0.05, schedule=bp.inference.Cosine())
    likelihood = likelihoods.Gaussian(scale=priors.HalfNormal(1.0))
    posterior = fit(
        nn.Linear(1, 1), (inputs, targets), likelihood=likelihood, how=how, epochs=60, batch_size=40, report_every=60
    )
    assert float(posterior.mean("likelihood.scale")) == pytest.approx(0.2, rel=0.18)
    prediction = posterior.predict(inputs, draws=50)
    assert float(prediction.std.mean()) == pytest.approx(0.2, rel=0.18)
