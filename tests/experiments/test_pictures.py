import pytest
import torch

from bayesprop.errors import ConfigurationError
from bayesprop.experiments.pictures import PIXELS, load, scaled


def test_the_last_sixth_is_for_choices(data):
    split = load("mnist")
    assert [len(part) for part in (split.train, split.validation, split.test)] == [1000, 200, 597]
    assert split.train.inputs.shape == (1000, 784)
    assert float(split.train.inputs.max()) == pytest.approx(255.0 / 126.0)
    assert split.train.targets.dtype == torch.int64


def test_few_rows_are_the_first_ones(data):
    few, all_of_them = load("fashion_mnist", train=50, held_out=20), load("fashion_mnist")
    for one, other, count in zip(
        (few.train, few.validation, few.test),
        (all_of_them.train, all_of_them.validation, all_of_them.test),
        (50, 20, 20),
    ):
        assert torch.equal(one.inputs, other.inputs[:count])
        assert torch.equal(one.targets, other.targets[:count])


def test_pixels(data):
    raw = load("mnist", "raw").train.inputs
    assert (float(raw.min()), float(raw.max())) == (0.0, 255.0)
    torch.testing.assert_close(load("mnist", "/255").train.inputs, raw / 255.0)
    standard = load("mnist", "standardized")
    assert float(standard.train.inputs.mean()) == pytest.approx(0.0, abs=1e-5)
    assert float(standard.train.inputs.std()) == pytest.approx(1.0, abs=1e-5)
    mean = float(standard.test.inputs.mean())
    assert mean != pytest.approx(0.0, abs=1e-5), "test rows take mean and deviation of the training rows"
    assert PIXELS == ("/126", "/255", "standardized", "raw")


def test_what_is_not_there():
    with pytest.raises(ConfigurationError, match=r"no data set is called 'cifar'\n  expected: mnist, fashion_mnist"):
        load("cifar")
    with pytest.raises(ConfigurationError, match="pixels cannot be scaled by '/2'"):
        scaled(torch.ones(1, 2), "/2", torch.ones(1, 2))


def test_on_another_device(data):
    split = load("mnist", train=10, held_out=5).to(torch.device("meta"))
    assert {part.device.type for part in (split.train, split.validation, split.test)} == {"meta"}
