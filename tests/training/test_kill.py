"""A process that is killed with SIGKILL while it trains or writes loses what came after its checkpoint, and no more."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from bayesprop import storage

# The program that trains; the test runs the same file for the training that nothing happens to.
PROGRAM = """
import os
import signal
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesprop as bp
from bayesprop import inference


def data(kind):
    inputs = torch.randn(24, 3, generator=torch.Generator().manual_seed(1))
    dataset = TensorDataset(inputs, torch.sin(inputs[:, 0]))
    return DataLoader(dataset, batch_size=8, shuffle=True) if kind == "loader" else dataset


def train(kind, **arguments):
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 1))
    model = bp.Model(network, likelihood=bp.likelihoods.Gaussian(0.3), prior=bp.priors.Normal())
    how = inference.BayesByBackprop(
        learning_rate=1e-2, optimizer="momentum" if kind == "loader" else "adam", schedule=inference.Cosine(0.1)
    )
    settings = {"epochs": 4, "batch_size": 8, "seed": 3, "starts": 1, "report_every": 1, "progress": False}
    return bp.fit(model, data(kind), how, **{**settings, **arguments})


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def in_the_middle_of_training(event):
    if event.kind == "step" and event.step == 8:
        kill()


def in_the_middle_of_writing():
    replace, calls = os.replace, []

    def stop(source, target):
        calls.append(target)
        kill() if len(calls) == 7 else replace(source, target)

    os.replace = stop


if __name__ == "__main__":
    path, kind, when = sys.argv[1:]
    if when == "writing":
        in_the_middle_of_writing()
    train(kind, checkpoint=path, checkpoint_every=0, observers=[in_the_middle_of_training])
"""


# What makes the data, when the process is killed, and the step of its last complete checkpoint.
RUNS = {"rows": ("training", 8), "loader": ("training", 8), "rows while writing": ("writing", 5)}


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> SimpleNamespace:
    """The program, and the folders of processes that trained at the same time until they were killed."""
    path = tmp_path_factory.mktemp("program") / "program.py"
    path.write_text(PROGRAM)
    folders, running = {}, {}
    for kind, (when, _) in RUNS.items():
        folders[kind] = tmp_path_factory.mktemp(kind)
        command = [sys.executable, str(path), str(folders[kind] / "run.ckpt"), kind, when]
        running[kind] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for process in running.values():
        _, errors = process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL, errors
    return SimpleNamespace(folders=folders, **runpy.run_path(str(path)))


@pytest.mark.parametrize("kind", list(RUNS))
def test_what_was_killed_goes_on_bit_for_bit(killed, same, kind):
    """Dropout, batch statistics, a schedule and the optimiser's moments; rows in memory with Adam, a DataLoader with
    momentum."""
    (when, step), checkpoint = RUNS[kind], killed.folders[kind] / "run.ckpt"
    document, tensors = storage.read(checkpoint)
    assert document["place"]["step"] == step
    assert sum(name.startswith("state.moments/") for name in tensors) == (2 if kind == "loader" else 4)
    # A process that cannot tidy up leaves the half of a file behind, beside the whole one.
    left = [name for name in os.listdir(checkpoint.parent) if name.endswith(".part")]
    assert len(left) == (when == "writing")
    whole, resumed = killed.train(kind), killed.train(kind, checkpoint=checkpoint, resume=True)
    same(resumed, whole)
    inputs = killed.data("rows").tensors[0]
    torch.testing.assert_close(resumed.predict(inputs, 5).mean, whole.predict(inputs, 5).mean, rtol=0.0, atol=0.0)
