"""Files: what is written comes back exactly."""

from __future__ import annotations

import os
import stat
import time

import pytest
import torch
from torch import Tensor

from bayesprop import storage
from bayesprop.errors import CheckpointError

TENSORS = {
    "float32": torch.arange(6.0).reshape(2, 3),
    "float64": torch.tensor([1.0 / 3.0, -0.0, 1e-300], dtype=torch.float64),
    "float16": torch.tensor([0.5, 65504.0], dtype=torch.float16),
    "bfloat16": torch.tensor([0.5, 3e38], dtype=torch.bfloat16),
    "int64": torch.tensor([-(2**63), 2**63 - 1]),
    "int32": torch.tensor([[7]], dtype=torch.int32),
    "uint8": torch.arange(256, dtype=torch.uint8),
    "bool": torch.tensor([True, False]),
    "complex64": torch.tensor([1.0 + 2.0j]),
    "scalar": torch.tensor(3.5),
    "empty": torch.zeros(0, 4),
    "not numbers": torch.tensor([float("nan"), float("inf"), -float("inf")]),
    "name with ünicode": torch.ones(1),
}
DOCUMENT = {"kind": "test", "numbers": [1, 2.5, None, True], "nested": {"text": "ü\n\"'", "deep": {"x": []}}}


@pytest.fixture
def path(tmp_path):
    return storage.write(tmp_path / "saved.bayes", DOCUMENT, TENSORS)


def same(found: Tensor, expected: Tensor) -> bool:
    """Bit for bit, NaNs too."""
    return (found.dtype, found.shape) == (expected.dtype, expected.shape) and torch.equal(
        found.reshape(-1).view(torch.uint8), expected.contiguous().reshape(-1).view(torch.uint8)
    )


# -- what is written comes back ----------------------------------------------------------------------------------------


def test_everything_comes_back_bit_for_bit(path):
    document, tensors = storage.read(path)
    assert document == DOCUMENT
    assert tensors.keys() == TENSORS.keys()
    assert len(tensors) == 13
    for name, expected in TENSORS.items():
        assert same(tensors[name], expected), name


def test_nothing_at_all_is_a_file_too(tmp_path):
    assert storage.read(storage.write(tmp_path / "x", {}, {})) == ({}, {})


def test_views_of_one_matrix_are_stored_as_tensors_of_their_own(tmp_path):
    """theta is one matrix: its rows share memory, and some lie across it."""
    theta = torch.arange(12.0).reshape(3, 4).requires_grad_()
    named = {
        "row": theta[1],
        "column": theta[:, 2],
        "transposed": theta.T,
        "all": theta,
        "wide": theta[:1].expand(5, 4),
    }
    _, tensors = storage.read(storage.write(tmp_path / "x", {}, named))
    for name, expected in named.items():
        assert torch.equal(tensors[name], expected), name
        assert tensors[name].is_contiguous()
        assert not tensors[name].requires_grad


def test_what_was_read_outlives_its_file(path):
    _, tensors = storage.read(path)
    path.write_bytes(b"\xff" * path.stat().st_size)
    path.unlink()
    assert same(tensors["float32"], TENSORS["float32"])
    tensors["float32"].zero_()  # and may be written into


def test_a_path_of_text_and_a_folder_that_is_not_there_yet(tmp_path):
    target = os.path.join(tmp_path, "new", "folder", "x.bayes")
    assert str(storage.write(target, {"a": 1}, {})) == target
    assert storage.read(target) == ({"a": 1}, {})


def test_a_file_is_replaced_whole(path):
    storage.write(path, {"second": True}, {"t": torch.ones(2)})
    document, tensors = storage.read(path)
    assert document == {"second": True}
    assert tensors.keys() == {"t"}
    assert [entry.name for entry in path.parent.iterdir()] == ["saved.bayes"]


def test_a_file_has_the_permissions_of_any_new_file(tmp_path):
    """So that colleagues can read what is saved in a folder that they share, where the user's mask lets them."""
    for mask in (0o022, 0o077, 0o002):
        before = os.umask(mask)
        try:
            plain = tmp_path / "plain"
            plain.write_bytes(b"")
            saved = storage.write(tmp_path / "saved", {}, {})
        finally:
            os.umask(before)
        assert stat.S_IMODE(saved.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode) == 0o666 & ~mask
        plain.unlink()
        saved.unlink()


@pytest.mark.parametrize("path", ["", ".", "/"])
def test_a_file_needs_a_name(path):
    with pytest.raises(CheckpointError, match="a file needs a name") as caught:
        storage.write(path, {}, {})
    assert f"received: {path!r}" in str(caught.value)
    assert 'write: "folder/name.bayes"' in str(caught.value)


def test_the_digest_covers_text_names_types_shapes_and_numbers():
    tensor = torch.arange(6.0)
    digests = [
        storage.digest("", {"a": tensor}),
        storage.digest("x", {"a": tensor}),
        storage.digest("", {"b": tensor}),
        storage.digest("", {"a": tensor.reshape(2, 3)}),
        storage.digest("", {"a": tensor.view(torch.int32)}),
        storage.digest("", {"a": tensor.flip(0)}),
        storage.digest("", {"a": tensor, "b": tensor}),
        storage.digest("", {}),
    ]
    assert len(set(digests)) == 8
    assert all(len(digest) == 64 for digest in digests)
    assert storage.digest("", {"a": tensor, "b": tensor[:2]}) == storage.digest("", {"b": tensor[:2], "a": tensor})
    assert storage.digest("", {"a": tensor.reshape(2, 3).T}) == storage.digest(
        "", {"a": tensor.reshape(2, 3).T.clone()}
    )
    assert storage.digest("", {}) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # of no bytes


def test_what_a_killed_process_left_behind_is_removed_in_time(path):
    """Half a file of an hour ago is nobody's any more; one of a minute ago may still be written."""
    old, new, other = (
        path.with_name(name) for name in (f".{path.name}.11.part", f".{path.name}.12.part", ".b.13.part")
    )
    for part, age in ((old, 3700.0), (new, 60.0), (other, 3700.0)):
        part.write_bytes(b"half")
        then = time.time() - age
        os.utime(part, (then, then))
    storage.write(path, {}, {})
    assert sorted(entry.name for entry in path.parent.iterdir()) == sorted((path.name, new.name, other.name))
