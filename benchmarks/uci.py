"""UCI regression with default settings on the published splits, beside the published columns for Bayes by Backprop.

    python benchmarks/uci.py [--sets concrete energy yacht] [--splits 20]

The protocol of Hernandez-Lobato and Adams (2015): 20 random splits into 90 % and 10 %, one hidden layer of 50 rectified
units, inputs and targets standardised on the training part, scores in the units of the table. Nothing is set but the
network: method, prior, noise and length of training are the defaults of `bp.Model` and `bp.fit`. The defaults were
chosen on validation parts of the training data, see docs/defaults.md; the test parts are used here alone.
"""

from __future__ import annotations

import argparse
import time
import warnings

import record
import torch
from torch import nn

import bayesprop as bp

# (RMSE, log-likelihood): mean and standard error over the same 20 splits, Zhang et al. 2018 (arXiv:1712.02390), table
# 1, and Mishkin et al. 2018 (arXiv:1811.04504), table 2.
PUBLISHED = {
    "boston": {"Zhang 2018": ((3.171, 0.149), (-2.602, 0.031)), "Mishkin 2018": ((3.43, 0.20), (-2.66, 0.06))},
    "concrete": {"Zhang 2018": ((5.678, 0.087), (-3.149, 0.018)), "Mishkin 2018": ((6.16, 0.13), (-3.25, 0.03))},
    "energy": {"Zhang 2018": ((0.565, 0.018), (-1.500, 0.006)), "Mishkin 2018": ((0.97, 0.09), (-1.45, 0.10))},
    "power": {"Zhang 2018": ((4.023, 0.036), (-2.807, 0.010)), "Mishkin 2018": ((4.21, 0.03), (-2.86, 0.01))},
    "wine": {"Zhang 2018": ((0.643, 0.012), (-0.977, 0.017)), "Mishkin 2018": ((0.64, 0.01), (-0.97, 0.01))},
    "yacht": {"Zhang 2018": ((1.174, 0.086), (-2.408, 0.007)), "Mishkin 2018": ((1.13, 0.06), (-1.56, 0.02))},
}


def one(table: bp.data.Regression, number: int) -> dict[str, float]:
    """One split: fit with defaults, score on its test part."""
    train, test = table.split(number)
    torch.manual_seed(number)
    network = nn.Sequential(nn.Linear(train.inputs.shape[1], 50), nn.ReLU(), nn.Linear(50, 1))
    model = bp.Model(network, likelihood=bp.likelihoods.Gaussian())
    started = time.perf_counter()
    posterior = bp.fit(model, train, seed=number, progress=False)
    seconds = time.perf_counter() - started
    prediction = posterior.predict(test.inputs, seed=number)
    low, high = prediction.interval(0.9)
    return {
        "rmse": float(bp.metrics.root_mean_squared_error(prediction.mean, test.targets)),
        "log_likelihood": float(prediction.log_prob(test.targets).mean()),
        "coverage_90": float(bp.metrics.interval_coverage(low, high, test.targets)),
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=["concrete", "energy", "yacht"], choices=sorted(PUBLISHED))
    parser.add_argument("--splits", type=int, default=20)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore", bp.errors.BayespropWarning)
    results = {}
    for name in chosen.sets:
        table = bp.data.uci(name)
        runs = [one(table, number) for number in range(chosen.splits)]
        results[name] = {key: record.summary([run[key] for run in runs]) for key in runs[0]}
        results[name]["published"] = PUBLISHED[name]
        ours = (results[name][key] for key in ("rmse", "log_likelihood"))
        print(
            f"{name:10s}",
            *(f"{score['mean']:8.3f} +- {score['standard_error'] or 0.0:.3f}" for score in ours),
            flush=True,
        )
        for source, scores in PUBLISHED[name].items():
            print(f"  {source:14s}", *(f"{mean:8.3f} +- {spread:.3f}" for mean, spread in scores))
    print(record.write("uci", {"splits": chosen.splits, "hidden units": 50, "everything else": "default"}, results))


if __name__ == "__main__":
    main()
