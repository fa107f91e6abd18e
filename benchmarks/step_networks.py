"""A training step of larger networks on a GPU: Bayes by Backprop beside the same network trained by Adam.

    python benchmarks/step_networks.py [--networks resnet18,transformer]

Both are captured in CUDA graphs, both multiply in TF32, batch 128; the ratio of the two is what a user pays for a
distribution over the weights. Random inputs of CIFAR's shape and token sequences of length 128.
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

BATCH, ROWS = 128, 128 * 40


class Block(nn.Module):
    """Two convolutions around which the input is carried (He et al. 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.second, self.norm2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.short: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        middle = torch.relu(self.norm(self.first(x)))
        return torch.relu(self.norm2(self.second(middle)) + self.short(x))


def resnet18() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    width = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(width, outputs, stride), Block(outputs, outputs, 1)]
        width = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class Encoder(nn.Module):
    """Two layers of attention over a sequence of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(1000, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.table(x)).mean(1))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "resnet18": (resnet18, lambda: torch.randn(ROWS, 3, 32, 32)),
    "transformer": (Encoder, lambda: torch.randint(1000, (ROWS, 128))),
}


def timed(epoch: Callable[[], Any], repeats: int = 4) -> float:
    """Milliseconds a step: the median over epochs, after one that is not counted."""
    times = []
    for _ in range(repeats + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        epoch()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / (ROWS // BATCH) * 1e3)
    return statistics.median(times[1:])


def deterministic(network: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    network, inputs, targets = network.cuda().train(), inputs.cuda(), targets.cuda()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True, capturable=True)
    loss, order = nn.CrossEntropyLoss(), torch.randperm(ROWS, device="cuda")
    chosen = order[:BATCH].clone()

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        loss(network(inputs[chosen]), targets[chosen]).backward()
        optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def epoch() -> None:
        for index in range(ROWS // BATCH):
            chosen.copy_(order[index * BATCH : (index + 1) * BATCH])
            graph.replay()

    found = timed(epoch)
    torch.set_float32_matmul_precision("highest")
    return found


def ours(network: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, particles: int) -> tuple[float, str]:
    model = bp.Model(network, likelihood=bp.likelihoods.Categorical()).to("cuda")
    seeds = Rng.create(0, particles, model.device)
    method = bp.inference.BayesByBackprop()
    source = Source(Data(inputs, targets), model, batch_size=BATCH, epochs=100, rng=seeds)
    source.probe()
    bad = torch.full((particles,), 2**62, device="cuda")
    now = Progress(method.init(model, seeds), torch.zeros(particles, dtype=torch.float64, device="cuda"), bad)
    steps = Captured(model, method, source, seeds, precision(model.device, None, True), now)
    reason = steps.prepare(now)
    assert not reason, reason

    def epoch() -> None:
        for _ in steps.epoch(now):
            pass
        now.epoch, now.index = now.epoch + 1, 0

    return timed(epoch), steps.description


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    for name in arguments.networks.split(","):
        make, draw = NETWORKS[name]
        torch.manual_seed(0)
        inputs, targets = draw(), torch.randint(10, (ROWS,))
        line: dict[str, Any] = {"deterministic": deterministic(make(), inputs, targets)}
        line["bayesian"], line["how"] = ours(make(), inputs, targets, 1)
        line["deterministic, again"] = deterministic(make(), inputs, targets)
        line["ratio"] = line["bayesian"] / min(line["deterministic"], line["deterministic, again"])
        line["4 particles, each"] = ours(make(), inputs, targets, 4)[0] / 4
        found[name] = line
        print(name, {key: round(v, 3) if isinstance(v, float) else v for key, v in line.items()}, flush=True)
    write("step_networks", {"batch": BATCH, "rows": ROWS}, found)


if __name__ == "__main__":
    main()
