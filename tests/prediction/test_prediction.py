import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.testing import assert_close

from bayesprop import prediction as package
from bayesprop.data.scaling import Scaling
from bayesprop.errors import CapabilityError, ConfigurationError, DataError, MemoryBudgetError
from bayesprop.likelihoods import (
    Bernoulli,
    Categorical,
    FromDistribution,
    Gaussian,
    HeteroscedasticGaussian,
    Poisson,
    StudentT,
)

LAPLACE = FromDistribution(lambda f: torch.distributions.Laplace(f[:, 0], torch.ones_like(f[:, 0])))
SCALING = Scaling(torch.zeros(()), torch.ones(()), torch.tensor(40.0), torch.tensor(8.0))
LIKELIHOODS = {
    "categorical": (Categorical(), 3),
    "bernoulli": (Bernoulli(), 1),
    "gaussian": (Gaussian(scale=0.5), 1),
    "two targets": (Gaussian(scale=0.5), 2),
    "heteroscedastic": (HeteroscedasticGaussian(), 2),
    "student t": (StudentT(df=4.0, scale=0.3), 1),
    "poisson": (Poisson(), 1),
    "laplace": (LAPLACE, 1),
}


@pytest.fixture(params=list(LIKELIHOODS))
def case(request, normal):
    likelihood, columns = LIKELIHOODS[request.param]
    return likelihood, normal(6, 10, columns)


def targets_of(likelihood, outputs):
    labels = torch.arange(outputs.shape[1]) % 2
    several = likelihood.task == "regression" and likelihood.mean(outputs[0], {}).dim() > 1
    return torch.stack((labels, 1 - labels), dim=1) if several else labels


def test_package():
    assert package.__all__ == ["Prediction"]


@pytest.mark.parametrize("scaled", [False, True])
def test_streaming_gives_what_memory_gives(case, predict, scaled):
    likelihood, outputs = case
    options = {"scaling": SCALING if scaled else None}
    memory, streamed = predict(outputs, likelihood, **options), predict(outputs, likelihood, budget=0, **options)
    targets = targets_of(likelihood, outputs)
    for name in ("mean", "std", "aleatoric", "epistemic", "total", "entropy"):
        assert_close(getattr(streamed, name), getattr(memory, name), atol=1e-6, rtol=0)
    assert_close(streamed.quantile([0.1, 0.7]), memory.quantile([0.1, 0.7]), atol=1e-6, rtol=0)
    assert_close(streamed.log_prob(targets), memory.log_prob(targets), atol=1e-6, rtol=0)
    assert not streamed._chunks.kept
    assert memory._chunks.kept


def test_the_size_of_chunks_changes_no_statistic(case, predict):
    likelihood, outputs = case
    one, many = predict(outputs, likelihood, size=100), predict(outputs, likelihood, size=1)
    for name in ("mean", "std", "aleatoric", "epistemic", "total"):
        assert_close(getattr(one, name), getattr(many, name))
    if likelihood.has_cdf or likelihood.task == "classification":
        assert_close(one.interval(0.8), many.interval(0.8))


def test_shapes(case, predict):
    likelihood, outputs = case
    prediction = predict(outputs, likelihood)
    row = prediction.mean.shape[1:]
    assert len(prediction) == prediction.mean.shape[0] == 10
    assert prediction.std.shape == prediction.median.shape == (10, *row)
    assert prediction.draws.shape == (6, 10, *row)
    assert prediction.quantile([0.1, 0.2, 0.3]).shape == (3, 10, *row)
    labels = row[1:] if likelihood.task == "classification" else row
    assert prediction.samples().shape == (6, 10, *labels)
    assert prediction.samples(4).shape == (4, 10, *labels)
    assert prediction.entropy.shape == (10,)
    assert prediction.log_prob(targets_of(likelihood, outputs)).shape == (10,)
    assert_close(prediction.draws.mean(0), prediction.mean)
    assert_close(prediction.total, prediction.aleatoric + prediction.epistemic)


