"""The cost of pruning where each network on the way is known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.decisions import PrunedScore, pruning_curve
from bayesprop.errors import DataError
from bayesprop.posteriors import Delta, DiagonalGaussian


def gaussian(network, likelihood, mean, std, **context):
    model = bp.Model(network.double(), likelihood=likelihood)
    rows = [torch.tensor([values], dtype=torch.float64) for values in (mean, std)]
    return DiagonalGaussian(model, *rows, {}, bp.posteriors.Context(**context))


def test_scores_of_quantities_are_those_of_the_pruned_line():
    """y = 2 x1 + x2 exactly: without x2's weight the error is |x2|, without both it is |y|."""
    line = gaussian(nn.Linear(2, 1, bias=False), likelihoods.Gaussian(0.5), [2.0, 1.0], [1e-9, 1e-9])
    x = torch.tensor([[1.0, 1.0], [1.0, -1.0], [0.0, 1.0]], dtype=torch.float64)
    y = x @ torch.tensor([[2.0], [1.0]], dtype=torch.float64)
    curve = pruning_curve(line, (x, y), (0.0, 0.5, 1.0), by=("magnitude",), draws=3)
    assert [(score.by, score.share, score.left) for score in curve] == [
        ("magnitude", 0.0, 2),
        ("magnitude", 0.5, 1),
        ("magnitude", 1.0, 0),
    ]
    expected = [0.0, 1.0, math.sqrt((9 + 1 + 1) / 3)]
    assert [score.at_means for score in curve] == pytest.approx(expected, abs=1e-8)
    assert [score.by_draws for score in curve] == pytest.approx(expected, abs=1e-8)
    constant = 0.5 * math.log(2 * math.pi * 0.25)
    assert [score.nll for score in curve] == pytest.approx([constant + e * e / 0.5 for e in expected], abs=1e-6)


def test_classes_by_name_and_draws_apart_from_means():
    """The means are always right; the draws of one weight that is pure noise are right half of the time each."""
    posterior = gaussian(
        nn.Linear(2, 2, bias=False),
        likelihoods.Categorical(),
        [-1.0, 1e-6, 1.0, 0.0],
        [1e-6, 1e4, 1e-6, 1e-6],
        classes=["left", "right"],
    )
    x = torch.tensor([[-1.0, 1.0], [1.0, 1.0]] * 20, dtype=torch.float64)
    labels = ["left", "right"] * 20
    curve = pruning_curve(posterior, (x, labels), (0.0, 0.5), draws=1)
    assert [score.by for score in curve] == ["signal_to_noise"] * 2 + ["magnitude"] * 2
    assert [score.at_means for score in curve] == [0.0] * 4
    assert [score.by_draws for score in curve] == [0.5, 0.0, 0.5, 0.0]


def test_a_population_is_scored_as_a_mixture():
    model = bp.Model(nn.Linear(1, 1, bias=False).double(), likelihood=likelihoods.Gaussian(0.5))
    both = Delta(model, torch.tensor([[1.0], [3.0]], dtype=torch.float64), {})
    x = torch.ones(4, 1, dtype=torch.float64)
    (whole, empty) = pruning_curve(both, (x, 2 * x), (0.0, 1.0), by=("magnitude",))
    assert isinstance(whole, PrunedScore)
    assert_close(torch.tensor([whole.at_means, empty.at_means]), torch.tensor([0.0, 2.0]))
    assert (whole.left, empty.left) == (1, 0)


def test_a_stream_is_refused():
    line = gaussian(nn.Linear(1, 1, bias=False), likelihoods.Gaussian(0.5), [1.0], [1.0])
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(4, 1), torch.ones(4, 1)))
    with pytest.raises(DataError, match="a pruning curve needs all rows at once"):
        pruning_curve(line, loader)
