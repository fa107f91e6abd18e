"""Peak memory of training: Bayes by Backprop in units of the same network under torch's Adam.

    python benchmarks/memory.py [--width 2048] [--device cpu]

MLP 784-width-width-10, batch 128, one sample, 20 steps. Each contender runs in a process of its own, which takes its
memory before the first step (torch, the data) and at the peak; the difference counts, the median of five processes. On
a GPU torch's own count.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import torch
from record import write
from torch import nn

import bayesprop as bp

STEPS, BATCH, PROCESSES = 20, 128, 5
CONTENDERS = ("adam", "bayesprop")


def network(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )  # fmt: skip


def resident(device: str, peak: bool) -> int:
    """Bytes now, or at their peak."""
    if device != "cpu":
        return torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()
    if peak:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def train(contender: str, width: int, device: str) -> int:
    """Bytes that a training takes beyond what was there before it."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(STEPS * BATCH, 784, generator=generator).to(device)
    targets = torch.randint(10, (STEPS * BATCH,), generator=generator).to(device)
    warm = bp.Model(nn.Linear(784, 10), likelihood=bp.likelihoods.Categorical()).to(device)
    bp.fit(warm, (inputs[:256], targets[:256]), epochs=1, progress=False)  # libraries and native code are loaded
    before = resident(device, False)
    if contender == "adam":
        made, loss = network(width).to(device), nn.CrossEntropyLoss()
        optimizer = torch.optim.Adam(made.parameters())
        for index in range(STEPS):
            rows = slice(index * BATCH, (index + 1) * BATCH)
            optimizer.zero_grad()
            loss(made(inputs[rows]), targets[rows]).backward()
            optimizer.step()
    else:
        made = network(width)
        model = bp.Model(made, likelihood=bp.likelihoods.Categorical()).to(device)
        del made
        before = resident(device, False) - sum(p.numel() * 4 for p in network(width).parameters())
        bp.fit(model, (inputs, targets), epochs=1, batch_size=BATCH, progress=False)
    return resident(device, True) - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--contender", choices=CONTENDERS)
    arguments = parser.parse_args()
    if arguments.contender:
        print(json.dumps(train(arguments.contender, arguments.width, arguments.device)))
        return
    seen: dict[str, list[int]] = {name: [] for name in CONTENDERS}
    for _ in range(PROCESSES):
        for name, values in seen.items():
            command = [sys.executable, __file__, *sys.argv[1:], "--contender", name]
            out = subprocess.run(command, capture_output=True, text=True, check=True)
            values.append(json.loads(out.stdout.splitlines()[-1]))
    found = {name: statistics.median(values) for name, values in seen.items()}
    weights = sum(p.numel() for p in network(arguments.width).parameters())
    results = {
        "ratio": found["bayesprop"] / found["adam"],
        **{f"{name}, bytes a weight": value / weights for name, value in found.items()},
        **{f"{name}, each": [value / weights for value in values] for name, values in seen.items()},
        "weights": weights,
    }
    print(results)
    write("memory", {"width": arguments.width, "batch": BATCH, "device": arguments.device}, results)


if __name__ == "__main__":
    main()
