import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal, Poisson

from bayesprop import likelihoods
from bayesprop.data import Data
from bayesprop.errors import CapabilityError, DataError
from bayesprop.metrics import crps_gaussian
from bayesprop.report import regression_evaluation
from bayesprop.report.regression_evaluation import evaluate_regression

from .conftest import delta


@pytest.fixture
def evaluation(line, points):
    return evaluate_regression(line, points, draws=4)


def test_scores_of_a_known_line(evaluation, points):
    """N(2 x + 1, 1/4) for every row, with no doubt about the weights."""
    x, y = points
    residual = y - (2 * x[:, 0] + 1)
    assert evaluation.rows == 40
    assert evaluation.root_mean_squared_error == pytest.approx(residual.square().mean().sqrt().item(), rel=1e-12)
    expected = (-2 * residual.square().mean() - math.log(0.5) - 0.5 * math.log(2 * math.pi)).item()
    assert evaluation.log_likelihood == pytest.approx(expected, rel=1e-9)
    assert evaluation.epistemic_share == pytest.approx(0.0, abs=1e-12)


@pytest.mark.statistical
def test_crps_of_a_known_line(evaluation, points):
    """Against the closed form of the Gaussian. One row's score from S samples has a standard error below
    E|Y - y| / sqrt(S) + ... < 2 std / sqrt(S) = 0.07 here; the mean of 40 rows one below 0.011. Five of them."""
    x, y = points
    expected = crps_gaussian(2 * x[:, 0] + 1, torch.full((40,), 0.5), y)
    assert evaluation.crps == pytest.approx(expected, abs=0.056)
    assert expected > 0.1


def test_samples_in_pieces_are_all_rows(evaluation, monkeypatch):
    """What is held at a time changes the samples, not what is scored."""
    whole = evaluation.crps
    del evaluation.__dict__["crps"]
    monkeypatch.setattr(regression_evaluation, "NUMBERS", 7 * 200)
    assert len(evaluation._parts(200)) == 6
    assert evaluation.crps == pytest.approx(whole, abs=0.08)  # five standard errors of the difference of two
    assert evaluation.crps != whole


def test_ranks_of_quantities_are_their_distribution_function(evaluation, points):
    x, y = points
    expected = Normal(2 * x[:, 0] + 1, 0.5).cdf(y)
    below, reached = evaluation.ranks
    torch.testing.assert_close(reached, expected, rtol=1e-9, atol=1e-12)
    assert below is reached
    # The rows of `points` sit at the mid-ranks, so coverage is what the intervals claim, to one row on each side.
    for level in (0.5, 0.9, 0.95):
        assert evaluation.coverage(level) == pytest.approx(level, abs=2 / 40)
        low, high = evaluation.prediction.interval(level)
        assert evaluation.coverage(level) == ((low <= y) & (y <= high)).double().mean().item()


def test_ranks_of_counts_are_steps():
    """P(Y < y) and P(Y <= y) of a Poisson with rate 3; an interval holds a count if it holds any part of the step."""
    posterior = delta(nn.Linear(1, 1), likelihoods.Poisson(), [0.0, math.log(3.0)])
    counts = torch.arange(10, dtype=torch.float64)
    found = evaluate_regression(posterior, (torch.zeros(10, 1), counts), draws=2)
    mass = Poisson(torch.tensor(3.0, dtype=torch.float64)).log_prob(counts).exp()
    below, reached = found.ranks
    torch.testing.assert_close(reached, mass.cumsum(0), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(below, mass.cumsum(0) - mass, rtol=1e-6, atol=1e-7)
    low, high = found.prediction.interval(0.9)
    assert found.coverage(0.9) == ((low <= counts) & (counts <= high)).double().mean().item() == 0.6  # 1 to 6


@pytest.mark.statistical
def test_ranks_without_a_closed_form_come_from_samples():
    """Student's t with 2.5 degrees of freedom. A rank p from 1000 samples has standard error sqrt(p (1 - p) / 1000);
    five of them, for 9 rows: fails once in 200,000."""
    from scipy.stats import t

    posterior = delta(nn.Linear(1, 1), likelihoods.StudentT(df=2.5, scale=1.0), [0.0, 0.0])
    assert not posterior.model.likelihood.has_cdf
    places = torch.linspace(-3, 3, 9, dtype=torch.float64)
    below, reached = evaluate_regression(posterior, (torch.zeros(9, 1), places), draws=10).ranks
    expected = torch.from_numpy(t.cdf(places.numpy(), 2.5))
    error = (expected * (1 - expected) / 1000).sqrt()
    assert bool(((reached - expected).abs() < 5 * error).all())
    torch.testing.assert_close(below, reached, rtol=0, atol=0)


def test_several_targets():
    posterior = delta(nn.Linear(1, 2), likelihoods.Gaussian(scale=1.0), [1.0, -1.0, 0.0, 0.0])
    x = torch.linspace(-1, 1, 5, dtype=torch.float64)[:, None]
    y = torch.cat((x + 1, -x), 1)
    found = evaluate_regression(posterior, (x, y), draws=2)
    assert found.targets.shape == (5, 2)
    assert found.root_mean_squared_error == pytest.approx(math.sqrt(0.5), rel=1e-12)
    assert found.log_likelihood == pytest.approx(-0.5 - math.log(2 * math.pi), rel=1e-9)  # both targets together
    assert found.ranks[1].shape == (5, 2)
    assert found.crps > 0


def test_a_column_of_targets_is_one_target(line, points):
    x, y = points
    found = evaluate_regression(line, (x, y[:, None]), draws=2)
    assert found.targets.shape == (40,)


def test_scores_are_in_the_users_units(line, points):
    x, y = points
    data = Data(x, y, standardize=True)
    line.context.scaling = data.scaling
    found = evaluate_regression(line, data, draws=2)
    torch.testing.assert_close(found.targets, y)
    torch.testing.assert_close(found.inputs, x)


def test_classes_are_refused(class_posterior, blobs):
    with pytest.raises(CapabilityError) as caught:
        evaluate_regression(class_posterior, blobs)
    assert str(caught.value).splitlines() == [
        "this evaluation measures distances between numbers",
        "  received: Categorical(), a classification",
        "  expected: a posterior of a model of quantities or counts",
        "  write: report.evaluate(posterior, (inputs, labels))",
    ]


def test_targets_of_another_shape_are_refused(line, points):
    x, y = points
    found = evaluate_regression(line, (x, torch.stack((y, y), 1)), draws=2)
    with pytest.raises(DataError, match="predictions and targets must have one shape") as caught:
        _ = found.root_mean_squared_error
    assert "received: (40,) and (40, 2)" in str(caught.value)
