import numpy as np
import pytest
import torch

from bayesprop.errors import DataError
from bayesprop.metrics.arrays import class_probabilities, floats, integers, paired


def test_whatever_came_becomes_float64():
    for values in ([1, 2], np.array([1, 2], dtype=np.float32), torch.tensor([1, 2])):
        assert floats(values).dtype == torch.float64
    assert floats([0.1]).item() == 0.1
    frozen = np.arange(3.0)[::-1]
    frozen.flags.writeable = False
    assert floats(frozen).tolist() == [2.0, 1.0, 0.0]
    assert not floats(torch.ones(2, requires_grad=True)).requires_grad


def test_columns_of_one_are_paired_and_never_broadcast():
    one, two = paired(torch.zeros(3, 1), np.ones(3), ("predictions", "targets"))
    assert one.shape == two.shape == (3,)
    with pytest.raises(
        DataError, match=r"predictions and targets must have one shape\n  received: \(3, 2\) and \(3,\)"
    ):
        paired(torch.zeros(3, 2), torch.zeros(3), ("predictions", "targets"))
    with pytest.raises(DataError, match=r"received: \(\) and \(3,\)"):
        paired(0.0, torch.zeros(3), ("predictions", "targets"))
    with pytest.raises(DataError, match="at least one row"):
        paired([], [], ("predictions", "targets"))


def test_pixels_become_rows():
    probabilities = torch.softmax(torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0)), dim=1)
    labels = torch.arange(40).reshape(2, 4, 5) % 3
    flat, truth = class_probabilities(probabilities, labels)
    assert flat.shape == (40, 3)
    assert torch.equal(flat[27], probabilities[1, :, 1, 2])
    assert truth[27] == labels[1, 1, 2]


@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        ([0.2, 0.8], [0, 1], r"one column for each class(.|\n)*torch\.stack"),
        ([[0.2, 0.8]], [0, 1], r"received: \(1, 2\) and \(2,\)"),
        ([[0.2, 0.8]], [2], r"labels 2\.\.2 for 2 columns"),
        ([[-2.0, 3.0]], [0], r"row 0 sums to 1, its smallest entry is -2(.|\n)*torch\.softmax"),
        ([[0.5, 0.5], [2.0, 3.0]], [0, 0], r"row 1 sums to 5"),
        (torch.zeros(0, 2), torch.zeros(0), "at least one row"),
    ],
)
def test_what_is_not_probabilities_and_labels(probabilities, labels, message):
    with pytest.raises(DataError, match=message):
        class_probabilities(probabilities, labels)


def test_labels_must_be_indices():
    with pytest.raises(DataError, match=r"classes\.index"):
        integers(np.array(["cat", "dog"]), "labels")
    with pytest.raises(DataError, match="fractions"):
        integers([0.5], "labels")
    assert integers([0.0, 1.0], "labels").dtype == torch.int64
