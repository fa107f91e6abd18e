"""HMC on two moons with a hierarchical prior: have chains met, do two runs agree, and what does a sample cost.

    python benchmarks/hmc.py [--chains 4] [--warm-up 1000] [--samples 1000] [--seeds 2] [--trajectory 3.0] [--threads 1]
        [--numpyro]

The data are scikit-learn's moons (1000 rows, noise 0.2, standardised, half of them for training), the network 2-5-5-2
with tanh, and the weights of each layer N(0, tau^2) with tau ~ HalfNormal(1), non-centred. R-hat and effective sample
sizes are those of the probability of class 1 on a grid, (chains, samples, places); the total variation between two runs
is the mean over a grid of the difference of their predictive probabilities. Effective samples per second count the
whole run, warm-up and compilation included; on a machine with other work those per second of a core say more.

With --numpyro, NumPyro's NUTS takes turns with it on the same data, model and chains; NUMPYRO_PYTHON is a Python that
has it. The difference of two means is held against its standard error, sqrt(variance / ESS) of
both, at each place.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import record
import torch
from torch import Tensor, nn

import bayesprop as bp
from bayesprop.inference import HMC
from bayesprop.training.observers import Event

PLACES = 100  # for R-hat and ESS: a part of the grid


def moons() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Training and test rows."""
    from sklearn.datasets import make_moons
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import scale

    inputs, targets = make_moons(noise=0.2, random_state=0, n_samples=1000)
    parts = train_test_split(scale(inputs), targets, test_size=0.5, random_state=0)
    x, x_test, y, y_test = (torch.as_tensor(part) for part in parts)
    return (x.float(), y), (x_test.float(), y_test)


def grid(count: int) -> Tensor:
    """(count^2, 2): places on [-3, 3]^2."""
    axis = torch.linspace(-3.0, 3.0, count)
    return torch.cartesian_prod(axis, axis)


def places() -> Tensor:
    """The part of the grid for R-hat and ESS."""
    return grid(int(PLACES**0.5))


def health(traced: Tensor, seconds: float, cpu: float) -> dict[str, float]:
    """R-hat and effective samples of probabilities (chains, samples, places); per second, and per second of a core."""
    ess, r_hat = bp.diagnostics.effective_sample_size(traced), bp.diagnostics.r_hat(traced)
    return {
        "r_hat_max": float(r_hat.max()),
        "r_hat_median": float(r_hat.median()),
        "ess_min": float(ess.min()),
        "ess_median": float(ess.median()),
        "ess_min_per_second": float(ess.min()) / seconds,
        "ess_median_per_second": float(ess.median()) / seconds,
        "ess_min_per_cpu_second": float(ess.min()) / cpu,
        "ess_median_per_cpu_second": float(ess.median()) / cpu,
    }


def scores(held: Tensor, targets: Tensor) -> dict[str, float]:
    return {
        "test_nll": -float(held[torch.arange(len(targets)), targets].log().mean()),
        "test_error": float((held.argmax(1) != targets).double().mean()),
    }


def apart(one: Tensor, other: Tensor) -> dict[str, float]:
    """How far the means of two runs (chains, samples, places) are from one another, in standard errors."""
    means = [traced.mean((0, 1)) for traced in (one, other)]
    errors = [t.flatten(0, 1).var(0) / bp.diagnostics.effective_sample_size(t) for t in (one, other)]
    z = (means[0] - means[1]) / (errors[0] + errors[1]).sqrt().clamp_min(1e-12)
    return {
        "root_mean_square": float(z.square().mean().sqrt()),
        "largest": float(z.abs().max()),
        "within_two": float((z.abs() < 2.0).double().mean()),
    }


