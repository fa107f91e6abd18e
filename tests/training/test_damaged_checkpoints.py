"""Checkpoints that are cut short, changed or half written: an error, and the previous one as it was."""

from __future__ import annotations

import contextlib
import resource

import pytest
from torch.testing import assert_close

import bayesprop as bp
from bayesprop.errors import BayespropWarning, CheckpointError
from bayesprop.inference.method import state_tensors
from bayesprop.training import checkpoint as checkpoints
from bayesprop.training.checkpoint import describe_run


def test_a_checkpoint_that_was_cut_short_is_refused(fit, path):
    fit(checkpoint=path)
    content = path.read_bytes()
    for length in (0, 7, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match=f"{path} cannot be read") as caught:
            fit(checkpoint=path, resume=True)
        assert f"received: {length} bytes that are not a complete safetensors file" in str(caught.value)
        assert path.stat().st_size == length  # nothing was trained, nothing overwritten


def test_a_flipped_byte_is_refused_wherever_it_is(model, method, pair, started, path):
    run = describe_run(model(), method(), bp.Data(*pair()))
    content = checkpoints.save(path, started(), run).read_bytes()
    places = range(0, len(content), 29)
    assert len(places) > 100
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 0x10
        path.write_bytes(bytes(damaged))
        here = started(seed=9)
        before = {name: tensor.clone() for name, tensor in state_tensors(here.state).items()}
        with pytest.raises(CheckpointError, match=str(path)):
            checkpoints.load(path, here, run, model().layout)
        assert_close(state_tensors(here.state), before, rtol=0.0, atol=0.0)
    path.write_bytes(content)
    checkpoints.load(path, started(seed=9), run, model().layout)


@contextlib.contextmanager
def room_for(size: int):
    """No file may grow beyond `size` bytes: what writing to a full disk is like."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_fills_up_leaves_the_previous_checkpoint(fit, same, path):
    whole = fit(epochs=4)
    fit(checkpoint=path, epochs=2)
    before = path.read_bytes()
    with room_for(len(before) // 2), pytest.warns(BayespropWarning, match=f"could not write {path}") as caught:
        finished = fit(checkpoint=path, resume=True, epochs=4, checkpoint_every=0)
    assert "room on the disk and permission to write; the previous file is untouched" in str(caught[0].message)
    assert "training goes on without it" in str(caught[-1].message)
    same(finished, whole)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == ["run.ckpt"]
    same(fit(checkpoint=path, resume=True, epochs=4), whole)


def test_a_disk_that_is_full_from_the_start_is_found_out_before_the_first_step(fit, path):
    kinds: list[str] = []
    with room_for(100), pytest.raises(CheckpointError, match="could not write") as caught:
        fit(checkpoint=path, observers=[lambda event: kinds.append(event.kind)])
    assert kinds == ["start", "end"]
    assert "no file was left behind" in str(caught.value)
    assert list(path.parent.iterdir()) == []
    assert kinds[-1] == "end"
