"""Microseconds of a training step on a GPU: MLP 784-400-400-10, batch 128, one sample, by the side of others.

    python benchmarks/step_gpu.py [--particles 1,8,36,108,324] [--epochs 20]

In one run: the deterministic network under fused Adam, eager and in a CUDA graph; Bayes by Backprop written by hand in
JAX (one `lax.scan` over the epoch, `vmap` over models), and this library's captured steps. Data are MNIST's shapes with
random pixels, which cost what real ones cost. Every number is the median of several epochs, each timed as a whole.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from record import write
from torch import nn

import bayesprop as bp
from bayesprop.data import Data
from bayesprop.rng import Rng
from bayesprop.training.capture import Captured
from bayesprop.training.checkpoint import Progress
from bayesprop.training.source import Source
from bayesprop.training.stepping import precision

ROWS, BATCH, SIZES = 50_000, 128, (784, 400, 400, 10)
PRIORS = {"normal": bp.priors.Normal(0.0, 1.0), "mixture": bp.priors.ScaleMixture(0.5, 0.75, 0.1)}


def network() -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in zip(SIZES, SIZES[1:], strict=False):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(ROWS, SIZES[0], generator=generator), torch.randint(SIZES[-1], (ROWS,), generator=generator)


def median_step(epoch: Callable[[], Any], steps: int, epochs: int) -> float:
    """Microseconds a step: the median over epochs, after one that is not counted."""
    times = []
    for _ in range(epochs + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        epoch()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / steps * 1e6)
    return statistics.median(times[1:])


def ours(prior: str, particles: int, epochs: int) -> tuple[float, str]:
    """This library's captured steps, with everything that `fit` does in an epoch."""
    model = bp.Model(network(), likelihood=bp.likelihoods.Categorical(), prior=PRIORS[prior]).to("cuda")
    seeds = Rng.create(0, particles, model.device)
    method = bp.inference.BayesByBackprop(learning_rate=1e-3)
    source = Source(Data(*data()), model, batch_size=BATCH, epochs=600, rng=seeds)
    source.probe()
    bad = torch.full((particles,), 2**62, device="cuda")
    now = Progress(method.init(model, seeds), torch.zeros(particles, dtype=torch.float64, device="cuda"), bad)
    captured = Captured(model, method, source, seeds, precision(model.device, None, True), now)
    reason = captured.prepare(now)
    assert not reason, reason

    def epoch() -> None:
        for _ in captured.epoch(now):
            pass
        now.epoch, now.index = now.epoch + 1, 0

    return median_step(epoch, source.count or 1, epochs), captured.description


def deterministic(graph: bool, epochs: int) -> float:
    """The same network with fused Adam, the whole step in a graph or not, rows gathered on the device."""
    torch.set_float32_matmul_precision("high")
    model, (inputs, targets) = network().cuda(), (t.cuda() for t in data())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True, capturable=True)
    loss, order = nn.CrossEntropyLoss(), torch.randperm(ROWS, device="cuda")
    chosen = order[:BATCH].clone()

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        loss(model(inputs[chosen]), targets[chosen]).backward()
        optimizer.step()

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

    def epoch() -> None:
        for index in range(ROWS // BATCH):
            chosen.copy_(order[index * BATCH : (index + 1) * BATCH])
            run()

    found = median_step(epoch, ROWS // BATCH, min(epochs, 5))
    torch.set_float32_matmul_precision("highest")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--particles", default="1,8,36,108,324")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--by-hand", default="1,8,36,108,324", help="numbers of models that JAX trains, too")
    arguments = parser.parse_args()
    counts, by_hand = ([int(n) for n in text.split(",")] for text in (arguments.particles, arguments.by_hand))
    settings = {"sizes": SIZES, "batch": BATCH, "rows": ROWS, "epochs": arguments.epochs}
    found: dict[str, Any] = {
        "deterministic, eager": deterministic(False, arguments.epochs),
        "deterministic, graph": deterministic(True, arguments.epochs),
    }
    print({name: round(value, 1) for name, value in found.items()}, flush=True)
    for prior in PRIORS:
        for particles in counts:
            epochs = max(3, arguments.epochs // max(1, particles // 4))
            each, how = ours(prior, particles, epochs)
            line = {"per step": each, "per model": each / particles, "how": how}
            if particles in by_hand:
                from step_by_hand import steps_by_hand

                line["by hand in JAX, per model"] = (
                    steps_by_hand(prior, particles, epochs, *(t.numpy() for t in data())) / particles
                )
                line["ratio"] = line["per model"] / line["by hand in JAX, per model"]
            found[f"{prior}, {particles}"] = line
            print(
                prior, particles, {k: round(v, 3) if isinstance(v, float) else v for k, v in line.items()}, flush=True
            )
            write("step_gpu", settings, found)  # after each line: what was measured is not lost


if __name__ == "__main__":
    main()
