"""Digits: test error, NLL, calibration, and whether foreign classes are recognised.

    python benchmarks/digits.py [--seeds 5] [--choose]

Five seeds; each seed is another 75 / 25 split of scikit-learn's 1797 digits, another network and another training. The
second part trains on the classes 0-7 only and asks for the AUROC with which the epistemic uncertainty tells the test
pictures of 8 and 9 from those of 0-7.

Everything is a default but the scale of the prior: the network has thirteen times as many weights as there are
pictures, and under N(0, 1) mean-field inference is more cautious than it is wrong. With --choose a quarter of the
training part is held back and scales are compared on it; the benchmark's is the one with the best NLL there.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import record
import torch
from torch import nn

import bayesprop as bp

SCALE = 5.0
SCALES = (0.3, 1.0, 2.0, 3.0, 5.0, 10.0)


def network(classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, classes))


def fit(data: bp.Data, classes: int, seed: int, scale: float = SCALE) -> bp.posteriors.Posterior:
    torch.manual_seed(seed)
    prior = bp.priors.Normal(scale=scale)
    model = bp.Model(network(classes), likelihood=bp.likelihoods.Categorical(), prior=prior)
    return bp.fit(model, data, seed=seed, progress=False)


def scores(prediction: bp.prediction.Prediction, targets: torch.Tensor) -> dict[str, float]:
    return {
        "error": float(bp.metrics.error(prediction.mean, targets)),
        "nll": -float(prediction.log_prob(targets).mean()),
        "calibration_error": float(bp.metrics.expected_calibration_error(prediction.mean, targets)),
    }


def one(seed: int) -> dict[str, float]:
    train, test = bp.data.digits().split(0.25, seed)
    prediction = fit(train, 10, seed).predict(test.inputs, seed=seed)
    found = scores(prediction, test.targets)
    found["epistemic_share"] = float(prediction.epistemic.mean() / prediction.total.mean())
    known = train.rows(torch.nonzero(train.targets < 8)[:, 0])
    prediction = fit(known, 8, seed).predict(test.inputs, seed=seed)
    foreign = test.targets >= 8
    found["foreign_auroc"] = float(bp.metrics.auroc(prediction.epistemic, foreign))
    found["foreign_auroc_total"] = float(bp.metrics.auroc(prediction.total, foreign))
    return found


def choose(seed: int, scale: float) -> dict[str, float]:
    """Scores on a quarter of the training part."""
    train, _ = bp.data.digits().split(0.25, seed)
    kept, held = train.split(0.25, seed)
    return scores(fit(kept, 10, seed, scale).predict(held.inputs, seed=seed), held.targets)


def summaries(runs: list[dict[str, float]]) -> dict[str, dict[str, Any]]:
    return {name: record.summary([run[name] for run in runs]) for name in runs[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--choose", action="store_true")
    chosen = parser.parse_args()
    seeds = list(range(chosen.seeds))
    warnings.simplefilter("ignore", bp.errors.BayespropWarning)
    if chosen.choose:
        found = {}
        for scale in SCALES:
            found[f"Normal(scale={scale:g})"] = summaries([choose(seed, scale) for seed in seeds])
            print(
                scale, {name: round(s["mean"], 4) for name, s in found[f"Normal(scale={scale:g})"].items()}, flush=True
            )
        print(record.write("digits_choices", {"seeds": seeds, "held back": 0.25, "everything else": "default"}, found))
        return
    runs = []
    for seed in seeds:
        runs.append(one(seed))
        print(seed, {name: round(value, 4) for name, value in runs[-1].items()}, flush=True)
    results = summaries(runs)
    for name, value in results.items():
        print(f"{name:20s} {value['mean']:.4f} +- {value['standard_error'] or 0.0:.4f}")
    print(record.write("digits", {"seeds": seeds, "prior": f"Normal(scale={SCALE:g})", "else": "default"}, results))


if __name__ == "__main__":
    main()
