import math

import pytest
import torch

from bayesprop.errors import DataError
from bayesprop.likelihoods import Gaussian
from bayesprop.likelihoods.regression import check_shapes, finite_targets

GAUSSIAN = Gaussian(scale=1.0)


def test_targets_become_floats_and_keep_float64():
    assert finite_targets([1, 2], GAUSSIAN).dtype == torch.float32
    assert finite_targets(torch.zeros(2, dtype=torch.float64), GAUSSIAN).dtype == torch.float64
    assert finite_targets(torch.zeros(2, dtype=torch.bool), GAUSSIAN).dtype == torch.float32


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_the_row_of_a_missing_target_is_named(value):
    targets = torch.zeros(5, 2)
    targets[3, 1] = value
    with pytest.raises(
        DataError, match=rf"received: {value} in row 3; 1 such row in all\n(.|\n)*keep = torch\.isfinite"
    ):
        finite_targets(targets, GAUSSIAN)


def test_several_missing_targets_are_counted():
    with pytest.raises(DataError, match="nan in row 0; 2 such rows in all"):
        finite_targets([math.nan, 1.0, math.nan], GAUSSIAN)


def test_complex_targets():
    with pytest.raises(DataError, match=r"write: targets\.real"):
        finite_targets(torch.zeros(2, dtype=torch.complex64), GAUSSIAN)


@pytest.mark.parametrize(
    ("outputs", "targets"), [((4,), (4,)), ((4, 1), (4,)), ((4,), (4, 1)), ((4, 3), (4, 3)), ((4, 5, 1), (4, 5))]
)
def test_shapes_that_fit(outputs, targets):
    assert check_shapes(GAUSSIAN, torch.zeros(outputs), torch.zeros(targets)) is None


def test_several_outputs_for_one_target_are_never_broadcast():
    with pytest.raises(
        DataError, match=r"outputs \(4, 3\) for targets \(4,\)(.|\n)*write: a last layer with 1 output$"
    ):
        check_shapes(GAUSSIAN, torch.zeros(4, 3), torch.zeros(4))


def test_as_many_rows_as_outputs_are_refused_too():
    with pytest.raises(DataError, match=r"outputs \(4, 4\) for targets \(4,\)"):
        check_shapes(GAUSSIAN, torch.zeros(4, 4), torch.zeros(4))


def test_twice_the_outputs_may_mean_scales():
    with pytest.raises(DataError, match=r"a last layer with 1 output, or likelihoods\.HeteroscedasticGaussian\(\)"):
        check_shapes(GAUSSIAN, torch.zeros(4, 2), torch.zeros(4))


def test_one_output_for_several_targets():
    with pytest.raises(DataError, match=r"write: a last layer with 3 outputs"):
        check_shapes(GAUSSIAN, torch.zeros(4, 1), torch.zeros(4, 3))


def test_outputs_without_rows():
    with pytest.raises(DataError, match=r"one row for each row of the inputs"):
        check_shapes(GAUSSIAN, torch.zeros(()), torch.zeros(4))
