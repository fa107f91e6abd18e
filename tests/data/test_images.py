"""MNIST and Fashion-MNIST from tiny files."""

import dataclasses
import gzip
import hashlib

import numpy as np
import pytest
import torch

from bayesprop.data import Images, fashion_mnist, images, mnist
from bayesprop.data.images import read_idx
from bayesprop.errors import DataError


def idx(array):
    head = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return head + array.tobytes()


def write(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(idx(array)))
    return path


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A data folder with five training and two test images, and the checksums of these."""
    generator = np.random.default_rng(0)
    arrays = [
        generator.integers(0, 256, (5, 28, 28), dtype=np.uint8),
        np.array([3, 1, 4, 1, 5], dtype=np.uint8),
        generator.integers(0, 256, (2, 28, 28), dtype=np.uint8),
        np.array([9, 2], dtype=np.uint8),
    ]
    for name, constant in (("mnist", "_MNIST_SHA256"), ("fashion_mnist", "_FASHION_SHA256")):
        paths = [write(tmp_path / name / file, array) for file, array in zip(images._FILES, arrays, strict=True)]
        sums = tuple(hashlib.sha256(path.read_bytes()).hexdigest() for path in paths)
        monkeypatch.setattr(images, constant, sums)
    return tmp_path, arrays


@pytest.mark.parametrize("load", [mnist, fashion_mnist])
def test_pixels_and_labels(tiny, load):
    folder, arrays = tiny
    found = load(folder)
    assert isinstance(found, Images)
    assert found.name == load.__name__
    assert isinstance(found.train.inputs, torch.Tensor)
    assert found.train.inputs.dtype == torch.uint8
    assert found.train.inputs.shape == (5, 1, 28, 28)
    np.testing.assert_array_equal(found.train.inputs[:, 0].numpy(), arrays[0])
    assert found.train.targets.tolist() == [3, 1, 4, 1, 5]
    assert found.test.targets.tolist() == [9, 2]
    assert found.test.targets.dtype == torch.int64


def test_names_of_classes(tiny):
    folder, _ = tiny
    assert mnist(folder).train.classes is None
    classes = fashion_mnist(folder).test.classes
    assert classes is not None
    assert (len(classes), classes[0], classes[9]) == (10, "T-shirt/top", "Ankle boot")


def test_the_folder_setting_is_used(tiny, monkeypatch):
    folder, _ = tiny
    monkeypatch.setenv("BAYESPROP_DATA", str(folder))
    assert mnist().train.num_data == 5


def test_images_are_frozen(tiny):
    found = mnist(tiny[0])
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.train = found.test  # type: ignore[misc]


def test_a_damaged_file_is_refused(tiny):
    folder, _ = tiny
    path = folder / "mnist" / images._FILES[0]
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte.gz is damaged"):
        mnist(folder)


def test_the_written_checksums_are_eight_different_ones():
    sums = images._MNIST_SHA256 + images._FASHION_SHA256
    assert len(set(sums)) == 8
    assert all(len(bytes.fromhex(value)) == 32 for value in sums)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 4)])
def test_idx_of_any_dimension(tmp_path, shape):
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    np.testing.assert_array_equal(read_idx(write(tmp_path / "x.gz", array)).numpy(), array)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no gzip at all", "not a whole gzip file"),
        (gzip.compress(idx(np.zeros((2, 2), np.uint8)))[:-6], "not a whole gzip file"),
        (gzip.compress(idx(np.zeros((2, 2), np.uint8))[:-1]), "not an idx file of bytes"),
        (gzip.compress(b"\x00\x00\x0d\x01\x00\x00\x00\x00"), "begin with 00000d01"),
        (gzip.compress(b""), "0 bytes"),
    ],
    ids=["no gzip", "gzip cut short", "array cut short", "other type", "empty"],
)
def test_files_that_are_not_idx(tmp_path, content, message):
    path = tmp_path / "x.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_idx(path)
