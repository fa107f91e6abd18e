import numpy as np
import pytest
import torch

from bayesprop import metrics
from bayesprop.errors import DataError
from bayesprop.report.drawing import PALETTE, to_svg
from bayesprop.report.figures import (
    learning_curve,
    reliability_diagram,
    risk_coverage_curve,
    signal_to_noise_histogram,
    uncertainty_histogram,
    validation_curve,
    wilson_interval,
)

from .conftest import HISTORY


def curves(axes):
    """Label -> points of every line that the legend names."""
    return {line.get_label(): line.get_xydata() for line in axes.get_lines() if not line.get_label().startswith("_")}


def steps(axes):
    """(values, edges) of the histogram in a panel."""
    (patch,) = axes.patches
    data = patch.get_data()
    return data.values, data.edges


def test_learning_curve_shows_both_terms_and_their_sum():
    (axes,) = learning_curve(HISTORY).axes
    found = curves(axes)
    # -ELBO = 400 / 40 + 50 + 40 at the end, in the legend.
    assert list(found) == ["−ELBO 100", "data misfit 10", "KL 90"]
    total, misfit, divergence = found.values()
    assert len(total) == len(HISTORY)
    np.testing.assert_array_equal(total[:, 0], [entry["epoch"] for entry in HISTORY])
    np.testing.assert_allclose(total[:, 1], misfit[:, 1] + divergence[:, 1], rtol=1e-12)
    np.testing.assert_array_equal(divergence[:, 1], [entry["kl"] for entry in HISTORY])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("epoch", "nats")


def test_learning_curve_is_logarithmic_only_if_it_can_be():
    wide = [{"epoch": i, "log_likelihood": -(10.0**i)} for i in range(4)]
    assert learning_curve(wide).axes[0].get_yscale() == "log"
    narrow = [{"epoch": i, "log_likelihood": -10.0 - i} for i in range(4)]
    assert learning_curve(narrow).axes[0].get_yscale() == "linear"
    dense = [*wide, {"epoch": 4, "log_likelihood": 5.0}]  # densities above 1
    assert learning_curve(dense).axes[0].get_yscale() == "linear"
    assert list(curves(learning_curve(dense).axes[0])) == ["data misfit −5"]


def test_a_learning_curve_without_a_history_is_refused():
    with pytest.raises(DataError) as caught:
        learning_curve([{"epoch": 1}])
    assert str(caught.value).splitlines() == [
        "a learning curve needs the history of a training",
        "  received: 1 entries without a log-likelihood",
        "  expected: posterior.context.history",
    ]


def test_validation_curve():
    upper, lower = validation_curve(HISTORY).axes
    np.testing.assert_allclose(upper.get_lines()[0].get_ydata(), [entry["validation_nll"] for entry in HISTORY])
    np.testing.assert_allclose(lower.get_lines()[0].get_ydata(), [entry["validation_error"] for entry in HISTORY])
    assert (upper.get_ylabel(), lower.get_ylabel()) == ("nats per row", "error")
    assert upper.get_ylim()[0] == lower.get_ylim()[0] == 0


def test_validation_curve_of_quantities():
    history = [{"epoch": i, "validation_nll": 1.0 - i, "validation_rmse": 2.0} for i in range(4)]
    upper, lower = validation_curve(history).axes
    assert lower.get_ylabel() == "RMSE"
    assert upper.get_ylim()[0] < -2, "log-densities above 1 are not cut off"
    (alone,) = validation_curve([{"epoch": 1, "validation_nll": 1.0}]).axes
    assert alone.get_xlabel() == "epoch"


def test_a_validation_curve_without_validation_is_refused():
    with pytest.raises(DataError) as caught:
        validation_curve([{"epoch": 1, "kl": 2.0}])
    assert str(caught.value).splitlines() == [
        "a validation curve needs scores of validation rows",
        "  received: 1 entries without any",
        "  expected: the history of a training with validation rows",
        "  write: bp.fit(model, data, validation=0.1)",
    ]


def test_reliability_diagram_draws_the_bins_that_hold_rows():
    # 8 rows with confidence 0.75, 6 of them right, and 2 rows with confidence 0.95, both right.
    probabilities = torch.tensor([[0.75, 0.25]] * 8 + [[0.95, 0.05]] * 2, dtype=torch.float64)
    labels = torch.tensor([0] * 6 + [1] * 2 + [0] * 2)
    curve = metrics.reliability_curve(probabilities, labels, bins=10)
    upper, lower = reliability_diagram(curve).axes
    diagonal, points = (line.get_xydata() for line in upper.get_lines())
    np.testing.assert_array_equal(diagonal, [[0, 0], [1, 1]])
    np.testing.assert_allclose(points, [[0.75, 0.75], [0.95, 1.0]])
    (intervals,) = upper.collections
    low, high = wilson_interval([0.75, 1.0], [8, 2])
    ends = [segment[:, 1] for segment in intervals.get_segments()]
    np.testing.assert_allclose(ends, np.stack([low, high], axis=1))
    counts, edges = steps(lower)
    assert counts.tolist() == [0, 0, 0, 0, 0, 0, 0, 8, 0, 2]
    np.testing.assert_allclose(edges, np.arange(11) / 10)


