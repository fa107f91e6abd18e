import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from bayesprop.errors import DataError
from bayesprop.likelihoods import Categorical


def test_log_prob_is_minus_the_cross_entropy():
    logits = torch.randn(8, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 30
    labels = torch.arange(8) % 5
    assert_close(Categorical().log_prob(logits, labels, {}), -cross_entropy(logits, labels, reduction="none"))


def test_segmentation_sums_over_pixels():
    logits = torch.randn(2, 5, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.arange(24).reshape(2, 3, 4) % 5
    Categorical().check(logits, labels)
    expected = -cross_entropy(logits, labels, reduction="none").sum((1, 2))
    assert_close(Categorical().log_prob(logits, labels, {}), expected)
    assert_close(Categorical().log_prob(logits, labels[:, None], {}), expected)  # masks often are (n, 1, h, w)
    assert Categorical().mean(logits, {}).shape == (2, 5, 3, 4)
    assert Categorical().entropy(logits, {}).shape == (2, 3, 4)
    assert Categorical().sample(logits, {}).shape == (2, 3, 4)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.bool])
def test_integer_labels_of_any_dtype(dtype):
    encoded = Categorical().encode(torch.tensor([0, 1, 1]).to(dtype))
    assert encoded.dtype == torch.int64
    assert encoded.tolist() == [0, 1, 1]
    assert Categorical().encode([2, 0]).tolist() == [2, 0]


def test_label_beyond_the_outputs():
    labels = torch.tensor([0, 3, 10, 2])
    with pytest.raises(DataError) as caught:
        Categorical().check(torch.zeros(4, 10), labels)
    message = str(caught.value)
    assert "the label 10 for a network with 10 outputs" in message
    assert "labels 0..10; the first that is too high is in row 2" in message
    assert "expected: labels 0..9" in message
    assert "write: a last layer with 11 outputs" in message


def test_a_label_behind_the_rows_of_the_first_look_is_found():
    with pytest.raises(DataError, match="the first that is too high is in row 3"):
        Categorical().check(torch.zeros(2, 3), torch.tensor([0, 1, 2, 7]))


def test_labels_that_count_from_one():
    with pytest.raises(DataError, match=r"yours seem to count from 1\n  write: targets - 1"):
        Categorical().check(torch.zeros(3, 3), torch.tensor([1, 2, 3]))


def test_negative_label():
    with pytest.raises(DataError, match=r"negative value\n  received: -1 in row 2(.|\n)*targets >= 0"):
        Categorical().encode(torch.tensor([0, 1, -1]))


def test_float_labels():
    with pytest.raises(DataError, match=r"whole numbers(.|\n)*torch.float32 targets\n(.|\n)*write: targets\.long\(\)"):
        Categorical().encode(torch.tensor([0.0, 1.0]))
    with pytest.raises(DataError, match=r"torch.float64 targets such as 0\.25\n(.|\n)*likelihoods\.Gaussian\(\)"):
        Categorical().encode(torch.tensor([0.25, 1.0], dtype=torch.float64))


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_one_logit(shape):
    with pytest.raises(DataError, match=r"softmax over one output is always 1(.|\n)*likelihoods\.Bernoulli\(\)"):
        Categorical().check(torch.zeros(shape), torch.tensor([0, 1, 0, 1]))


def test_one_hot_labels():
    with pytest.raises(DataError, match=r"not one column for each class(.|\n)*write: targets\.argmax\(dim=1\)"):
        Categorical().check(torch.zeros(2, 3), torch.tensor([[0, 1, 0], [1, 0, 0]]))


def test_classes_in_the_last_dimension():
    with pytest.raises(
        DataError, match=r"classes in dimension 1(.|\n)*outputs \(n, 5, 7\)\n  write: outputs\.movedim\(-1, 1\)"
    ):
        Categorical().check(torch.zeros(2, 7, 5), torch.zeros(2, 7, dtype=torch.int64))


def test_other_shapes():
    with pytest.raises(DataError, match=r"received: outputs \(2, 5, 3\) for labels \(2,\)"):
        Categorical().check(torch.zeros(2, 5, 3), torch.zeros(2, dtype=torch.int64))
