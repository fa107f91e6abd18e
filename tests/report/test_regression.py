import math

import numpy as np
import pytest
import torch
from torch import nn

from bayesprop import likelihoods
from bayesprop.model import Model
from bayesprop.posteriors import Context, DiagonalGaussian
from bayesprop.report.page import render
from bayesprop.report.regression import coverage_headline, headline, regression_sections
from bayesprop.report.regression_evaluation import evaluate_regression

from .conftest import HISTORY, delta


@pytest.fixture
def unsure():
    """y = w x + 1 with w ~ N(2, 1), noise of 1/2: the function is known at 0 and uncertain far from it."""
    model = Model(nn.Linear(1, 1).double(), likelihood=likelihoods.Gaussian(scale=0.5))
    mean = torch.tensor([[2.0, 1.0]], dtype=torch.float64)
    std = torch.tensor([[1.0, 1e-6]], dtype=torch.float64)
    return DiagonalGaussian(model, mean, std, {}, Context(num_data=100, history=list(HISTORY)))


def plots(sections):
    return {block.title: block for section in sections for block in section.blocks if block.kind == "plot"}


def test_a_whole_page(unsure, points, parsed):
    sections = regression_sections(evaluate_regression(unsure, points, draws=50))
    assert [section.title for section in sections] == [
        "At a glance",
        "Predictions",
        "How the training went",
        "Can the intervals be trusted?",
        "What the weights know",
        "How it was made",
    ]
    assert list(plots(sections)) == [
        "Prediction",
        "Residuals and their predicted size",
        "Learning curve",
        "Validation rows",
        "Coverage",
        "Ranks of the targets",
        "Signal to noise of the weights",
    ]
    root = parsed(render(sections, title="Page"))
    assert len([element for element in root.iter() if element.get("class") == "plot"]) == 7
    assert len(list(root.iter("table"))) == 2


def test_headline_numbers_are_the_evaluations(line, points):
    evaluation = evaluate_regression(line, points, draws=4)
    shown = {number.label: number for number in headline(evaluation).numbers}
    assert list(shown) == ["RMSE", "Log-likelihood", "CRPS", "Epistemic share"]
    assert shown["RMSE"].value == f"{evaluation.root_mean_squared_error:.3g}"
    spread = points[1].std(correction=0).item()
    assert shown["RMSE"].note.endswith(f"mean of these 40 rows gives {spread:.3g}.")
    assert shown["Log-likelihood"].value == f"−{-evaluation.log_likelihood:.3g}"
    assert shown["CRPS"].value == f"{evaluation.crps:.3g}"
    assert shown["Epistemic share"].value == "0\xa0%"
    assert all(number.note for number in shown.values())


def test_coverage_of_three_intervals(line, points):
    evaluation = evaluate_regression(line, points, draws=4)
    numbers = coverage_headline(evaluation).numbers
    assert [number.label for number in numbers] == [f"Inside {level} % intervals" for level in (50, 90, 95)]
    for number, level, z in zip(numbers, (0.5, 0.9, 0.95), (0.6745, 1.6449, 1.96)):
        assert number.value == f"{100 * evaluation.coverage(level):.1f}\xa0%"
        assert number.note.endswith(f"Their mean width is {2 * z * 0.5:.3g}.")
    # 1.96 sqrt(1/4 / 40) = 0.155 around one half
    assert "honest intervals hold 35\xa0% to 65\xa0%" in numbers[0].note


def test_large_and_small_numbers_are_readable():
    posterior = delta(nn.Linear(1, 1), likelihoods.Gaussian(scale=1e6), [0.0, 0.0])
    x = torch.linspace(0, 1, 8, dtype=torch.float64)[:, None]
    shown = {n.label: n.value for n in headline(evaluate_regression(posterior, (x, 12345 * x), draws=2)).numbers}
    assert shown["RMSE"] == f"{12345 * math.sqrt((x**2).mean()):,.0f}"
    assert shown["CRPS"].endswith("e+05") or "," in shown["CRPS"]
    shown = {n.label: n.value for n in headline(evaluate_regression(posterior, (x, 1e-9 * x), draws=2)).numbers}
    assert shown["RMSE"].endswith("e−10")


