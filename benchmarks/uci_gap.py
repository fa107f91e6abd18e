"""Uncertainty between data: UCI sets without the middle third of one feature, against random splits, for each method.

    python benchmarks/uci_gap.py [--sets concrete energy yacht] [--methods MAP NNGP ...] [--splits 3] [--minutes 8]

A gap split sorts the rows by one feature and takes the middle third for testing (Foong, Li, Hernandez-Lobato, Turner
2019); there is one for each feature. Random splits are the first of the published ones. One hidden layer of 50
rectified units, everything standardised on the training part, methods with their defaults but for the length of
training, which is 4,000 steps of 128 rows. A method that knows what it does not know loses little in a gap.

Every run is written into results/uci_gap.json as it is done, and runs that stand there are not done again.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
import warnings
from typing import Any

import record
import torch
from torch import nn

import bayesprop as bp
from bayesprop import inference
from bayesprop.inference import MAP

STEPS = 4000
SETS = ("concrete", "energy", "yacht")


def make(name: str) -> Any:
    """A method with its defaults; what a full covariance does not fit into is asked for its last layer."""
    if name == "DeepEnsemble":
        return inference.DeepEnsemble(MAP())
    if name == "Laplace":
        return inference.Laplace(MAP(), hessian="last_layer")
    return getattr(inference, name)()


def split(table: bp.data.Regression, name: str) -> tuple[bp.Data, tuple[torch.Tensor, torch.Tensor]]:
    """Training data and the test part: "random 2", or "gap 5" in feature 5."""
    kind, number = name.split()
    if kind == "random":
        train, test = table.split(int(number))
        return train, test.original()
    order = table.inputs[:, int(number)].argsort(stable=True)
    count = len(order)
    middle = order[count // 3 : 2 * count // 3]
    rest = torch.cat((order[: count // 3], order[2 * count // 3 :]))
    data = bp.Data(table.inputs[rest], table.targets[rest], standardize=True)
    return data, (table.inputs[middle], table.targets[middle])


def one(table: bp.data.Regression, method: str, name: str) -> dict[str, float]:
    """One split: RMSE and log-likelihood in the units of the table."""
    train, (inputs, targets) = split(table, name)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(train.inputs.shape[1], 50), nn.ReLU(), nn.Linear(50, 1))
    model, made, started = bp.Model(network, likelihood=bp.likelihoods.Gaussian()), make(method), time.perf_counter()
    epochs = None if made.steps is not None else math.ceil(STEPS / math.ceil(train.num_data / 128))
    posterior = bp.fit(model, train, made, epochs=epochs, progress=False)
    seconds, prediction = time.perf_counter() - started, posterior.predict(inputs)
    return {
        "rmse": float(bp.metrics.root_mean_squared_error(prediction.mean, targets)),
        "log_likelihood": float(prediction.log_prob(targets).mean()),
        "seconds": seconds,
    }


def stored() -> dict[str, Any]:
    path = record.RESULTS / "uci_gap.json"
    return json.loads(path.read_text())["results"] if path.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument(
        "--methods", nargs="*", default=["MAP", "BayesByBackprop", "DeepEnsemble", "NNGP", "DeepKernel"]
    )
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=1e9)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", bp.errors.BayespropWarning)
    started, results = time.perf_counter(), stored()
    settings = {"hidden units": 50, "steps": STEPS, "everything else": "default"}
    for method in given.methods:
        for name in given.sets:
            table = bp.data.uci(name)
            runs = results.setdefault(method, {}).setdefault(name, {})
            features = range(table.inputs.shape[1])
            for part in [*(f"gap {d}" for d in features), *(f"random {k}" for k in range(given.splits))]:
                if part in runs or time.perf_counter() - started > 60.0 * given.minutes:
                    continue
                runs[part] = one(table, method, part)
                record.write("uci_gap", settings, results)
            means = {
                kind: statistics.fmean([run["log_likelihood"] for part, run in runs.items() if part.startswith(kind)])
                for kind in ("gap", "random")
                if any(part.startswith(kind) for part in runs)
            }
            print(method, name, means, flush=True)


if __name__ == "__main__":
    main()
