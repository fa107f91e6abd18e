"""Ctrl-C: once ends the training after the step in flight with what was learnt, twice is immediate."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from bayesprop.errors import BayespropWarning
from bayesprop.training.interrupts import Interrupts
from bayesprop.training.observers import Stop


def interrupt_at(step: int, *, times: int = 1, kind: str = "step"):
    """An observer that sends SIGINT to its own process."""

    def send(event) -> None:
        if event.kind == kind and event.step == step:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)

    return send


@pytest.fixture
def handler():
    """A handler of the user's, in whose place the library's own must be put for a while only."""

    def mine(number, frame):
        raise AssertionError("the library should have caught this")

    before = signal.signal(signal.SIGINT, mine)
    yield mine
    assert signal.getsignal(signal.SIGINT) is mine
    signal.signal(signal.SIGINT, before)


def test_what_was_learnt_so_far_is_returned(fit, same, handler):
    """In the middle of the second epoch: what a training ends with that is stopped there, after the step in flight."""
    events = []
    with pytest.warns(BayespropWarning, match="interrupted in epoch 2 of 3; this is what was learnt so far"):
        posterior = fit(observers=[interrupt_at(5), events.append])
    assert [event.kind for event in events] == ["start", *["step"] * 3, "epoch", *["step"] * 2, "end"]
    assert events[-1].step == 5

    def stop(event):
        return Stop if event.kind == "step" and event.step == 5 else None

    same(posterior, fit(observers=[stop]))
    assert [entry["epoch"] for entry in posterior.context.history] == [1]


def test_an_interrupted_training_goes_on(fit, same, tmp_path, handler):
    path = tmp_path / "run.ckpt"
    with pytest.warns(BayespropWarning, match="interrupted in epoch 2 of 3"):
        fit(checkpoint=path, observers=[interrupt_at(4)])
    same(fit(checkpoint=path, resume=True), fit())


def test_between_two_epochs_nothing_of_the_next_one_is_done(fit, same, handler):
    with pytest.warns(BayespropWarning, match="interrupted in epoch 2 of 3"):
        posterior = fit(observers=[interrupt_at(3, kind="epoch")])
    same(posterior, fit(epochs=1))


def test_after_the_last_step_nothing_was_interrupted(fit, same, handler):
    same(fit(observers=[interrupt_at(9, kind="epoch")]), fit())


def test_the_best_state_is_returned_if_there_is_one(fit, pair, handler):
    with pytest.warns(BayespropWarning, match="interrupted in epoch 3 of 3"):
        posterior = fit(validation=pair(), patience=3, observers=[interrupt_at(8)])
    assert len(posterior.context.history) == 2
    expected = fit(validation=pair(), epochs=2)
    assert posterior.mean().equal(expected.mean())


def test_a_second_one_is_immediate(fit, tmp_path, handler):
    kinds = []
    with pytest.raises(KeyboardInterrupt):
        fit(
            checkpoint=tmp_path / "run.ckpt",
            observers=[interrupt_at(5, times=2), lambda event: kinds.append(event.kind)],
        )
    # The other observer was not told of step 5 any more, but of the end.
    assert kinds == ["start", *["step"] * 3, "epoch", "step", "end"]


# -- the context ------------------------------------------------------------------------------------------------------


def test_the_users_handler_comes_back(handler):
    with Interrupts() as interrupts:
        assert not interrupts.requested
        signal.raise_signal(signal.SIGINT)
        assert interrupts.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) != handler
    assert signal.getsignal(signal.SIGINT) is handler


def test_the_users_handler_comes_back_after_an_error(handler):
    with pytest.raises(ValueError, match="inside"), Interrupts():
        raise ValueError("inside")
    assert signal.getsignal(signal.SIGINT) is handler


def test_in_another_thread_there_is_nothing_to_catch(fit, handler):
    found = []

    def train() -> None:
        with Interrupts() as interrupts:
            found.append((signal.getsignal(signal.SIGINT) is handler, interrupts.requested))
        found.append(fit(epochs=1))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert found[0] == (True, False)
    assert found[1].mean().equal(fit(epochs=1).mean())


PROGRAM = """
import sys
import warnings
import torch
from torch import nn
import bayesprop as bp

def told(event):
    if event.kind == "step" and event.step == 3:
        print("training", flush=True)

inputs = torch.randn(24, 3, generator=torch.Generator().manual_seed(1))
model = bp.Model(nn.Linear(3, 1), likelihood=bp.likelihoods.Gaussian(0.3))
how = bp.inference.BayesByBackprop(learning_rate=1e-3)
posterior = bp.fit(model, (inputs, inputs[:, 0]), how, epochs=10**7, batch_size=8, observers=[told], progress=False)
print(type(posterior).__name__, len(posterior.context.history) < 10**5, flush=True)
"""


def test_a_signal_from_outside(tmp_path):
    """As from a terminal: another process is sent SIGINT while it trains, and ends by itself with a posterior."""
    environment = {**os.environ, "PYTHONWARNINGS": "default"}
    command = [sys.executable, "-c", PROGRAM]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout.readline() == "training\n", process.stderr.read()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert output == "DiagonalGaussian True\n"
    assert "BayespropWarning: interrupted in epoch" in errors
