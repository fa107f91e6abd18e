import itertools

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from bayesprop.errors import DataError
from bayesprop.metrics import auroc, risk_coverage


@pytest.mark.parametrize("levels", [3, 1000])
def test_auroc_against_scikit_learn_with_and_without_ties(levels):
    random = np.random.default_rng(0)
    scores = random.integers(0, levels, size=500) / levels
    positives = random.random(500) < scores * 0.5 + 0.2
    assert auroc(scores, positives) == pytest.approx(roc_auc_score(positives, scores), abs=1e-12)


def test_auroc_of_scores_that_say_nothing_or_everything():
    assert auroc([1.0, 1.0, 1.0], [0, 1, 1]) == 0.5
    assert auroc([0.0, 1.0, 2.0], [0, 1, 1]) == 1.0
    assert auroc([0.0, -1.0, -2.0], [0, 1, 1]) == 0.0


def test_auroc_refuses_one_class_and_nan():
    with pytest.raises(DataError, match="2 positives and 0 negatives"):
        auroc([0.1, 0.2], [1, 1])
    with pytest.raises(DataError, match="scores that are nan"):
        auroc([0.1, float("nan")], [0, 1])
    with pytest.raises(DataError, match="positives of True and False"):
        auroc([0.1, 0.2], [1, 2])


def test_risk_is_the_running_mean_of_the_loss():
    curve = risk_coverage([0.7, 0.9, 0.8, 0.1], [1.0, 0.0, 0.0, 1.0])
    assert curve.coverage.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert curve.risk.tolist() == pytest.approx([0.0, 0.0, 1 / 3, 0.5])
    assert curve.threshold.tolist() == [0.9, 0.8, 0.7, 0.1]
    assert curve.area == pytest.approx((0 + 0 + 1 / 3 + 0.5) / 4)


def test_ties_are_the_mean_over_all_orders():
    confidence, losses = [0.9, 0.5, 0.5, 0.5, 0.1], [0.2, 1.0, 0.0, 3.0, 0.7]
    curves = []
    for order in itertools.permutations([1, 2, 3]):
        chosen = [losses[i] for i in (0, *order, 4)]
        curves.append(np.cumsum(chosen) / np.arange(1, 6))
    curve = risk_coverage(confidence, losses)
    np.testing.assert_allclose(curve.risk, np.mean(curves, axis=0))
    assert curve.area == pytest.approx(np.mean(curves))


def test_full_coverage_is_the_mean_loss():
    random = torch.Generator().manual_seed(0)
    losses = torch.rand(50, generator=random)
    assert risk_coverage(torch.rand(50, generator=random), losses).risk[-1].item() == pytest.approx(
        losses.mean().item()
    )


def test_risk_coverage_refuses_nan_and_other_lengths():
    with pytest.raises(DataError, match="nan"):
        risk_coverage([0.1, float("nan")], [0, 1])
    with pytest.raises(DataError, match="confidence and losses must have one shape"):
        risk_coverage([0.1, 0.2], [0, 1, 1])
