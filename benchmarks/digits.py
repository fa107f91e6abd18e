"""Digits with default settings: test error, NLL, calibration, and whether foreign classes are recognised.

    python benchmarks/digits.py [--seeds 5]

Five seeds; each seed is another 75 / 25 split of scikit-learn's 1797 digits, another network and another training. The
second part trains on the classes 0-7 only and asks for the AUROC with which the epistemic uncertainty tells the test
pictures of 8 and 9 from those of 0-7.
"""

from __future__ import annotations

import argparse
import warnings

import record
import torch
from torch import nn

import bayesprop as bp


def network(classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, classes))


def fit(data: bp.Data, classes: int, seed: int) -> bp.posteriors.Posterior:
    torch.manual_seed(seed)
    return bp.fit(bp.Model(network(classes), likelihood=bp.likelihoods.Categorical()), data, seed=seed, progress=False)


def one(seed: int) -> dict[str, float]:
    train, test = bp.data.digits().split(0.25, seed)
    prediction = fit(train, 10, seed).predict(test.inputs, seed=seed)
    found = {
        "error": float(bp.metrics.error(prediction.mean, test.targets)),
        "nll": -float(prediction.log_prob(test.targets).mean()),
        "calibration_error": float(bp.metrics.expected_calibration_error(prediction.mean, test.targets)),
        "epistemic_share": float(prediction.epistemic.mean() / prediction.total.mean()),
    }
    known = train.rows(torch.nonzero(train.targets < 8)[:, 0])
    prediction = fit(known, 8, seed).predict(test.inputs, seed=seed)
    foreign = test.targets >= 8
    found["foreign_auroc"] = float(bp.metrics.auroc(prediction.epistemic, foreign))
    found["foreign_auroc_total"] = float(bp.metrics.auroc(prediction.total, foreign))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    warnings.simplefilter("always")
    runs = []
    for seed in seeds:
        runs.append(one(seed))
        print(seed, {name: round(value, 4) for name, value in runs[-1].items()}, flush=True)
    results = {name: record.summary([run[name] for run in runs]) for name in runs[0]}
    for name, value in results.items():
        print(f"{name:20s} {value['mean']:.4f} +- {value['standard_error'] or 0.0:.4f}")
    print(record.write("digits", {"seeds": list(seeds), "everything": "default"}, results))


if __name__ == "__main__":
    main()
