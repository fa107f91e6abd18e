"""MNIST 784-400-400-10 for 600 epochs on a GPU, by `bp.fit`: seconds, and what the network has learnt.

    python benchmarks/mnist_gpu.py [--epochs 600]

Batch 128, one weight sample a step, 50,000 rows of training and 10,000 of validation; the test set is looked at once.
"""

from __future__ import annotations

import argparse
import time

from record import write
from torch import nn

import bayesprop as bp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    images = bp.data.mnist()
    inputs = images.train.inputs.flatten(1).float() / 126.0
    targets = images.train.targets
    network = nn.Sequential(nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10))
    model = bp.Model(network, likelihood=bp.likelihoods.Categorical()).to(arguments.device)
    start = time.perf_counter()
    posterior = bp.fit(
        model,
        (inputs[:50_000], targets[:50_000]),
        epochs=arguments.epochs,
        batch_size=128,
        validation=(inputs[50_000:], targets[50_000:]),
        seed=arguments.seed,
        progress=False,
    )
    seconds = time.perf_counter() - start
    prediction = posterior.predict(images.test.inputs.flatten(1).float() / 126.0)
    labels = images.test.targets.to(arguments.device)
    found = {
        "seconds": seconds,
        "microseconds a step": seconds / (arguments.epochs * 391) * 1e6,
        "test error": float(bp.metrics.error(prediction.mean, labels)),
        "test nll": -float(prediction.log_prob(labels).mean()),
        "last report": posterior.context.history[-1],
        "engine": posterior.context.engine,
    }
    print(found)
    write("mnist_gpu", {"epochs": arguments.epochs, "batch": 128, "seed": arguments.seed}, found)


if __name__ == "__main__":
    main()