def test_a_prediction_of_rows_is_the_rows_of_the_prediction(case, predict):
    likelihood, outputs = case
    prediction = predict(outputs, likelihood, scaling=SCALING)
    rows = torch.tensor([0, 3, 4, 9])
    part = prediction[rows]
    assert len(part) == 4
    assert_close(part.mean, prediction.mean[rows])
    assert_close(
        part.log_prob(targets_of(likelihood, outputs)[rows]), prediction.log_prob(targets_of(likelihood, outputs))[rows]
    )
    assert_close(prediction[2:5].std, prediction.std[2:5])
    assert_close(prediction[-1].mean, prediction.mean[-1:])


def test_float32_outputs_give_float32_statistics(case, predict):
    likelihood, outputs = case
    prediction = predict(outputs.float(), likelihood, scaling=SCALING)
    for value in (prediction.mean, prediction.std, prediction.total, prediction.entropy, prediction.median):
        assert value.dtype == torch.float32


def test_numpy(case, predict):
    likelihood, outputs = case
    arrays = predict(outputs, likelihood).numpy()
    names = {"mean", "std", "aleatoric", "epistemic", "total"}
    assert set(arrays) == names | ({"entropy", "label"} if likelihood.task == "classification" else set())
    assert all(isinstance(array, np.ndarray) and len(array) == 10 for array in arrays.values())


def test_samples_are_seeded_and_leave_the_users_generator_alone(case, predict):
    likelihood, outputs = case
    prediction = predict(outputs, likelihood, seed=5)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one, again = prediction.samples(50), prediction.samples(50, seed=5)
    other = prediction.samples(50, seed=6)
    _ = prediction.entropy, prediction.quantile(0.5)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_chunks_do_not_share_noise(predict):
    drawn = predict(torch.zeros(1, 12, 1), Gaussian(scale=1.0), size=4).samples()[0]
    assert len(set(drawn.tolist())) == 12


@pytest.mark.statistical
def test_samples_follow_the_mixture(predict, normal):
    outputs = 2 * normal(5, 3, 1)
    drawn = predict(outputs, Gaussian(scale=0.4)).samples(2000)
    for row in range(3):
        frozen = stats.norm(outputs[:, row, 0].numpy(), 0.4)
        p = stats.kstest(drawn[:, row].numpy(), lambda y, f=frozen: f.cdf(y[:, None]).mean(1)).pvalue
        assert p > 1e-6  # three tests: fails less than once in 300,000 seeds; equal shares of draws only raise p


# -- quantities ------------------------------------------------------------------------------------------------------


def test_gaussian_mixture_in_the_users_units_against_scipy(predict, normal):
    outputs = normal(9, 6, 1)
    scales = normal(9, seed=1).abs() + 0.2
    prediction = predict(outputs, Gaussian(), latents={"likelihood.scale": scales}, scaling=SCALING)
    means, stds = 40 + 8 * outputs[:, :, 0].numpy(), 8 * scales.numpy()[:, None]
    y = np.linspace(20, 60, 6)
    frozen = stats.norm(means, stds)
    assert_close(prediction.mean, torch.from_numpy(means.mean(0)))
    assert_close(prediction.std, torch.from_numpy(np.sqrt((means**2 + stds**2).mean(0) - means.mean(0) ** 2)))
    assert_close(prediction.epistemic, torch.from_numpy(means.var(0)))
    assert_close(prediction.log_prob(y), torch.from_numpy(np.log(frozen.pdf(y).mean(0))))
    assert_close(prediction.log_prob(y[:, None]), prediction.log_prob(torch.from_numpy(y)))
    assert_close(prediction.cdf(y), torch.from_numpy(frozen.cdf(y).mean(0)))
    low, high = prediction.interval(0.9)
    assert_close(prediction.cdf(low), torch.full((6,), 0.05, dtype=torch.float64), atol=1e-8, rtol=0)
    assert_close(prediction.cdf(high), torch.full((6,), 0.95, dtype=torch.float64), atol=1e-8, rtol=0)


