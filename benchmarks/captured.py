"""Epochs of training on a GPU as benchmarks time them: this library's captured steps, and torch's Adam beside them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import bayesprop as bp
from bayesprop.data import Data
from bayesprop.rng import Rng
from bayesprop.training.capture import Captured
from bayesprop.training.checkpoint import Progress
from bayesprop.training.source import Source
from bayesprop.training.stepping import precision

__all__ = ["Epochs", "dense", "deterministic", "median_step", "ours", "pixels"]

Epochs = Callable[[], Any]


def dense(*widths: int) -> nn.Sequential:
    """A stack of dense layers with ReLU in between."""
    layers: list[nn.Module] = []
    for inputs, outputs in zip(widths, widths[1:], strict=False):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def pixels(rows: int, inputs: int = 784, classes: int = 10) -> tuple[Tensor, Tensor]:
    """Random rows of MNIST's shape, which cost what real ones cost."""
    generator = torch.Generator().manual_seed(0)
    return torch.rand(rows, inputs, generator=generator), torch.randint(classes, (rows,), generator=generator)


def median_step(epoch: Epochs, steps: int, epochs: int) -> float:
    """Microseconds a step: the median over epochs, after one that is not counted."""
    times = []
    for _ in range(epochs + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        epoch()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / steps * 1e6)
    return statistics.median(times[1:])


def ours(
    network: nn.Module, data: tuple[Tensor, Tensor], batch: int, particles: int = 1, *, prior: Any = None, **method: Any
) -> tuple[Epochs, int, str]:
    """This library's captured steps with everything that `fit` does in an epoch; steps of one; how they are taken."""
    model = bp.Model(network, likelihood=bp.likelihoods.Categorical(), prior=prior).to("cuda")
    seeds = Rng.create(0, particles, model.device)
    by = bp.inference.BayesByBackprop(learning_rate=1e-3, **method)
    source = Source(Data(*data), model, batch_size=batch, epochs=600, rng=seeds)
    source.probe()
    bad = torch.full((particles,), 2**62, device="cuda")
    now = Progress(by.init(model, seeds), torch.zeros(particles, dtype=torch.float64, device="cuda"), bad)
    steps = Captured(model, by, source, seeds, precision(model.device, None, True), now)
    reason = steps.prepare(now)
    assert not reason, reason

    def epoch() -> None:
        for _ in steps.epoch(now):
            pass
        now.epoch, now.index = now.epoch + 1, 0

    assert source.count is not None
    return epoch, source.count, steps.description


def deterministic(
    network: nn.Module, data: tuple[Tensor, Tensor], batch: int, *, graph: bool = True
) -> tuple[Epochs, int]:
    """The same network under fused Adam in TF32, the whole step in a graph or not, rows gathered on the device."""
    network, (inputs, targets) = network.cuda().train(), (t.cuda() for t in data)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True, capturable=True)
    loss, order = nn.CrossEntropyLoss(), torch.randperm(len(targets), device="cuda")
    chosen, count = order[:batch].clone(), len(targets) // batch

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        loss(network(inputs[chosen]), targets[chosen]).backward()
        optimizer.step()

    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    run: Callable[[], Any] = step
    if graph:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            step()
        run = captured.replay
    torch.set_float32_matmul_precision("highest")

    def epoch() -> None:
        torch.set_float32_matmul_precision("high")
        for index in range(count):
            chosen.copy_(order[index * batch : (index + 1) * batch])
            run()
        torch.set_float32_matmul_precision("highest")

    return epoch, count
