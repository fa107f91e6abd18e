"""Two moons as a gold standard: how far each method's predictions are from those of the posterior itself, at what cost.

    python benchmarks/two_moons.py [--methods MAP SWAG ...] [--seeds 5] [--reference FILE] [--minutes 8]

Data, network and hierarchical prior are those of benchmarks/hmc.py, with scales non-centred. The reference is HMC with
8 chains of 2000 samples; the distance is the total variation of the probability of a class, averaged over a grid of 100
x 100 places on [-3, 3]^2. Methods have their defaults but for what a row's name says, 5,000 steps on all rows (20,000
where a step is native code), and 100 draws for each prediction (chains have all of their samples). What a method
refuses is noted in its own words.

Every run is written into results/two_moons.json as it is done, and runs that stand there are not done again: with
--minutes the script begins nothing after so long, and goes on where it was when it is called again. The reference,
which takes minutes, is kept in FILE.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hmc
import record
import torch
from torch import nn

import bayesprop as bp
from bayesprop import inference
from bayesprop.inference import HMC, MAP

REFERENCE = HMC(samples=2000, warm_up=1000, chains=8)
# Of methods that do not say themselves how many steps they take: all of them, and those whose steps are native code.
STEPS, LONGER = 5000, {"BayesByBackprop": 20_000}

# What a table of all methods leaves out of a method's options, by the name of its row; every other method has one row
# with its defaults.
ROWS: dict[str, dict[str, Callable[[], Any]]] = {
    "ADVI": {
        "ADVI, full rank": lambda: inference.ADVI(covariance="full rank"),
        "ADVI, low rank (8)": lambda: inference.ADVI(covariance="low rank", rank=8),
        "ADVI, mean field": lambda: inference.ADVI(covariance="mean field"),
    },
    "DeepEnsemble": {"DeepEnsemble of 10 MAP": lambda: inference.DeepEnsemble(MAP(), members=10)},
    "Laplace": {
        "Laplace, full": lambda: inference.Laplace(MAP()),
        "Laplace, last layer": lambda: inference.Laplace(MAP(), hessian="last_layer"),
    },
}


def rows() -> dict[str, tuple[str, Callable[[], Any]]]:
    """The rows of the table: name -> (method, how to make it)."""
    found = {}
    for entry in bp.methods():
        for name, make in ROWS.get(entry.name, {entry.name: entry.cls}).items():
            found[name] = (entry.name, make)
    return found


def model() -> bp.Model:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 2))
    prior = bp.priors.Normal(scale=bp.priors.HalfNormal(1.0, shared="layer"))
    return bp.Model(network, likelihood=bp.likelihoods.Categorical(), prior=prior)


def predicted(posterior: bp.posteriors.Posterior, draws: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Probability of class 1 on the grid, and of both classes for the test rows."""
    _, (inputs, _) = hmc.moons()
    whole = torch.cat([posterior.predict(part, draws, seed=seed).mean[:, 1] for part in hmc.grid(100).split(2000)])
    return whole, posterior.predict(inputs, draws, seed=seed).mean


def reference(path: Path | None) -> torch.Tensor:
    """The probabilities of the long run on the grid, from its file if there is one."""
    if path is not None and path.exists():
        return torch.load(path)
    posterior = bp.fit(model(), hmc.moons()[0], REFERENCE, seed=1000, progress=False)
    whole, _ = predicted(posterior, 16_000, 0)
    if path is not None:
        torch.save(whole, path)
    return whole


def one(make: Callable[[], Any], seed: int, truth: torch.Tensor) -> dict[str, Any]:
    """One run of one row."""
    train, (_, targets) = hmc.moons()
    method, started, worked = make(), time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        steps = method.steps or LONGER.get(type(method).__name__, STEPS)
        posterior = bp.fit(model(), train, method, epochs=steps, batch_size=None, seed=seed, progress=False)
    seconds, cpu = time.perf_counter() - started, time.process_time() - worked
    draws = posterior.particles * (posterior.distinct or 100) if posterior.distinct != 1 else 1
    whole, held = predicted(posterior, max(draws, 100), seed)
    return {
        "total_variation": float((whole - truth).abs().mean()),
        "agreement": float(((whole > 0.5) == (truth > 0.5)).double().mean()),
        "test_nll": -float(held[torch.arange(len(targets)), targets].clamp_min(1e-12).log().mean()),
        "test_error": float((held.argmax(1) != targets).double().mean()),
        "steps": steps,
        "seconds": seconds,
        "cpu_seconds": cpu,
    }


def stored() -> dict[str, Any]:
    path = record.RESULTS / "two_moons.json"
    return json.loads(path.read_text())["results"] if path.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--methods", nargs="*", default=None, help="names of methods or of rows; all of them if not given"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--reference", type=Path, default=None)
    parser.add_argument("--minutes", type=float, default=1e9)
    given = parser.parse_args()
    torch.set_num_threads(1)
    started, truth, results = time.perf_counter(), reference(given.reference), stored()
    settings = {
        "rows": 500,
        "steps": STEPS,
        "network": "2-5-5-2 tanh",
        "reference": "HMC, 8 chains of 2000 samples",
        "draws": 100,
    }
    for seed in range(given.seeds):
        for name, (method, make) in rows().items():
            found = results.setdefault(name, {"method": method, "runs": {}})
            chosen = given.methods is None or method in given.methods or name in given.methods
            late = time.perf_counter() - started > 60.0 * given.minutes
            if not chosen or late or "refused" in found or str(seed) in found["runs"]:
                continue
            try:
                found["runs"][str(seed)] = one(make, seed, truth)
            except bp.errors.BayespropError as error:
                found["refused"] = str(error).splitlines()[0]
            results[name] = found
            distances = [run["total_variation"] for run in found["runs"].values()]
            print(name, seed, statistics.fmean(distances) if distances else found["refused"], flush=True)
            record.write("two_moons", settings, results)
    print(record.write("two_moons", settings, results))


if __name__ == "__main__":
    main()