def test_scaling_of_several_targets_has_its_jacobian(predict, normal):
    outputs = normal(4, 3, 2)
    scaling = Scaling(torch.zeros(()), torch.ones(()), torch.tensor([1.0, 200.0]), torch.tensor([0.5, 30.0]))
    prediction = predict(outputs, Gaussian(scale=0.7), scaling=scaling)
    y = torch.tensor([[1.0, 190.0], [0.0, 250.0], [2.0, 100.0]], dtype=torch.float64)
    means, stds = outputs.numpy() * [0.5, 30.0] + [1.0, 200.0], 0.7 * np.array([0.5, 30.0])
    joint = stats.norm(means, stds).logpdf(y.numpy()).sum(-1)
    assert_close(prediction.log_prob(y), torch.from_numpy(np.log(np.exp(joint).mean(0))))
    assert_close(prediction.mean, torch.from_numpy(means.mean(0)))
    assert_close(prediction.draws, torch.from_numpy(means))


@pytest.mark.statistical
def test_entropy_of_quantities_is_in_the_users_units(predict):
    prediction = predict(torch.zeros(1, 200, 1, dtype=torch.float64), Gaussian(scale=0.5), scaling=SCALING, size=50)
    expected = 0.5 * math.log(2 * math.pi * math.e * (0.5 * 8) ** 2)
    # -log p has variance 1/2; 200 rows x 256 samples; 5 standard errors fail once in 1.7 million seeds.
    assert prediction.entropy.mean().item() == pytest.approx(expected, abs=5 * math.sqrt(0.5 / (200 * 256)))


@pytest.mark.statistical
def test_quantiles_from_samples_where_there_is_no_closed_form(predict, normal):
    outputs = normal(7, 40, 1)
    prediction = predict(outputs, LAPLACE)
    found = prediction.quantile(0.8)
    level = stats.laplace(outputs[:, :, 0].numpy()).cdf(found.numpy()).mean(0)
    # At least 1000 samples: 5 standard errors of a level, 40 rows, fail once in 40,000 seeds.
    assert np.abs(level - 0.8).max() < 5 * math.sqrt(0.8 * 0.2 / 1000)


def test_counts_have_whole_quantiles_and_no_units(predict, normal):
    prediction = predict(normal(5, 8, 1) + 2, Poisson(), scaling=SCALING)
    low, high = prediction.interval(0.9)
    assert torch.equal(low, low.round())
    assert bool((prediction.cdf(high) >= 0.95 - 1e-9).all())
    assert bool((prediction.cdf(high - 1) < 0.95).all())
    assert_close(prediction.mean, prediction.draws.mean(0))


# -- classes ---------------------------------------------------------------------------------------------------------


def test_probabilities_labels_and_names(predict, normal):
    outputs = normal(6, 5, 3)
    probabilities = outputs.softmax(-1)
    named = predict(outputs, Categorical(), classes=["ant", "bee", "cat"])
    plain = predict(outputs, Categorical())
    assert_close(plain.mean, probabilities.mean(0))
    assert_close(plain.std, probabilities.std(0, correction=0))
    assert torch.equal(torch.as_tensor(plain.label), probabilities.mean(0).argmax(1))
    assert list(named.label) == [["ant", "bee", "cat"][k] for k in plain.label]
    y = ["ant", "cat", "cat", "bee", "ant"]
    assert_close(named.log_prob(y), plain.log_prob(torch.tensor([0, 2, 2, 1, 0])))
    assert_close(named.log_prob(np.array(y)), plain.log_prob([0, 2, 2, 1, 0]))
    with pytest.raises(DataError, match="'dog' at row 0 is not one of the classes"):
        named.log_prob(["dog"] * 5)