def test_the_band_of_one_input(unsure, points):
    """At x the function is N(2 x + 1, x^2), a target N(2 x + 1, x^2 + 1/4). With 2,000 draws the standard error of a
    deviation is 1.6 % and that of the mean 2.2 % of |x|; five of them."""
    evaluation = evaluate_regression(unsure, points, draws=2000)
    (axes,) = plots(regression_sections(evaluation))["Prediction"].figure.axes
    x, mean = axes.get_lines()[0].get_xydata().T
    assert (len(x), x[0], x[-1]) == (200, pytest.approx(-1.5), pytest.approx(1.5))
    np.testing.assert_allclose(mean, 2 * x + 1, atol=0.11 * 1.5)
    for band, deviation in zip(axes.collections, (np.sqrt(x**2 + 0.25), np.abs(x))):
        vertices = band.get_paths()[0].vertices
        for place in (0, 50, 199):
            there = vertices[np.isclose(vertices[:, 0], x[place]), 1]
            expected = 2 * 1.645 * deviation[place]
            assert there.max() - there.min() == pytest.approx(expected, rel=0.08)
    data = axes.get_lines()[1].get_xydata()
    np.testing.assert_array_equal(data, np.stack([points[0][:, 0], points[1]], axis=1))


def test_several_targets_have_a_band_each():
    posterior = delta(nn.Linear(1, 2), likelihoods.Gaussian(scale=1.0), [1.0, -1.0, 0.0, 0.0])
    x = torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None]
    sections = regression_sections(evaluate_regression(posterior, (x, torch.cat((x, -x), 1)), draws=2))
    drawn = plots(sections)
    assert list(drawn)[:2] == ["Prediction of target 0", "Prediction of target 1"]
    slopes = [np.ptp(drawn[f"Prediction of target {i}"].figure.axes[0].get_lines()[1].get_ydata()) for i in (0, 1)]
    assert slopes == [2.0, 2.0]


@pytest.mark.parametrize("same", [True, False])
def test_without_a_line_of_inputs_targets_are_drawn_against_predictions(same):
    """Two inputs, or one that is the same for all rows."""
    inputs = torch.ones(9, 1) if same else torch.eye(9)[:, :2]
    posterior = delta(nn.Linear(inputs.shape[1], 1), likelihoods.Gaussian(scale=1.0), [1.0] * (inputs.shape[1] + 1))
    sections = regression_sections(evaluate_regression(posterior, (inputs, torch.arange(9.0)), draws=2))
    assert list(plots(sections))[:2] == ["Predictions and targets", "Residuals and their predicted size"]


def test_only_some_of_many_rows_are_drawn(line):
    x = torch.linspace(-1, 1, 1000, dtype=torch.float64)[:, None]
    drawn = plots(regression_sections(evaluate_regression(line, (x, x[:, 0]), draws=1)))
    residuals = drawn["Residuals and their predicted size"]
    assert residuals.caption.endswith("600 of 1,000 targets are drawn.")
    assert len(residuals.figure.axes[0].get_lines()[0].get_xdata()) == 600


def test_residuals_are_what_the_target_is_above_its_prediction(line, points):
    x, y = points
    drawn = plots(regression_sections(evaluate_regression(line, points, draws=2)))
    (axes,) = drawn["Residuals and their predicted size"].figure.axes
    std, residuals = axes.get_lines()[0].get_xydata().T
    np.testing.assert_allclose(std, 0.5)
    np.testing.assert_allclose(residuals, y - 2 * x[:, 0] - 1, atol=1e-12)


def test_coverage_curve_is_that_of_the_evaluation(line, points):
    evaluation = evaluate_regression(line, points, draws=2)
    (axes,) = plots(regression_sections(evaluation))["Coverage"].figure.axes
    levels, shares = axes.get_lines()[1].get_xydata().T
    np.testing.assert_allclose(levels, np.arange(1, 20) / 20)
    np.testing.assert_allclose(shares, [evaluation.coverage(level) for level in levels])


def test_counts_have_no_histogram_of_ranks(parsed):
    """Their ranks are steps: a uniform histogram is not what honest predictions have."""
    posterior = delta(nn.Linear(1, 1), likelihoods.Poisson(), [0.0, 1.0])
    sections = regression_sections(evaluate_regression(posterior, (torch.rand(12, 1), torch.arange(12) % 4), draws=2))
    assert "Ranks of the targets" not in plots(sections)
    assert "Coverage" in plots(sections)
    parsed(render(sections, title="Page"))


def test_noise_without_a_variance_has_a_page(parsed):
    """Student's t with 3/2 degrees of freedom: no deviation, hence no residuals to hold against one."""
    likelihood = likelihoods.StudentT(df=1.5, scale=1.0)
    posterior = delta(nn.Linear(2, 1), likelihood, [0.0, 0.0, 0.0])
    inputs = torch.rand(9, 2, generator=torch.Generator().manual_seed(0))
    sections = regression_sections(evaluate_regression(posterior, (inputs, torch.arange(9.0)), draws=2))
    assert [section.title for section in sections] == [
        "At a glance",
        "Can the intervals be trusted?",
        "How it was made",
    ]
    parsed(render(sections, title="Page"))
