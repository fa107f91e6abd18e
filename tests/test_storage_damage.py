"""Files that are damaged, of others, or not there: each is an error that says so, and nothing is ever unpickled."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from bayesprop import storage
from bayesprop.errors import CheckpointError


@pytest.fixture
def path(tmp_path):
    return storage.write(tmp_path / "saved.bayes", {"kind": "test", "text": "ü"}, {"theta": torch.arange(500.0)})


def refused(path) -> str:
    """The message with which reading fails."""
    with pytest.raises(CheckpointError) as caught:
        storage.read(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


# -- what is damaged ---------------------------------------------------------------------------------------------------


def test_a_file_cut_short_is_an_error(path):
    whole = path.read_bytes()
    lengths = [*range(0, 40), *range(40, len(whole), 29), len(whole) - 1]
    for length in lengths:
        path.write_bytes(whole[:length])
        message = refused(path)
        assert "cannot be read" in message, length
        assert f"received: {length} bytes that are not a complete safetensors file" in message
        assert "expected: a file that was saved by bayesprop and copied whole" in message
    assert len(lengths) > 80


def test_a_file_with_more_behind_it_is_an_error(path):
    path.write_bytes(path.read_bytes() + b"\0")
    assert "cannot be read" in refused(path)


def test_each_flipped_byte_is_an_error(tmp_path):
    """Every byte of a small file, header and numbers, with one bit and with all bits turned."""
    path = storage.write(tmp_path / "x", {"kind": "test", "n": 3}, {"a": torch.arange(5.0), "b": torch.ones(2, 2)})
    whole = path.read_bytes()
    header = int.from_bytes(whole[:8], "little")
    assert len(whole) == 8 + header + 36
    for place in range(len(whole)):
        for mask in (1 << place % 8, 0xFF):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ mask]) + whole[place + 1 :])
            message = refused(path)
            if place >= 8 + header:
                assert f"{path} is damaged: its checksum does not fit its contents" in message
                assert "take an earlier checkpoint or copy the file again" in message
    path.write_bytes(whole)
    assert storage.read(path)[0] == {"kind": "test", "n": 3}


def test_numbers_that_change_places_are_an_error(tmp_path):
    """Whole tensors exchanged: as a file system may do with blocks."""
    path = storage.write(tmp_path / "x", {}, {"a": torch.zeros(1024), "b": torch.ones(1024)})
    whole = path.read_bytes()
    path.write_bytes(whole[:-8192] + whole[-4096:] + whole[-8192:-4096])
    assert "is damaged" in refused(path)


# -- what is something else --------------------------------------------------------------------------------------------


def test_a_safetensors_file_of_others(tmp_path):
    save_file({"weight": torch.ones(2)}, tmp_path / "model.safetensors")
    message = refused(tmp_path / "model.safetensors")
    assert "is not a file of this library" in message
    assert "received: format None" in message
    assert "expected: format 'bayesprop 1'" in message


def test_a_file_of_a_later_version(tmp_path):
    save_file({}, tmp_path / "x", {"format": "bayesprop 2", "document": "{}", "sha256": "0"})
    message = refused(tmp_path / "x")
    assert "received: format 'bayesprop 2'" in message


@pytest.mark.parametrize("missing", ["document", "sha256"])
def test_a_header_that_lacks_something(tmp_path, missing):
    header = {"format": storage.FORMAT, "document": "{}", "sha256": storage.digest("{}", {})}
    save_file({}, tmp_path / "x", header)
    assert storage.read(tmp_path / "x") == ({}, {})
    del header[missing]
    save_file({}, tmp_path / "x", header)
    assert "is damaged" in refused(tmp_path / "x")


class Evil:
    """What a pickle can do: it runs `open` when it is read."""

    def __init__(self, marker) -> None:
        self.marker = str(marker)

    def __reduce__(self):
        return open, (self.marker, "w")


def test_nothing_is_unpickled(tmp_path, monkeypatch):
    marker = tmp_path / "it ran"
    files = [tmp_path / name for name in ("pickle", "torch", "legacy", "numpy")]
    files[0].write_bytes(pickle.dumps(Evil(marker)))
    torch.save(Evil(marker), files[1])
    torch.save({"theta": torch.ones(2)}, files[2], _use_new_zipfile_serialization=False)
    np.save(tmp_path / "numpy.npy", np.array([Evil(marker)], dtype=object))
    (tmp_path / "numpy.npy").rename(files[3])

    def refuse(*args: object, **options: object) -> None:
        raise AssertionError("something was unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(torch, "load", refuse)
    for file in files:
        assert "cannot be read" in refused(file)
    assert not marker.exists()


@pytest.mark.parametrize("text", ["", "{}", json.dumps({"kind": "test"}), "PK\x03\x04", "\x89HDF", "x" * 10_000])
def test_text_and_other_formats(tmp_path, text):
    (tmp_path / "x").write_text(text)
    assert "cannot be read" in refused(tmp_path / "x")


def test_a_header_that_claims_to_be_enormous(tmp_path):
    (tmp_path / "x").write_bytes((2**62).to_bytes(8, "little") + b"{}")
    assert "cannot be read" in refused(tmp_path / "x")


# -- what is not there -------------------------------------------------------------------------------------------------


def test_a_missing_file_names_its_neighbours(tmp_path):
    assert "(this folder holds no files)" in refused(tmp_path / "none.bayes")
    for name in "gfedcba":
        (tmp_path / name).write_text("")
    (tmp_path / "0").mkdir()
    message = refused(tmp_path / "none.bayes")
    assert message.startswith(f"there is no file {tmp_path / 'none.bayes'}\n")
    assert message.endswith("expected: one that was saved by bayesprop (this folder holds a, b, c, d, e)")


def test_a_missing_folder(tmp_path):
    assert f"(nor is there a folder {tmp_path / 'nowhere'})" in refused(tmp_path / "nowhere" / "x")


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "best.bayes").write_text("")
    message = refused(tmp_path / "run")
    assert message.startswith(f"there is no file {tmp_path / 'run'}, it is a folder\n")
    assert "(this folder holds best.bayes)" in message


def test_below_a_file_there_is_nothing(path):
    assert f"({path} cannot be looked into: Not a directory)" in refused(path / "below")