def test_quantiles_of_classes_are_those_of_probabilities(predict, normal):
    outputs = normal(30, 5, 3)
    expected = np.quantile(outputs.softmax(-1).numpy(), [0.05, 0.95], axis=0)
    low, high = predict(outputs, Categorical()).interval(0.9)
    assert_close(low, torch.from_numpy(expected[0]))
    assert_close(high, torch.from_numpy(expected[1]))


def test_segmentation(predict, normal):
    prediction = predict(normal(4, 6, 3, 2, 5), Categorical())
    assert prediction.mean.shape == (6, 3, 2, 5)
    assert prediction.entropy.shape == torch.as_tensor(prediction.label).shape == (6, 2, 5)
    assert prediction.samples().shape == (4, 6, 2, 5)
    assert prediction.log_prob(torch.zeros(6, 2, 5, dtype=torch.int64)).shape == (6,)
    assert_close(prediction.mean.sum(1), torch.ones(6, 2, 5, dtype=torch.float64))


# -- refusals --------------------------------------------------------------------------------------------------------


def test_draws_and_samples_that_do_not_fit(predict, normal):
    prediction = predict(normal(6, 10, 3).float(), Categorical(), budget=100)
    with pytest.raises(MemoryBudgetError, match=r"prediction\.draws would hold 6 x 10 rows x 3 numbers"):
        _ = prediction.draws
    with pytest.raises(MemoryBudgetError, match=r"prediction\.samples\(20\) would hold 20 x 10 rows x 1 numbers"):
        prediction.samples(20)
    assert prediction.samples(10).shape == (10, 10)


def test_questions_that_have_no_answer(predict, normal):
    classes, quantities = predict(normal(3, 4, 2), Categorical()), predict(normal(3, 4, 1), LAPLACE)
    with pytest.raises(CapabilityError, match=r"no labels in a regression(.|\n)*prediction\.median"):
        _ = quantities.label
    with pytest.raises(CapabilityError, match="classes have no order"):
        classes.cdf(torch.zeros(4))
    with pytest.raises(CapabilityError, match="no closed form for its distribution function"):
        quantities.cdf(torch.zeros(4))
    with pytest.raises(ConfigurationError, match="how many to draw"):
        classes.samples(0)


@pytest.mark.parametrize("shape", [(5,), (4, 3), ()])
def test_targets_of_another_shape(predict, normal, shape):
    scaling = Scaling(torch.zeros(()), torch.ones(()), torch.zeros(2), torch.ones(2))
    prediction = predict(normal(3, 4, 2), Gaussian(scale=1.0), scaling=scaling)
    with pytest.raises(DataError, match=r"one row for each row of the prediction(.|\n)*expected: targets \(4, 2\)"):
        prediction.log_prob(torch.zeros(shape))


def test_targets_are_held_against_the_outputs(predict, normal):
    with pytest.raises(DataError, match=r"one output for each target"):
        predict(normal(3, 4, 4), Gaussian(scale=1.0)).log_prob(torch.zeros(4))
    with pytest.raises(DataError, match=r"label 3 for a network with 3 outputs"):
        predict(normal(3, 8, 3), Categorical()).log_prob([0, 0, 0, 0, 0, 0, 0, 3])
    with pytest.raises(DataError, match="nan in row 1"):
        predict(normal(3, 2, 1), Gaussian(scale=1.0)).log_prob([0.0, math.nan])


def test_nothing_to_predict():
    with pytest.raises(ConfigurationError, match=r"0 rows and 3 draws"):
        package.Prediction(lambda: iter(()), Categorical(), inputs_length=0, draws=3)


def test_repr_computes_nothing(predict):
    def source():
        raise AssertionError("a repr must not run the network")

    prediction = package.Prediction(source, Categorical(), inputs_length=7, draws=3)
    assert repr(prediction).startswith("Prediction(7 rows, 3 draws, Categorical())\n  .mean .std .label")
    assert len(repr(prediction).splitlines()) == 3
