"""A training step of larger networks on a GPU: Bayes by Backprop beside the same network trained by Adam.

    python benchmarks/step_networks.py [--networks resnet18,transformer]

Both are captured in CUDA graphs, both multiply in TF32, batch 128; the ratio of the two is what a user pays for a
distribution over the weights. Random inputs of CIFAR's shape and token sequences of length 128.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from captured import deterministic, median_step, ours
from record import write
from torch import nn

BATCH, ROWS, REPEATS = 128, 128 * 40, 4


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    for name in arguments.networks.split(","):
        make, draw = NETWORKS[name]
        torch.manual_seed(0)
        data = draw(), torch.randint(10, (ROWS,))

        def adam(make: Callable[[], nn.Module] = make, data: Any = data) -> float:
            return median_step(*deterministic(make(), data, BATCH), REPEATS) / 1e3

        def bayesian(particles: int, make: Callable[[], nn.Module] = make, data: Any = data) -> tuple[float, str]:
            epoch, steps, how = ours(make(), data, BATCH, particles)
            return median_step(epoch, steps, REPEATS) / 1e3, how

        line: dict[str, Any] = {"deterministic": adam()}
        line["bayesian"], line["how"] = bayesian(1)
        line["deterministic, again"] = adam()
        line["ratio"] = line["bayesian"] / min(line["deterministic"], line["deterministic, again"])
        line["4 particles, each"] = bayesian(4)[0] / 4
        found[name] = line
        print(name, {key: round(v, 3) if isinstance(v, float) else v for key, v in line.items()}, flush=True)
    write("step_networks", {"batch": BATCH, "rows": ROWS}, found)


if __name__ == "__main__":
    main()
