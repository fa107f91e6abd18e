"""Microseconds of a training step on a GPU: MLP 784-400-400-10, batch 128, one sample, by the side of others.

    python benchmarks/step_gpu.py [--particles 1,8,36,108,324] [--by-hand 1,8] [--epochs 20] [--peers FOLDER] [--growth]

In one run: the deterministic network under fused Adam, eager and in a CUDA graph; Bayes by Backprop written by hand in
JAX (one `lax.scan` over the epoch, `vmap` over models), and this library's captured steps. With --peers, other
libraries that FOLDER holds (see peers.py), and NumPyro; with --growth, how a step grows with width, rows and samples.
Data are MNIST's shapes with random pixels, which cost what real ones cost. Every number is the median of several
epochs, each timed as a whole.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from captured import dense, deterministic, median_step, ours, pixels
from record import write

import bayesprop as bp

ROWS, BATCH, SIZES = 50_000, 128, (784, 400, 400, 10)
PRIORS = {"normal": bp.priors.Normal(0.0, 1.0), "mixture": bp.priors.ScaleMixture(0.5, 0.75, 0.1)}


def peers(folder: str) -> dict[str, float]:
    """Microseconds of a step of other libraries, in a process of their own."""
    here = Path(__file__).resolve().parent
    path = os.pathsep.join((folder, os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "PYTHONPATH": path, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    command = [sys.executable, str(here / "peers.py"), "--device", "cuda", "--steps", "200"]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(out.stdout.splitlines()[-1])
    return {name: value * 1e3 for name, value in found.items() if isinstance(value, float)}


def growth(epochs: int) -> dict[str, Any]:
    """Bayesian and deterministic steps as one thing grows and all else stays."""
    found: dict[str, Any] = {}

    def line(name: str, width: int, rows: int, samples: int) -> None:
        sizes, data = (784, width, width, 10), pixels(200 * rows)
        estimator = bp.random_weights.SharedWeights(samples)
        epoch, steps, _ = ours(dense(*sizes), data, rows, prior=PRIORS["normal"], estimator=estimator)
        bayesian = median_step(epoch, steps, epochs)
        plain = median_step(*deterministic(dense(*sizes), data, rows), epochs)
        found[name] = {"bayesian": bayesian, "deterministic": plain, "ratio": bayesian / plain}
        print(name, {key: round(value, 2) for key, value in found[name].items()}, flush=True)

    for width in (100, 200, 400, 800, 1200, 2400):
        line(f"width {width}", width, BATCH, 1)
    for rows in (32, 128, 512, 2048):
        line(f"batch {rows}", 400, rows, 1)
    for samples in (1, 2, 4, 8):
        line(f"samples {samples}", 400, BATCH, samples)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--particles", default="1,8,36,108,324")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--by-hand", default="1,8,36,108,324", help="numbers of models that JAX trains, too")
    parser.add_argument("--peers", metavar="FOLDER")
    parser.add_argument("--growth", action="store_true")
    arguments = parser.parse_args()
    counts, by_hand = ([int(n) for n in text.split(",")] for text in (arguments.particles, arguments.by_hand))
    settings = {"sizes": SIZES, "batch": BATCH, "rows": ROWS, "epochs": arguments.epochs}
    data, few = pixels(ROWS), min(5, arguments.epochs)
    found: dict[str, Any] = {
        f"deterministic, {name}": median_step(*deterministic(dense(*SIZES), data, BATCH, graph=graph), few)
        for name, graph in (("eager", False), ("graph", True))
    }
    if arguments.peers:
        found |= {f"{name}": value for name, value in peers(arguments.peers).items()}
    print({name: round(value, 1) for name, value in found.items()}, flush=True)
    for prior in PRIORS:
        for particles in counts:
            epochs = max(3, arguments.epochs // max(1, particles // 4))
            epoch, steps, how = ours(dense(*SIZES), data, BATCH, particles, prior=PRIORS[prior])
            each = median_step(epoch, steps, epochs)
            line = {"per step": each, "per model": each / particles, "how": how}
            if particles in by_hand:
                from step_by_hand import steps_by_hand

                line["by hand in JAX, per model"] = (
                    steps_by_hand(prior, particles, epochs, *(t.numpy() for t in data)) / particles
                )
                line["ratio"] = line["per model"] / line["by hand in JAX, per model"]
            found[f"{prior}, {particles}"] = line
            print(
                prior, particles, {k: round(v, 3) if isinstance(v, float) else v for k, v in line.items()}, flush=True
            )
            write("step_gpu", settings, found)  # after each line: what was measured is not lost
    if arguments.growth:
        write("step_growth", {"rest": "784-400-400-10, batch 128, 1 sample"}, growth(few))


if __name__ == "__main__":
    main()
