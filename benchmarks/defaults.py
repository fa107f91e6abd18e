"""Why the defaults are what they are: scores on validation parts of the training data, never on test data.

    python benchmarks/defaults.py [--splits 2]

A fifth of the training part of each published UCI split is held back. Each row of the table changes one thing about the
defaults of `bp.fit` and `BayesByBackprop`. Scores are in the units of the tables; a score is the mean over the splits.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import record
import torch
from torch import nn

import bayesprop as bp
from bayesprop.inference import BayesByBackprop, Constant

SETS = ("boston", "concrete", "energy", "yacht")
STEPS = 20_000

# name: (method, steps, rows of a minibatch, standard deviation of the prior)
VARIANTS: dict[str, tuple[BayesByBackprop, int, int | None, float]] = {
    "default": (BayesByBackprop(), STEPS, 128, 1.0),
    "no KL warm-up": (BayesByBackprop(kl_weights="uniform"), STEPS, 128, 1.0),
    "constant learning rate": (BayesByBackprop(schedule=Constant()), STEPS, 128, 1.0),
    "learning rate 1e-3": (BayesByBackprop(learning_rate=1e-3), STEPS, 128, 1.0),
    "learning rate 1e-2": (BayesByBackprop(learning_rate=1e-2), STEPS, 128, 1.0),
    "initial scale 0.1": (BayesByBackprop(initial_scale=0.1), STEPS, 128, 1.0),
    "2,000 steps": (BayesByBackprop(), 2_000, 128, 1.0),
    "prior Normal(scale=3)": (BayesByBackprop(), STEPS, 128, 3.0),
    "10,000 steps": (BayesByBackprop(), 10_000, 128, 1.0),
}


def one(
    name: str, number: int, method: BayesByBackprop, steps: int, rows: int | None, scale: float
) -> dict[str, float]:
    whole, _ = bp.data.uci(name).split(number)
    train, held = whole.split(0.2, seed=number)
    torch.manual_seed(number)
    network = nn.Sequential(nn.Linear(train.inputs.shape[1], 50), nn.ReLU(), nn.Linear(50, 1))
    model = bp.Model(network, likelihood=bp.likelihoods.Gaussian(), prior=bp.priors.Normal(scale=scale))
    epochs = -(-steps // train.batches_per_epoch(rows))
    posterior = bp.fit(model, train, method, epochs=epochs, batch_size=rows, seed=number, progress=False)
    inputs, targets = held.original()
    prediction = posterior.predict(inputs, seed=number)
    return {
        "rmse": float(bp.metrics.root_mean_squared_error(prediction.mean, targets)),
        "log_likelihood": float(prediction.log_prob(targets).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=2)
    splits = parser.parse_args().splits
    warnings.simplefilter("ignore", bp.errors.BayespropWarning)
    results: dict[str, Any] = {}
    for variant, settings in VARIANTS.items():
        results[variant] = {}
        for name in SETS:
            runs = [one(name, number, *settings) for number in range(splits)]
            results[variant][name] = {key: record.summary([run[key] for run in runs]) for key in runs[0]}
        shown = (
            "{} {:.3f} {:.3f}".format(n, s["rmse"]["mean"], s["log_likelihood"]["mean"])
            for n, s in results[variant].items()
        )
        print(f"{variant:24s}", "  ".join(shown), flush=True)
    print(record.write("defaults", {"splits": splits, "held back": 0.2, "hidden units": 50}, results))


if __name__ == "__main__":
    main()
