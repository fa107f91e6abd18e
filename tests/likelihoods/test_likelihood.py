"""What every likelihood must do, and the shapes that all of them share."""

import dataclasses
import math

import pytest
import torch
from torch.func import vmap
from torch.testing import assert_close

from bayesprop import likelihoods, rng, specification
from bayesprop.errors import CapabilityError, DataError
from bayesprop.likelihoods.likelihood import compact, first_row, first_value, sum_targets, widen


def laplace(outputs):
    return torch.distributions.Laplace(outputs[:, 0], outputs[:, 1].exp())


def noisy_labels(outputs):
    return torch.distributions.Categorical(logits=outputs)


# name: (likelihood, output columns or None for (n,), targets)
CASES = {
    "bernoulli": (likelihoods.Bernoulli(), 1, lambda n: torch.arange(n) % 2),
    "bernoulli, several": (likelihoods.Bernoulli(), 3, lambda n: torch.arange(3 * n).reshape(n, 3) % 2),
    "categorical": (likelihoods.Categorical(), 4, lambda n: torch.arange(n) % 4),
    "gaussian": (likelihoods.Gaussian(scale=0.7), 1, lambda n: torch.linspace(-2, 2, n)),
    "gaussian, learnt": (likelihoods.Gaussian(), 2, lambda n: torch.linspace(-2, 2, 2 * n).reshape(n, 2)),
    "heteroscedastic": (likelihoods.HeteroscedasticGaussian(), 2, lambda n: torch.linspace(-2, 2, n)),
    "student t": (likelihoods.StudentT(df=5.0), 1, lambda n: torch.linspace(-2, 2, n)),
    "poisson": (likelihoods.Poisson(), 1, lambda n: torch.arange(n)),
    "laplace": (likelihoods.FromDistribution(laplace), 2, lambda n: torch.linspace(-2, 2, n)),
    "noisy labels": (
        likelihoods.FromDistribution(noisy_labels, kind="classification"),
        3,
        lambda n: torch.arange(n) % 3,
    ),
}


@pytest.fixture(params=list(CASES))
def case(request):
    likelihood, columns, targets = CASES[request.param]
    generator = torch.Generator().manual_seed(3)
    outputs = torch.randn(5, 6, columns, generator=generator, dtype=torch.float64)
    latents = {
        latent.name: torch.rand(5, generator=generator, dtype=torch.float64) + 0.5 for latent in likelihood.latents
    }
    return likelihood, outputs, likelihood.encode(targets(6)), latents


def one_draw(outputs, latents, draw=0):
    return outputs[draw], {name: value[draw] for name, value in latents.items()}


def test_every_likelihood_of_the_package_is_a_case():
    exported = {getattr(likelihoods, name) for name in likelihoods.__all__} - {likelihoods.Likelihood}
    assert exported == {type(likelihood) for likelihood, _, _ in CASES.values()}
    assert likelihoods.__all__ == sorted(likelihoods.__all__)


def test_log_prob_under_vmap_over_draws_is_that_of_a_loop(case):
    likelihood, outputs, targets, latents = case
    together = vmap(likelihood.log_prob, in_dims=(0, None, 0))(outputs, targets, latents)
    alone = torch.stack(
        [likelihood.log_prob(o, targets, values) for o, values in (one_draw(outputs, latents, s) for s in range(5))]
    )
    assert together.shape == (5, 6)
    assert_close(together, alone)


def test_gradients_under_vmap_are_finite(case):
    likelihood, outputs, targets, latents = case

    def total(values, hyper):
        return likelihood.log_prob(values, targets, hyper).sum()

    gradient = vmap(torch.func.grad(total))(outputs, latents)
    assert gradient.shape == outputs.shape
    assert bool(torch.isfinite(gradient).all())


def test_shapes_and_dtypes(case):
    likelihood, outputs, targets, latents = case
    row, hyper = one_draw(outputs, latents)
    likelihood.check(row, targets)
    likelihood.check(row[:2], targets)  # a first look at a few rows is enough for the outputs
    assert likelihood.log_prob(row, targets, hyper).shape == (6,)
    mean = likelihood.mean(row, hyper)
    with rng.quarantine(0):
        drawn = likelihood.sample(row, hyper)
    assert drawn.shape == targets.shape
    if likelihood.task == "classification":
        assert_close(mean.sum(1), torch.ones(6, *mean.shape[2:], dtype=torch.float64))
        assert mean.shape == (6, mean.shape[1], *targets.shape[1:])
        assert likelihood.entropy(row, hyper).shape == targets.shape
        assert drawn.dtype == torch.int64
    else:
        assert mean.shape == targets.shape
        assert likelihood.variance(row, hyper).shape == targets.shape
    assert mean.dtype == torch.float64


def test_half_precision_outputs_are_computed_in_float32(case):
    likelihood, outputs, targets, latents = case
    row, hyper = one_draw(outputs.bfloat16(), {name: value.float() for name, value in latents.items()})
    assert likelihood.log_prob(row, targets, hyper).dtype == torch.float32
    assert likelihood.mean(row, hyper).dtype == torch.float32


def test_float64_targets_do_not_make_float32_outputs_slow(case):
    likelihood, outputs, targets, latents = case
    row, hyper = one_draw(outputs.float(), latents)
    targets = targets.double() if targets.is_floating_point() else targets
    assert likelihood.log_prob(row, targets, hyper).dtype == torch.float32


