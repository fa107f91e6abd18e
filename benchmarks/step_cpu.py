"""A training step on a CPU: MLP 784-400-400-10, batch 128, one sample, scale mixture prior, by the side of others.

    python benchmarks/step_cpu.py [--rounds 15] [--peers PYTHON]

The contenders take turns, 100 steps each: this library; the same network under torch's Adam, eager and fused. With
--peers, the Python of another environment, Bayes by Backprop written by hand in JAX (one `lax.scan`, see
step_by_hand.py) runs before and after in a process of its own, and so do the other libraries of peers.py. A ratio is
one of the same round; the median counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import torch
from record import summary, write
from torch import nn

import bayesprop as bp
from bayesprop.data import Data
from bayesprop.rng import Rng
from bayesprop.training.checkpoint import Progress
from bayesprop.training.source import Source
from bayesprop.training.stepping import OneByOne, precision

ROWS, BATCH, SIZES, STEPS = 12_800, 128, (784, 400, 400, 10), 100
MIXTURE = bp.priors.ScaleMixture(0.5, 0.75, 0.1)


def network() -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in zip(SIZES, SIZES[1:], strict=False):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(ROWS, SIZES[0], generator=generator), torch.randint(SIZES[-1], (ROWS,), generator=generator)


class Ours:
    """Epochs as `fit` takes them."""

    def __init__(self) -> None:
        model = bp.Model(network(), likelihood=bp.likelihoods.Categorical(), prior=MIXTURE)
        seeds = Rng.create(0, 1)
        method = bp.inference.BayesByBackprop(learning_rate=1e-3)
        source = Source(Data(*data()), model, batch_size=BATCH, epochs=1000, rng=seeds)
        source.probe()
        bad = torch.full((1,), 2**62)
        self.now = Progress(method.init(model, seeds), torch.zeros(1, dtype=torch.float64), bad)
        self.steps = OneByOne(model, method, source, seeds, precision(model.device, None, True), "as told")
        self.how = method.explain(model)

    def epoch(self) -> None:
        for _ in self.steps.epoch(self.now):
            pass
        self.now.epoch, self.now.index = self.now.epoch + 1, 0


class Deterministic:
    """The same network under torch's Adam."""

    def __init__(self, fused: bool) -> None:
        self.network, (self.inputs, self.targets) = network(), data()
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=1e-3, fused=fused)
        self.loss = nn.CrossEntropyLoss()

    def epoch(self) -> None:
        order = torch.randperm(ROWS)
        for index in range(STEPS):
            rows = order[index * BATCH : (index + 1) * BATCH]
            self.optimizer.zero_grad()
            self.loss(self.network(self.inputs[rows]), self.targets[rows]).backward()
            self.optimizer.step()


def milliseconds(contender: Ours | Deterministic) -> float:
    start = time.perf_counter()
    contender.epoch()
    return (time.perf_counter() - start) / STEPS * 1e3


def by_hand(python: str, epochs: int) -> float:
    """Milliseconds a step in JAX, in a process of its own with as many threads."""
    here = Path(__file__).resolve().parent
    code = (
        "import json, numpy, step_by_hand as b; r = numpy.random.default_rng(0);"
        f"x = r.random(({ROWS}, {SIZES[0]}), dtype=numpy.float32); y = r.integers({SIZES[-1]}, size={ROWS});"
        f"print(json.dumps(b.steps_by_hand('mixture', 1, {epochs}, x, y)))"
    )
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    out = subprocess.run([python, "-c", code], cwd=here, env=environment, capture_output=True, text=True, check=True)
    return json.loads(out.stdout.splitlines()[-1]) / 1e3


def peers(python: str) -> dict[str, float]:
    """Milliseconds a step of other libraries, for those that can be imported there."""
    command = [python, str(Path(__file__).with_name("peers.py")), "--steps", "250"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(out.stdout.splitlines()[-1])
    return {name: value for name, value in found.items() if isinstance(value, float)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--peers", metavar="PYTHON")
    arguments = parser.parse_args()
    contenders = {"bayesprop": Ours(), "Adam, eager": Deterministic(False), "Adam, fused": Deterministic(True)}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    jax = [by_hand(arguments.peers, arguments.rounds)] if arguments.peers else []
    for number in range(arguments.rounds + 1):
        for name, contender in contenders.items():
            found = milliseconds(contender)
            if number:  # the first round compiles and fills caches
                times[name].append(found)
    if arguments.peers:
        jax.append(by_hand(arguments.peers, arguments.rounds))
    eager = times["Adam, eager"]
    results: dict[str, Any] = {
        name: {
            "milliseconds": statistics.median(values),
            "ratio": statistics.median(a / b for a, b in zip(values, eager, strict=True)),
            "all": summary(values),
        }
        for name, values in times.items()
    }
    if jax:
        middle = statistics.fmean(jax)
        results["by hand in JAX"] = {"milliseconds": middle, "ratio": middle / results["Adam, eager"]["milliseconds"]}
        for name, value in peers(arguments.peers).items():
            results[name] = {"milliseconds": value, "ratio": value / results["Adam, eager"]["milliseconds"]}
        results["bayesprop"]["ratio to JAX"] = results["bayesprop"]["milliseconds"] / middle
    results["how"] = contenders["bayesprop"].how  # type: ignore[union-attr]
    for name, value in results.items():
        print(name, value if isinstance(value, str) else {k: v for k, v in value.items() if k != "all"})
    write("step_cpu", {"sizes": SIZES, "batch": BATCH, "rounds": arguments.rounds, "prior": repr(MIXTURE)}, results)


if __name__ == "__main__":
    main()
