import numpy as np
import pytest
import torch
from sklearn.calibration import calibration_curve

from bayesprop.errors import ConfigurationError
from bayesprop.metrics import expected_calibration_error, reliability_curve


def two_classes(confidence, right):
    """Rows with the given confidence for class 0, labelled 0 where they are right."""
    confidence = torch.as_tensor(confidence)
    return torch.stack((confidence, 1 - confidence), dim=1), (~torch.as_tensor(right)).long()


def reference(confidence, right, bins):
    """The definition, one row at a time: bins (low, high]."""
    total = 0.0
    for b in range(bins):
        low, high = b / bins, (b + 1) / bins
        inside = [i for i, c in enumerate(confidence) if low < c <= high or (b == 0 and c == 0)]
        if inside:
            gap = abs(np.mean([right[i] for i in inside]) - np.mean([confidence[i] for i in inside]))
            total += len(inside) / len(confidence) * gap
    return total


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_against_the_definition(bins):
    random = np.random.default_rng(1)
    probabilities = random.dirichlet(np.full(3, 0.5), size=400)
    labels = random.integers(0, 3, size=400)
    expected = reference(probabilities.max(1), probabilities.argmax(1) == labels, bins)
    assert expected_calibration_error(probabilities, labels, bins=bins) == pytest.approx(expected, abs=1e-12)


def test_reliability_curve_against_scikit_learn():
    random = np.random.default_rng(2)
    confidence = 0.5 + 0.5 * random.random(500)
    right = random.random(500) < confidence
    curve = reliability_curve(*two_classes(confidence, right), bins=10)
    fraction, mean = calibration_curve(right, confidence, n_bins=10, strategy="uniform")
    full = curve.rows > 0
    np.testing.assert_allclose(curve.accuracy[full], fraction)
    np.testing.assert_allclose(curve.confidence[full], mean)
    assert curve.rows.sum() == 500
    assert bool(curve.accuracy[~full].isnan().all())
    assert len(curve.edges) == 11


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_edge_belongs_to_the_bin_below(dtype):
    edges = torch.tensor([0.6, 0.8, 1.0], dtype=dtype)
    curve = reliability_curve(*two_classes(edges, [True, True, True]), bins=5)
    assert curve.rows.tolist() == [0, 0, 1, 1, 1]


def test_equal_mass_bins_hold_equally_many_rows():
    random = np.random.default_rng(3)
    confidence = 0.5 + 0.5 * random.random(100)
    curve = reliability_curve(*two_classes(confidence, random.random(100) < 0.7), bins=7, binning="mass")
    assert curve.rows.sum() == 100
    assert set(curve.rows.tolist()) <= {14, 15}


def test_equal_mass_does_not_depend_on_the_order_of_rows():
    confidence = torch.tensor([0.6] * 7 + [0.9] * 3)
    right = torch.tensor([True, False] * 5)
    order = torch.tensor([3, 9, 1, 0, 8, 2, 7, 4, 6, 5])
    one = expected_calibration_error(*two_classes(confidence, right), bins=4, binning="mass")
    two = expected_calibration_error(*two_classes(confidence[order], right[order]), bins=4, binning="mass")
    assert one == two
    assert reliability_curve(*two_classes(confidence, right), bins=4, binning="mass").rows.tolist() == [7, 0, 3, 0]


def test_more_bins_than_rows():
    probabilities, labels = two_classes([0.7, 0.8], [True, False])
    assert expected_calibration_error(probabilities, labels, bins=9, binning="mass") == pytest.approx((0.3 + 0.8) / 2)


def test_perfect_calibration_is_zero():
    assert expected_calibration_error(*two_classes([0.75] * 4, [True, True, True, False])) == 0.0


def test_refusals():
    probabilities, labels = two_classes([0.7], [True])
    with pytest.raises(ConfigurationError, match="1 or more"):
        expected_calibration_error(probabilities, labels, bins=0)
    with pytest.raises(ConfigurationError, match='"width" or "mass"'):
        reliability_curve(probabilities, labels, binning="equal")  # pyright: ignore[reportArgumentType]