def test_wilson_interval_solves_its_quadratic():
    """Both ends x satisfy (p - x)^2 = z^2 x (1 - x) / n: the test of Wilson, turned into an interval."""
    shares, rows = np.array([0.0, 0.1, 0.5, 0.98, 1.0]), np.array([1, 10, 7, 449, 3])
    for z in (1.0, 1.96):
        for end in wilson_interval(shares, rows, z):
            np.testing.assert_allclose((shares - end) ** 2, z * z * end * (1 - end) / rows, rtol=1e-9, atol=1e-15)
            assert ((end >= 0) & (end <= 1)).all()


def test_risk_coverage_curve_leaves_out_what_is_flat():
    losses = torch.zeros(100)
    losses[95:] = 1.0
    curve = metrics.risk_coverage(-torch.arange(100.0), losses)  # the first error at a coverage of 0.96
    (axes,) = risk_coverage_curve({"$a": curve, "b": curve}).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["$a", "b"]
    np.testing.assert_allclose(axes.get_lines()[0].get_xydata(), np.stack([curve.coverage, curve.risk], axis=1))
    assert axes.get_xlim() == (0.9, 1.0)
    assert axes.get_ylim()[0] == 0
    late, early = curve, metrics.risk_coverage(-torch.arange(100.0), losses.flip(0))
    assert risk_coverage_curve({"late": late, "early": early}).axes[0].get_xlim() == (0.0, 1.0)
    nothing = metrics.risk_coverage(-torch.arange(100.0), torch.zeros(100))
    assert risk_coverage_curve({"right": nothing}).axes[0].get_xlim() == (0.0, 1.0)


def test_uncertainty_histogram_has_shares_on_shared_bins():
    groups = {"right": np.array([0.0, 0.1, 0.1, 0.2]), "wrong": [], "$foreign$": torch.tensor([0.8, 1.0])}
    panels = uncertainty_histogram(groups, label="nats", bins=5).axes
    assert [axes.get_title(loc="left") for axes in panels] == ["right: 4 rows", "$foreign$: 2 rows"]
    right, strange = (steps(axes) for axes in panels)
    np.testing.assert_allclose(right[0], [0.75, 0.25, 0, 0, 0])
    np.testing.assert_allclose(strange[0], [0, 0, 0, 0, 1])
    np.testing.assert_allclose(right[1], [0, 0.2, 0.4, 0.6, 0.8, 1.0])
    np.testing.assert_array_equal(right[1], strange[1])
    assert panels[-1].get_xlabel() == "nats"


def test_names_of_groups_are_not_formulas():
    figure = uncertainty_histogram({"$\\frac{1$": np.ones(2)}, label="nats")
    assert ">$\\frac{1$: 2 rows<" in to_svg(figure, "plot-1", "Groups")


def test_uncertainty_that_is_zero_everywhere_can_be_drawn():
    (axes,) = uncertainty_histogram({"certain": np.zeros(3)}, label="nats").axes
    assert axes.get_xlim() == (0.0, 1.0)
    assert steps(axes)[0].sum() == 1


def test_more_groups_than_colours_can_be_drawn():
    panels = uncertainty_histogram({str(i): np.ones(2) for i in range(6)}, label="nats").axes
    assert len(panels) == 6


def test_a_histogram_of_nothing_is_refused():
    with pytest.raises(DataError, match="a histogram needs rows\n  received: only empty groups\n  expected: at least"):
        uncertainty_histogram({"right": []}, label="nats")


def test_signal_to_noise_histogram_counts_every_weight():
    ratios = torch.logspace(-6, 2, 5000, dtype=torch.float64)
    (axes,) = signal_to_noise_histogram(torch.cat((ratios, torch.tensor([0.0, float("inf"), float("nan")])))).axes
    counts, edges = steps(axes)
    assert counts.sum() == 5001, "zero counts, and what is not finite does not"
    np.testing.assert_allclose(edges[[0, -1]], [1e-3, np.quantile(ratios, 0.999)])
    assert counts[0] >= (ratios < 1e-3).sum().item() + 1
    (line,) = axes.get_lines()
    assert set(line.get_xdata()) == {1.0}
    label = axes.xaxis.get_major_formatter()
    assert [label(value, 0) for value in (0.001, 0.01, 1.0)] == ["≤ 0.001", "0.01", "1"]


def test_signal_to_noise_always_shows_the_line_at_one():
    for ratios in (torch.full((10,), 0.01), torch.full((10,), 50.0)):
        low, high = signal_to_noise_histogram(ratios).axes[0].get_xlim()
        assert low <= 0.5
        assert high >= 2.0


def test_weights_without_noise_are_refused():
    with pytest.raises(DataError) as caught:
        signal_to_noise_histogram(torch.tensor([float("inf"), float("nan")]))
    assert str(caught.value).splitlines() == [
        "a signal-to-noise ratio needs weights that have a distribution",
        "  received: 0 finite ratios",
        "  expected: |mean| / std with std > 0",
    ]


def test_curves_differ_in_more_than_their_colour():
    (axes,) = learning_curve(HISTORY).axes
    lines = axes.get_lines()
    assert len({line.get_linestyle() for line in lines}) == len(lines) == 3
    assert {line.get_color() for line in lines} <= {light for light, _dark in PALETTE.values()}