def peer(python: str, seed: int, given: argparse.Namespace) -> tuple[dict[str, Any], Tensor, Tensor]:
    """One run of NumPyro: its numbers, its probabilities along the chains, and on the grid."""
    train, (inputs, targets) = moons()
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "data.npz", Path(folder) / "out.npz"
        parts = {"x": train[0], "y": train[1], "x_test": inputs, "places": places(), "grid": grid(100)}
        np.savez(data, **{name: part.numpy() for name, part in parts.items()})
        settings = (given.chains, given.warm_up, given.samples, seed, given.numpyro_cores)
        script = Path(__file__).with_name("numpyro_moons.py")
        subprocess.run([python, str(script), str(data), str(out), *map(str, settings)], check=True)
        found = dict(np.load(out))
    seconds, cpu = float(found["seconds"]), float(found["cpu_seconds"])
    traced = torch.softmax(torch.as_tensor(found["traced"]).double(), dim=-1)[..., 1]
    numbers: dict[str, Any] = {"seconds": seconds, "cpu_seconds": cpu, "leapfrog_steps_a_sample": float(found["steps"])}
    numbers |= health(traced, seconds, cpu) | scores(torch.as_tensor(found["held"]).double(), targets)
    numbers |= {"divergences": int(found["divergences"]), "numpyro": str(found["version"])}
    return numbers, traced, torch.as_tensor(found["whole"])


def one(seed: int, method: HMC) -> tuple[dict[str, Any], Tensor, Tensor]:
    """The numbers of one run, probabilities of class 1 along the chains, and their mean on a grid of 100 x 100."""
    train, (inputs, targets) = moons()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 2))
    prior = bp.priors.Normal(scale=bp.priors.HalfNormal(1.0, shared="layer"))
    model = bp.Model(network, likelihood=bp.likelihoods.Categorical(), prior=prior)
    started, worked, marks = time.perf_counter(), time.process_time(), []

    def clock(event: Event) -> None:
        if event.kind == "step" and event.step == method.warm_up:
            marks.append(time.perf_counter())

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        posterior = bp.fit(model, train, method, seed=seed, observers=[clock], progress=False)
    seconds, sampling, cpu = time.perf_counter() - started, time.perf_counter() - marks[0], time.process_time() - worked
    traced = torch.softmax(posterior.trace(places()).double(), dim=-1)[..., 1]
    whole = torch.cat(
        [torch.softmax(posterior.trace(part), dim=-1)[..., 1].mean((0, 1)) for part in grid(100).split(500)]
    )
    held = torch.softmax(posterior.trace(inputs).double(), dim=-1).mean((0, 1))
    numbers: dict[str, Any] = {"seconds": seconds, "seconds_of_sampling": sampling, "cpu_seconds": cpu}
    numbers |= health(traced, seconds, cpu) | scores(held, targets)
    numbers |= {"body": method.explain(model), "warnings": [str(warning.message) for warning in told]}
    return numbers, traced, whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--warm-up", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--trajectory", type=float, default=None, help="a fixed length; adapted by ChEES if not given")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--numpyro-cores", type=int, default=2)
    parser.add_argument("--numpyro", action="store_true", help="take turns with it; NUMPYRO_PYTHON has it")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    method = HMC(
        samples=given.samples,
        warm_up=given.warm_up,
        chains=given.chains,
        trajectory="chees" if given.trajectory is None else given.trajectory,
    )
    runs, peers, traces, predictions, others = [], [], [], [], []
    for seed in range(given.seeds):
        numbers, traced, prediction = one(seed, method)
        runs.append(numbers)
        traces.append(traced)
        predictions.append(prediction)
        print(seed, numbers, flush=True)
        if given.numpyro:
            numbers, theirs, whole = peer(os.environ["NUMPYRO_PYTHON"], seed, given)
            peers.append(numbers | {"mean_apart_in_standard_errors": apart(traced, theirs)})
            others.append(whole)
            print("numpyro", peers[-1], flush=True)
    between = [float((a - b).abs().mean()) for a, b in itertools.combinations(predictions, 2)]
    found: dict[str, Any] = {"runs": runs, "total_variation": between}
    found["seconds"] = statistics.fmean(run["seconds"] for run in runs)
    found["runs_apart_in_standard_errors"] = [apart(a, b) for a, b in itertools.combinations(traces, 2)]
    if peers:
        found["numpyro"] = peers
        found["total_variation_from_numpyro"] = [float((a - b).abs().mean()) for a in predictions for b in others]
        found["total_variation_of_numpyro"] = [
            float((a - b).abs().mean()) for a, b in itertools.combinations(others, 2)
        ]
        for key in (f"ess_{which}_per_{unit}second" for which in ("min", "median") for unit in ("", "cpu_")):
            found[f"ratio_of_{key}"] = [run[key] / other[key] for run, other in zip(runs, peers, strict=True)]
    print("total variation between runs:", between)
    print(record.write("hmc_numpyro" if given.numpyro else "hmc", vars(given), found))


if __name__ == "__main__":
    main()
