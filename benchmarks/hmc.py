"""HMC on two moons with a hierarchical prior: have chains met, do two runs agree, and what does a sample cost.

    python benchmarks/hmc.py [--chains 4] [--warm-up 500] [--samples 1000] [--seeds 2] [--trajectory 3.0]

The data are scikit-learn's moons (1000 rows, noise 0.2, standardised, half of them for training), the network 2-5-5-2
with tanh, and the weights of each layer N(0, tau^2) with tau ~ HalfNormal(1), non-centred. R-hat and effective sample
sizes are those of the probability of class 1 on a grid, (chains, samples, places); the total variation between two runs
is the mean over a grid of the difference of their predictive probabilities.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
import warnings
from typing import Any

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


def one(seed: int, method: HMC) -> tuple[dict[str, Any], Tensor]:
    """The numbers of one run, and its predictive probability of class 1 on a grid of 100 x 100."""
    train, (inputs, targets) = moons()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 2))
    prior = bp.priors.Normal(scale=bp.priors.HalfNormal(1.0, shared="layer"))
    model = bp.Model(network, likelihood=bp.likelihoods.Categorical(), prior=prior)
    started, marks = time.perf_counter(), []

    def clock(event: Event) -> None:
        if event.kind == "step" and event.step == method.warm_up:
            marks.append(time.perf_counter())

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        posterior = bp.fit(model, train, method, seed=seed, observers=[clock], progress=False)
    seconds, sampling = time.perf_counter() - started, time.perf_counter() - marks[0]
    traced = torch.softmax(posterior.trace(grid(int(PLACES**0.5))).double(), dim=-1)[..., 1]
    ess = bp.diagnostics.effective_sample_size(traced)
    whole = torch.cat(
        [torch.softmax(posterior.trace(part), dim=-1)[..., 1].mean((0, 1)) for part in grid(100).split(500)]
    )
    held = torch.softmax(posterior.trace(inputs).double(), dim=-1).mean((0, 1))
    r_hat = bp.diagnostics.r_hat(traced)
    return {
        "seconds": seconds,
        "seconds_of_sampling": sampling,
        "r_hat_max": float(r_hat.max()),
        "r_hat_median": float(r_hat.median()),
        "ess_min": float(ess.min()),
        "ess_median": float(ess.median()),
        "ess_min_per_second": float(ess.min()) / seconds,
        "ess_median_per_second": float(ess.median()) / seconds,
        "test_nll": -float(held[torch.arange(len(targets)), targets].log().mean()),
        "test_error": float((held.argmax(1) != targets).double().mean()),
        "warnings": [str(warning.message) for warning in told],
    }, whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--warm-up", type=int, default=500)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--trajectory", type=float, default=None, help="a fixed length; adapted by ChEES if not given")
    given = parser.parse_args()
    torch.set_num_threads(1)
    method = HMC(
        samples=given.samples,
        warm_up=given.warm_up,
        chains=given.chains,
        trajectory="chees" if given.trajectory is None else given.trajectory,
    )
    runs, predictions = [], []
    for seed in range(given.seeds):
        numbers, prediction = one(seed, method)
        runs.append(numbers)
        predictions.append(prediction)
        print(seed, numbers, flush=True)
    apart = [float((a - b).abs().mean()) for a, b in itertools.combinations(predictions, 2)]
    found = {"runs": runs, "total_variation": apart, "seconds": statistics.fmean(run["seconds"] for run in runs)}
    print("total variation between runs:", apart)
    print(record.write("hmc", vars(given), found))


if __name__ == "__main__":
    main()
