"""What a step, a prediction and the memory of each method cost, relative to ordinary training in the same run.

    python benchmarks/method_cost.py [--rounds 15] [--steps 20] [--threads 1]

All methods with their default settings take turns on the same batches: a round is some steps of each, beginning with
the network itself under torch.optim.Adam. Every time is divided by that one's of the same round, and the median over
the rounds is what counts: whatever else the machine does then falls on both. An ensemble has five members, who share a
step. Memory is that of the state, with all samples that a chain will keep. Steps are those of the last tenth of a run
of 10,000, in which samples and snapshots are taken. Predictions are 100 draws for 1,000 rows, relative to one
evaluation of the network; chains have all their samples by then.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
import warnings
from typing import Any

import record
import torch
from torch import nn

import bayesprop as bp
from bayesprop.inference.method import state_tensors
from bayesprop.model import Batch
from bayesprop.rng import Rng

ROWS = 128
PLAIN = "torch.optim.Adam"
NETWORKS = {
    "13-50-1": lambda: nn.Sequential(nn.Linear(13, 50), nn.ReLU(), nn.Linear(50, 1)),
    "784-400-400-10": lambda: nn.Sequential(
        nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10)
    ),
}


class Ordinary:
    """The network without this library: torch.optim.Adam and a loss of torch."""

    def __init__(self, network: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        self.network, self.inputs, self.targets = network, inputs, targets
        self.optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
        self.loss = nn.MSELoss() if targets.is_floating_point() else nn.CrossEntropyLoss()

    def take(self, steps: int) -> float:
        """Seconds for so many steps."""
        started = time.perf_counter()
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.loss(self.network(self.inputs), self.targets).backward()
            self.optimizer.step()
        return time.perf_counter() - started

    def bytes(self) -> int:
        moments = [t for state in self.optimizer.state.values() for t in state.values()]
        return sum(t.numel() * t.element_size() for t in (*self.network.parameters(), *moments))

    @torch.no_grad()
    def predict(self, inputs: torch.Tensor) -> float:
        """Seconds for one evaluation, the best of three."""
        seconds = []
        for _ in range(3):
            started = time.perf_counter()
            assert self.network(inputs).shape[0] == len(inputs)
            seconds.append(time.perf_counter() - started)
        return min(seconds)


def methods() -> dict[str, Any]:
    """Every method of the library with defaults."""
    made = {}
    for entry in bp.methods():
        made[entry.name] = entry.cls(bp.inference.MAP()) if entry.name == "DeepEnsemble" else entry.cls()
    return made


class Training:
    """One method on one network, ready for its next step."""

    def __init__(self, method: Any, model: bp.Model, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        self.method, self.model, self.step = method, model, 0
        self.rng = Rng.create(0, method.population)
        self.state = method.init(model, self.rng)
        wide = (t.expand(method.population, *t.shape) for t in (inputs, targets))
        self.rows = tuple(wide)

    def take(self, steps: int) -> float:
        """Seconds for so many steps."""
        self.model.set_mode(True)
        started = time.perf_counter()
        for _ in range(steps):
            place = {"index": self.step, "count": 1000, "epoch": 9, "epochs": 10, "progress": 0.9 + self.step / 10_000}
            batch = Batch(*self.rows, 100_000, **place)
            self.state, _ = self.method.update(self.model, self.state, batch, self.rng.at(9000 + self.step))
            self.step += 1
        return time.perf_counter() - started

    def bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in state_tensors(self.state).values())

    def predict(self, inputs: torch.Tensor) -> float:
        """Seconds for 100 draws, the best of three."""
        kept = getattr(self.state, "kept", None)
        if kept is not None:
            kept.filled[:] = True  # places that are still empty hold zeros, which cost the same
        posterior = self.method.posterior(self.model, self.state)
        seconds = []
        for _ in range(3):
            started = time.perf_counter()
            assert posterior.predict(inputs, 100).mean.shape[0] == len(inputs)
            seconds.append(time.perf_counter() - started)
        return min(seconds)


def measure(name: str, rounds: int, steps: int) -> dict[str, Any]:
    """Medians for one network."""
    torch.manual_seed(0)
    network = NETWORKS[name]()
    width, outputs = network[0].in_features, network[-1].out_features
    likelihood = bp.likelihoods.Gaussian() if outputs == 1 else bp.likelihoods.Categorical()
    model = bp.Model(network, likelihood=likelihood)
    inputs = torch.randn(ROWS, width)
    targets = torch.randn(ROWS, 1) if outputs == 1 else torch.arange(ROWS) % outputs
    model.probe(inputs[:8], targets)
    trainings: dict[str, Any] = {PLAIN: Ordinary(copy.deepcopy(network), inputs, targets)}
    trainings |= {name: Training(method, model, inputs, targets) for name, method in methods().items()}
    many = torch.randn(1000, width)
    for training in trainings.values():
        training.take(3)
    taken: dict[str, list[float]] = {name: [] for name in trainings}
    predicted: dict[str, list[float]] = {name: [] for name in trainings}
    for number in range(rounds):
        for name, training in trainings.items():
            taken[name].append(training.take(steps) / steps)
            if number >= rounds - 5:
                predicted[name].append(training.predict(many))
    found = {}
    reference = trainings[PLAIN].bytes()
    for name, training in trainings.items():
        found[name] = {
            "milliseconds": 1e3 * statistics.median(taken[name]),
            "step": statistics.median(a / b for a, b in zip(taken[name], taken[PLAIN], strict=True)),
            "prediction": statistics.median(a / b for a, b in zip(predicted[name], predicted[PLAIN], strict=True)),
            "memory": training.bytes() / reference,
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    warnings.simplefilter("ignore", bp.errors.BayespropWarning)
    results = {}
    for name in NETWORKS:
        results[name] = measure(name, chosen.rounds, chosen.steps)
        print(name)
        for method, cost in results[name].items():
            print(
                f"  {method:16s} {cost['milliseconds']:8.2f} ms  step {cost['step']:5.2f}  "
                f"prediction {cost['prediction']:5.2f}  memory {cost['memory']:6.1f}",
                flush=True,
            )
    settings = {"rounds": chosen.rounds, "steps": chosen.steps, "rows": ROWS, "everything else": "default"}
    print(record.write("method_cost", settings, results))


if __name__ == "__main__":
    main()
