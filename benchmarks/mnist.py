"""MNIST with a 784-400-400-10 network: ten epochs of Bayes by Backprop, and what they cost.

    python benchmarks/mnist.py [--seeds 5] [--epochs 10] [--choose]

Default settings throughout; pixels are divided by 126 as in Blundell et al. (2015). After each Bayesian epoch the same
network is trained for one epoch by torch.optim.Adam, eagerly and without a distribution, in the same process on the
same rows: the two alternate, so that whatever else the machine does meets both. The ratio is that of the median epochs.

With --choose the last 10,000 training rows are held back, and the defaults are compared on them with other learning
rates and priors; the test set is not touched.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
import warnings
from typing import Any

import record
import torch
from torch import nn

import bayesprop as bp
from bayesprop.inference import BayesByBackprop

CHOICES: dict[str, tuple[BayesByBackprop, bp.priors.Prior]] = {
    "default": (BayesByBackprop(), bp.priors.Normal()),
    "learning rate 1e-3": (BayesByBackprop(learning_rate=1e-3), bp.priors.Normal()),
    "learning rate 1e-2": (BayesByBackprop(learning_rate=1e-2), bp.priors.Normal()),
    "no KL warm-up": (BayesByBackprop(kl_weights="uniform"), bp.priors.Normal()),
    "Normal(scale=0.1)": (BayesByBackprop(), bp.priors.Normal(scale=0.1)),
    "Normal(scale=3)": (BayesByBackprop(), bp.priors.Normal(scale=3.0)),
    "ScaleMixture": (BayesByBackprop(), bp.priors.ScaleMixture(0.5, 1.0, math.exp(-6.0))),
}


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10))


def pixels(data: bp.Data) -> bp.Data:
    return bp.Data(data.inputs.reshape(len(data), 784).float() / 126.0, data.targets)


class Deterministic:
    """The same network without a distribution, trained by eager Adam, an epoch at a time."""

    def __init__(self, data: bp.Data, seed: int) -> None:
        self.data, self.generator = data, torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        self.network = network()
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=1e-3)

    def epoch(self) -> None:
        order = torch.randperm(len(self.data), generator=self.generator)
        for rows in order.split(128):
            self.optimizer.zero_grad()
            outputs = self.network(self.data.inputs[rows])
            nn.functional.cross_entropy(outputs, self.data.targets[rows]).backward()
            self.optimizer.step()


class Alternate:
    """An observer that trains the deterministic network between two Bayesian epochs, and times both."""

    def __init__(self, other: Deterministic) -> None:
        self.other = other
        self.bayesian: list[float] = []
        self.deterministic: list[float] = []
        self._since = 0.0

    def __call__(self, event: bp.observers.Event) -> None:
        now = time.perf_counter()
        if event.kind == "epoch":
            self.bayesian.append(now - self._since)
            self.other.epoch()
            self.deterministic.append(time.perf_counter() - now)
        if event.kind in ("start", "epoch"):
            self._since = time.perf_counter()


def one(train: bp.Data, test: bp.Data, seed: int, epochs: int) -> dict[str, float]:
    other = Deterministic(train, seed)
    watch = Alternate(other)
    model = bp.Model(network(), likelihood=bp.likelihoods.Categorical())
    # Nothing is reported before the end: what is timed is training.
    posterior = bp.fit(model, train, epochs=epochs, seed=seed, observers=[watch], progress=False, report_every=epochs)
    prediction = posterior.predict(test.inputs, seed=seed)
    with torch.no_grad():
        plain = other.network(test.inputs).softmax(1)
    bayesian, deterministic = statistics.median(watch.bayesian[:-1]), statistics.median(watch.deterministic[:-1])
    return {
        "error": float(bp.metrics.error(prediction.mean, test.targets)),
        "nll": -float(prediction.log_prob(test.targets).mean()),
        "calibration_error": float(bp.metrics.expected_calibration_error(prediction.mean, test.targets)),
        "error_of_the_mean_network": float(
            bp.metrics.error(posterior.at_mean().predict(test.inputs, 1).mean, test.targets)
        ),
        "deterministic_error": float(bp.metrics.error(plain, test.targets)),
        "deterministic_nll": float(bp.metrics.negative_log_likelihood(plain, test.targets)),
        "seconds_per_epoch": bayesian,
        "deterministic_seconds_per_epoch": deterministic,
        "ratio": bayesian / deterministic,
    }


def choose(train: bp.Data, epochs: int) -> dict[str, Any]:
    """Scores on 10,000 training rows that are held back."""
    kept, held = train.rows(slice(0, 50_000)), train.rows(slice(50_000, None))
    found = {}
    for name, (method, prior) in CHOICES.items():
        model = bp.Model(network(), likelihood=bp.likelihoods.Categorical(), prior=prior)
        posterior = bp.fit(model, kept, method, epochs=epochs, seed=0, progress=False, report_every=epochs)
        prediction = posterior.predict(held.inputs)
        found[name] = {
            "validation_error": float(bp.metrics.error(prediction.mean, held.targets)),
            "validation_nll": -float(prediction.log_prob(held.targets).mean()),
        }
        print(f"{name:20s}", {key: round(value, 4) for key, value in found[name].items()}, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--choose", action="store_true")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore", bp.errors.BayespropWarning)
    images = bp.data.mnist()
    train, test = pixels(images.train), pixels(images.test)
    settings = {"epochs": chosen.epochs, "network": "784-400-400-10", "pixels": "divided by 126", "else": "default"}
    if chosen.choose:
        print(record.write("mnist_choices", settings | {"seeds": [0]}, choose(train, chosen.epochs)))
        return
    runs = []
    for seed in range(chosen.seeds):
        runs.append(one(train, test, seed, chosen.epochs))
        print(seed, {name: round(value, 4) for name, value in runs[-1].items()}, flush=True)
    results = {name: record.summary([run[name] for run in runs]) for name in runs[0]}
    for name, value in results.items():
        print(f"{name:32s} {value['mean']:.4f} +- {value['standard_error'] or 0.0:.4f}")
    print(record.write("mnist", settings | {"seeds": list(range(chosen.seeds))}, results))


if __name__ == "__main__":
    main()
