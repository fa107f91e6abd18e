import math

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

from bayesprop import metrics
from bayesprop.errors import DataError

RANDOM = np.random.default_rng(0)
PROBABILITIES = RANDOM.dirichlet(np.ones(4), size=300)
LABELS = RANDOM.integers(0, 4, size=300)


def test_the_package_lists_its_scores_in_order():
    assert metrics.__all__ == sorted(metrics.__all__)
    assert len(metrics.__all__) == 16


@pytest.mark.parametrize("convert", [torch.from_numpy, np.asarray, np.ndarray.tolist])
def test_against_scikit_learn(convert):
    probabilities, labels = convert(PROBABILITIES), convert(LABELS)
    right = accuracy_score(LABELS, PROBABILITIES.argmax(1))
    assert metrics.accuracy(probabilities, labels) == pytest.approx(right)
    assert metrics.error(probabilities, labels) == pytest.approx(1 - right)
    assert metrics.negative_log_likelihood(probabilities, labels) == pytest.approx(log_loss(LABELS, PROBABILITIES))


def test_brier_of_two_classes_is_twice_that_of_one():
    two = np.stack((1 - PROBABILITIES[:, 0], PROBABILITIES[:, 0]), axis=1)
    labels = LABELS % 2
    assert metrics.brier(two, labels) == pytest.approx(2 * brier_score_loss(labels, two[:, 1]))


def test_brier_between_0_and_2():
    assert metrics.brier([[1.0, 0.0, 0.0]], [0]) == 0.0
    assert metrics.brier([[1.0, 0.0, 0.0]], [1]) == 2.0


def test_predicted_labels_work_for_accuracy():
    assert metrics.accuracy(torch.tensor([1, 0, 2]), np.array([1, 0, 0])) == pytest.approx(2 / 3)
    with pytest.raises(DataError, match=r"one predicted label for each label"):
        metrics.accuracy(torch.tensor([1, 0, 2]), torch.tensor([[1], [0], [2]]))


def test_a_label_that_was_impossible_costs_infinity():
    assert metrics.negative_log_likelihood([[1.0, 0.0]], [1]) == math.inf


def test_float32_probabilities_are_averaged_in_float64():
    count = 2**25  # float32 stops counting at 2^24
    probabilities = torch.tensor([[0.75, 0.25]]).expand(count, 2)
    assert metrics.brier(probabilities[: 2**18], torch.zeros(2**18, dtype=torch.int64)) == pytest.approx(
        0.125, rel=1e-12
    )
