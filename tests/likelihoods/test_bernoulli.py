import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.testing import assert_close

from bayesprop.errors import DataError
from bayesprop.likelihoods import Bernoulli, Categorical


def test_log_prob_is_minus_the_binary_cross_entropy():
    logits = torch.randn(8, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 30
    labels = torch.arange(8) % 2
    expected = -binary_cross_entropy_with_logits(logits, labels.double(), reduction="none")
    assert_close(Bernoulli().log_prob(logits, labels, {}), expected)
    assert_close(Bernoulli().log_prob(logits[:, None], labels, {}), expected)


def test_one_logit_is_categorical_with_a_logit_of_zero_for_class_0():
    logits = torch.tensor([-3.0, 0.5, 2.0])
    two = torch.stack((torch.zeros(3), logits), dim=1)
    labels = torch.tensor([0, 1, 1])
    assert_close(Bernoulli().log_prob(logits, labels, {}), Categorical().log_prob(two, labels, {}))
    assert_close(Bernoulli().mean(logits, {}), Categorical().mean(two, {}))
    assert_close(Bernoulli().entropy(logits, {}), Categorical().entropy(two, {}))


def test_far_logits_stay_finite():
    logits = torch.tensor([200.0, -200.0])
    assert_close(Bernoulli().log_prob(logits, torch.tensor([0, 1]), {}), torch.tensor([-200.0, -200.0]))
    assert_close(Bernoulli().entropy(logits, {}), torch.zeros(2))


def test_binary_segmentation():
    logits = torch.randn(2, 1, 3, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(24).reshape(2, 3, 4) % 2
    Bernoulli().check(logits, labels)
    assert Bernoulli().log_prob(logits, labels, {}).shape == (2,)
    assert Bernoulli().mean(logits, {}).shape == (2, 2, 3, 4)


@pytest.mark.parametrize("labels", [[False, True], [0.0, 1.0], [0, 1]])
def test_ways_to_say_no_and_yes(labels):
    encoded = Bernoulli().encode(torch.tensor(labels))
    assert encoded.dtype == torch.int64
    assert encoded.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("labels", "write"),
    [
        ([1, 2, 2], "targets - 1"),
        ([-1, 1, 1], r"\(targets \+ 1\) // 2"),
        ([0, 1, 4], r"likelihoods\.Categorical\(\) and a last layer with 5 outputs"),
    ],
)
def test_other_labels(labels, write):
    with pytest.raises(DataError, match=r"needs labels 0 and 1(.|\n)*write: " + write):
        Bernoulli().encode(torch.tensor(labels))


def test_fractions():
    with pytest.raises(DataError, match=r"received: 0\.3 in row 1; values 0\.\.1") as caught:
        Bernoulli().encode(torch.tensor([0.0, 0.3, 1.0]))
    assert "write" not in str(caught.value)


def test_two_outputs_are_two_classes():
    with pytest.raises(
        DataError, match=r"outputs \(4, 2\) for labels \(4,\)(.|\n)*Categorical\(\), which reads 2 outputs"
    ):
        Bernoulli().check(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]))


def test_several_labels_against_one_output():
    with pytest.raises(DataError, match=r"expected: outputs \(4, 3\)"):
        Bernoulli().check(torch.zeros(4, 1), torch.zeros(4, 3, dtype=torch.int64))