def test_columns_of_one_are_dropped_on_both_sides(case):
    likelihood, outputs, targets, latents = case
    if isinstance(likelihood, likelihoods.FromDistribution):
        # Its factory fixes the shape of the outputs; targets are brought to that of the distribution.
        assert likelihood.log_prob(outputs[0], targets.unsqueeze(-1), {}).shape == (6,)
        return
    row, hyper = one_draw(outputs, latents)
    expected = likelihood.log_prob(row, targets, hyper)
    wide = targets.unsqueeze(-1)
    likelihood.check(row, wide)
    likelihood.check(row.unsqueeze(-1), targets)
    assert_close(likelihood.log_prob(row, wide, hyper), expected)
    assert_close(likelihood.log_prob(row.unsqueeze(-1), wide, hyper), expected)


@pytest.mark.statistical
def test_samples_have_the_mean_and_the_probabilities(case):
    likelihood, outputs, _, latents = case
    row, hyper = one_draw(outputs, latents)
    count = 4000
    with rng.quarantine(1):
        drawn = torch.stack([likelihood.sample(row, hyper) for _ in range(count)]).double()
    mean = likelihood.mean(row, hyper)
    if likelihood.task == "classification":
        for k in range(mean.shape[1]):
            p = mean[:, k]
            error = (p * (1 - p) / count).sqrt()
            # 5 standard errors for each of at most 36 numbers: fails once in 48,000 seeds.
            assert bool(((drawn == k).double().mean(0) - p).abs().le(5 * error + 1e-12).all())
    else:
        error = (likelihood.variance(row, hyper) / count).sqrt()
        assert bool((drawn.mean(0) - mean).abs().le(5 * error).all())


@pytest.mark.parametrize(
    "name", ["bernoulli", "gaussian", "heteroscedastic", "student t", "poisson", "laplace", "categorical"]
)
def test_density_integrates_to_one(name):
    likelihood, columns, _ = CASES[name]
    row = torch.randn(1, columns, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    latents = {latent.name: torch.tensor(0.8, dtype=torch.float64) for latent in likelihood.latents}
    if likelihood.task == "regression":
        grid = torch.linspace(-3000, 3000, 600_001, dtype=torch.float64)
    else:
        grid = torch.arange({"classification": max(columns, 2), "count": 200}[likelihood.task])
    density = likelihood.log_prob(row.expand(len(grid), -1), grid, latents).exp()
    mass = torch.trapezoid(density, grid) if likelihood.task == "regression" else density.sum()
    # Trapezoids of width 0.01 err by h^2 / 12 times the jump of the slope (Laplace); the t leaves 1e-14 outside.
    assert_close(mass, torch.tensor(1.0, dtype=torch.float64), atol=1e-4, rtol=0)


def test_frozen_hashable_and_written_to_json(case):
    likelihood, *_ = case
    with pytest.raises(dataclasses.FrozenInstanceError):
        likelihood.scale = 2.0
    assert likelihood == dataclasses.replace(likelihood)
    if isinstance(likelihood, likelihoods.FromDistribution):
        return
    document = specification.to_json(likelihood, {}, "likelihood")
    assert specification.from_json(document, {}) == likelihood


def test_compact_drops_ones_behind_the_rows_only():
    assert compact(torch.zeros(1, 1, 3, 1)).shape == (1, 3)
    assert compact(torch.zeros(4, 1), keep=2).shape == (4, 1)
    same = torch.zeros(4, 3)
    assert compact(same) is same
    assert compact(torch.zeros(0, 1)).shape == (0,)


def test_small_functions():
    assert widen(torch.zeros(2, dtype=torch.float16)).dtype == torch.float32
    assert widen(torch.zeros(2, dtype=torch.float64)).dtype == torch.float64
    assert_close(sum_targets(torch.ones(2, 3, 4)), torch.full((2,), 12.0))
    wrong = torch.tensor([[False, False], [False, True]])
    assert first_row(wrong) == 1
    assert first_value(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), wrong) == 4.0


def test_capabilities_that_are_missing_say_what_to_write():
    categorical, gaussian = likelihoods.Categorical(), likelihoods.Gaussian(scale=1.0)
    with pytest.raises(CapabilityError, match=r"no variance.*\n.*write: entropy"):
        categorical.variance(torch.zeros(2, 3), {})
    with pytest.raises(CapabilityError, match=r"write: prediction\.entropy"):
        gaussian.entropy(torch.zeros(2), {})
    with pytest.raises(CapabilityError, match="has_cdf"):
        categorical.cdf(torch.zeros(2, 3), torch.zeros(2), {})


@pytest.mark.parametrize("name", ["categorical", "gaussian", "poisson", "heteroscedastic", "bernoulli", "laplace"])
def test_more_rows_of_outputs_than_targets_are_refused(name):
    likelihood, columns, targets = CASES[name]
    with pytest.raises(DataError, match=r"one row for each row of the inputs\n.*outputs \(9, .*targets \(6,\)"):
        likelihood.check(torch.zeros(9, columns), likelihood.encode(targets(6)))


def test_entropy_of_classes_is_in_nats():
    flat = likelihoods.Categorical().entropy(torch.zeros(2, 4), {})
    assert_close(flat, torch.full((2,), math.log(4)))
    sure = likelihoods.Categorical().entropy(torch.tensor([[0.0, -math.inf]]), {})
    assert_close(sure, torch.zeros(1))
