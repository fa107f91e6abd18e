"""Labels of any kind as integers."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from bayesprop.data.labels import encode_labels, find_classes
from bayesprop.errors import DataError


@pytest.mark.parametrize(
    "labels",
    [
        ["dog", "cat", "dog"],
        ("dog", "cat", "dog"),
        np.array(["dog", "cat", "dog"]),
        np.array(["dog", "cat", "dog"], dtype=object),
        np.array([b"dog", b"cat", b"dog"]),
    ],
)
def test_text_becomes_integers_in_sorted_order(labels):
    classes = find_classes(labels)
    assert classes == ["cat", "dog"]
    encoded = encode_labels(labels, classes)
    assert encoded.dtype == torch.int64
    assert encoded.tolist() == [1, 0, 1]


@pytest.mark.parametrize("targets", [[1, 2], [0.5, 1.5], np.array([3, 4]), torch.tensor([1, 2]), []])
def test_numbers_are_no_labels(targets):
    assert find_classes(targets) is None
    assert_array_equal(encode_labels(targets, None).numpy(), np.asarray(targets, dtype=np.float32))


def test_booleans_become_zero_and_one():
    assert encode_labels([True, False], None).tolist() == [1, 0]
    assert encode_labels(torch.tensor([True, False]), None).dtype == torch.int64


def test_the_order_of_the_classes_is_the_users():
    assert encode_labels(["low", "high"], ["low", "mid", "high"]).tolist() == [0, 2]


def test_integer_classes_are_looked_up_by_value():
    assert encode_labels([8, 3, 5], [3, 5, 8]).tolist() == [2, 0, 1]
    assert encode_labels(torch.tensor([[8], [3]]), [3, 5, 8]).tolist() == [[2], [0]]
    assert encode_labels(np.array([8.0, 3.0]), [3, 5, 8]).tolist() == [2, 0]
    assert encode_labels([8], np.array([3, 8])).tolist() == [1]


def test_integers_next_to_text_classes_are_positions():
    assert encode_labels(torch.tensor([0, 1], dtype=torch.uint8), ["cat", "dog"]).tolist() == [0, 1]
    with pytest.raises(DataError, match=r"2 at row 1[\s\S]*an integer from 0 to 1"):
        encode_labels(torch.tensor([0, 2]), ["cat", "dog"])
    with pytest.raises(DataError, match="-1 at row 0"):
        encode_labels([-1], ["cat", "dog"])


def test_an_unseen_label_is_refused_with_the_closest_known_one():
    with pytest.raises(DataError, match=r"'dgo' at row 1 is not one of the classes. Did you mean 'dog'\?"):
        encode_labels(["cat", "dgo"], ["cat", "dog"])
    with pytest.raises(DataError, match=r"one of \[3, 5\]"):
        encode_labels([4], [3, 5])


def test_a_long_list_of_classes_is_shortened_in_messages():
    with pytest.raises(DataError, match=r"'9', \.\.\.\]"):
        encode_labels(["x"], [str(i) for i in range(12)])


def test_text_without_classes_says_what_to_write():
    with pytest.raises(DataError, match=r"write: classes=\['cat', 'dog'\]"):
        encode_labels(["dog", "cat"], None)


@pytest.mark.parametrize("missing", [None, float("nan"), 3])
def test_missing_or_mixed_labels_are_refused_by_row(missing):
    with pytest.raises(DataError, match=r"partly text[\s\S]*at row 1"):
        find_classes(np.array(["cat", missing], dtype=object))


def test_a_class_listed_twice_is_refused():
    with pytest.raises(DataError, match="listed twice"):
        encode_labels(["a"], ["a", "a"])
