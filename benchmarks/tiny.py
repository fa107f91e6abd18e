"""A training step of a tiny network on a CPU: two moons, 2-5-5-2 with tanh, hierarchical prior, all 1,000 rows a step.

    python benchmarks/tiny.py --peers PYTHON [--rounds 7]

One setting alone, and 32 settings at once (learning rates, temperatures, seeds), by the steps that `fit` and `sweep`
take. PYTHON is that of an environment that has NumPyro: its SVI with AutoNormal on the same model, all steps in one
`lax.scan`, takes turns with them. A ratio is one of the same round; the median counts.
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
from sklearn.datasets import make_moons
from torch import nn

import bayesprop as bp
from bayesprop.data import Data
from bayesprop.rng import Rng
from bayesprop.training.checkpoint import Progress
from bayesprop.training.source import Source
from bayesprop.training.stepping import OneByOne, precision

ROWS, STEPS, SETTINGS = 1000, 1000, 32


class Ours:
    """Steps as `fit` takes them, for one particle or many."""

    def __init__(self, particles: int) -> None:
        network = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 2))
        prior = bp.priors.Normal(scale=bp.priors.HalfNormal(1.0))
        model = bp.Model(network, likelihood=bp.likelihoods.Categorical(), prior=prior)
        inputs, targets = (torch.as_tensor(part) for part in make_moons(ROWS, noise=0.2, random_state=0))
        rate = torch.logspace(-3, -2, particles) if particles > 1 else 3e-3
        temperature = torch.linspace(0.1, 1.0, particles) if particles > 1 else 1.0
        method = bp.inference.BayesByBackprop(learning_rate=rate, temperature=temperature)
        seeds = Rng.create(0, particles)
        source = Source(Data(inputs.float(), targets), model, batch_size=ROWS, epochs=10**6, rng=seeds)
        source.probe()
        bad = torch.full((particles,), 2**62)
        self.now = Progress(method.init(model, seeds), torch.zeros(particles, dtype=torch.float64), bad)
        self.steps = OneByOne(model, method, source, seeds, precision(model.device, None, True), "as told")
        self.how = method.explain(model)

    def __call__(self) -> float:
        """Milliseconds a step."""
        start = time.perf_counter()
        for _ in range(STEPS):
            for _ in self.steps.epoch(self.now):
                pass
            self.now.epoch, self.now.index = self.now.epoch + 1, 0
        return (time.perf_counter() - start) / STEPS * 1e3


def peer(python: str) -> float:
    """One round of NumPyro in a process of its own, on as many cores."""
    command = [python, str(Path(__file__).with_name("peers.py")), "--peers", "numpyro, tiny", "--steps", str(STEPS)]
    out = subprocess.run(
        command, env={**os.environ, "JAX_PLATFORMS": "cpu"}, capture_output=True, text=True, check=True
    )
    return json.loads(out.stdout.splitlines()[-1])["numpyro, tiny"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peers", metavar="PYTHON", required=True)
    arguments = parser.parse_args()
    one, many = Ours(1), Ours(SETTINGS)
    times: dict[str, list[float]] = {"one setting": [], f"{SETTINGS} settings, each": [], "NumPyro, one setting": []}
    for number in range(arguments.rounds + 1):
        found = one(), many() / SETTINGS, peer(arguments.peers)
        if number:
            for values, value in zip(times.values(), found, strict=True):
                values.append(value)
    theirs = times["NumPyro, one setting"]
    results: dict[str, Any] = {
        name: {
            "milliseconds": statistics.median(values),
            "ratio": statistics.median(a / b for a, b in zip(values, theirs, strict=True)),
            "all": summary(values),
        }
        for name, values in times.items()
    }
    results["how"] = one.how
    for name, value in results.items():
        print(name, value if isinstance(value, str) else {k: v for k, v in value.items() if k != "all"})
    write("tiny", {"network": "2-5-5-2", "rows": ROWS, "steps": STEPS, "rounds": arguments.rounds}, results)


if __name__ == "__main__":
    main()
