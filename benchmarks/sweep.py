"""Sweeps: what training many settings at once costs, whether dropping them early is safe, and the paper's grid.

    python benchmarks/sweep.py --scale smoke   16 settings on scikit-learn's digits, a minute on a CPU
    python benchmarks/sweep.py --scale rungs   which rungs keep the best setting: six sweeps of 100 settings
    python benchmarks/sweep.py --scale paper   the 324 settings of Blundell et al. (2015) on MNIST, on a GPU

smoke trains the settings at once, and then one after the other by `fit`, and compares times and posteriors. rungs
trains 100 settings to the end, looks at them on the way, and replays successive halving on what it saw: the regret is
the validation NLL of the setting that would have won, less that of the best. paper takes the last 10,000 training rows
for validation, trains every setting for a sixth of 600 epochs and the best tenth to the end, and looks at the test set
once, for the winner. It may be stopped at any time, or by --minutes, and goes on from its checkpoint when it is called
again.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import record
import torch
from torch import nn

import bayesprop as bp
from bayesprop.inference import BayesByBackprop

SHARES = (1 / 9, 1 / 6, 1 / 4, 1 / 3, 1 / 2, 2 / 3)
CUTS = ((1 / 9, 1 / 3), (1 / 6, 1 / 2), (1 / 4, 1 / 2), (1 / 3, 2 / 3), (1 / 9, 1 / 3, 2 / 3), (1 / 2,))
PAPER = {
    "samples": [1, 2, 5, 10],
    "prior.pi": [0.25, 0.5, 0.75],
    "prior.scale1": [math.exp(-n) for n in (0, 1, 2)],
    "prior.scale2": [math.exp(-n) for n in (6, 7, 8)],
    "learning_rate": [1e-3, 1e-4, 1e-5],
}


def dense(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        layers += [nn.ReLU()] * (i > 0) + [nn.Linear(inputs, outputs)]
    return nn.Sequential(*layers)


class Watch:
    """Seconds between the start and the end of trainings, without what is looked at afterwards."""

    def __init__(self) -> None:
        self.seconds = self._since = 0.0

    def __call__(self, event: bp.observers.Event) -> None:
        if event.kind == "start":
            self._since = time.perf_counter()
        elif event.kind == "end":
            self.seconds += time.perf_counter() - self._since


def smoke(repeats: int) -> None:
    """Everything at once against one after the other; nothing is dropped, so that both do the same work.

    The two alternate, so that whatever else the machine does meets both, and medians are compared.
    """
    torch.manual_seed(0)
    train, validation = bp.data.digits().split(0.25, 0)
    network, likelihood = dense(64, 50, 10), bp.likelihoods.Categorical()
    model = bp.Model(network, likelihood=likelihood)
    grid = {"learning_rate": [1e-3, 3e-3, 1e-2, 3e-2], "prior.scale": [0.1, 0.3, 1.0, 3.0]}
    settings = {"epochs": 20, "seed": 0, "validation": validation, "progress": False}

    def alone(values: dict[str, float], watch: Watch) -> bp.posteriors.Posterior:
        own = bp.Model(network, likelihood=likelihood, prior=bp.priors.Normal(scale=values["prior.scale"]))
        method = BayesByBackprop(learning_rate=values["learning_rate"])
        return bp.fit(own, train, method, report_every=20, observers=[watch], **settings)

    # What is loaded and compiled once.
    bp.sweep(model, train, None, grid, **settings)
    alone({"prior.scale": 1.0, "learning_rate": 1e-3}, Watch())
    times: dict[str, list[float]] = {"at_once": [], "one_after_the_other": [], "with_halving": []}
    for _ in range(repeats):
        watches = {name: Watch() for name in times}
        every = [watches["at_once"]]
        found = bp.sweep(model, train, None, grid, rungs=(), winners=16, observers=every, **settings)
        each = [alone(row.values, watches["one_after_the_other"]) for row in found.rows]
        halved = bp.sweep(model, train, None, grid, observers=[watches["with_halving"]], **settings)
        for name, watch in watches.items():
            times[name].append(watch.seconds)
    print(found)
    pairs = zip(each, found.posteriors, strict=True)
    medians = {name: statistics.median(values) for name, values in times.items()}
    results = {
        "settings": len(found),
        "seconds": times,
        "ratio": medians["at_once"] / medians["one_after_the_other"],
        "ratio_with_halving": medians["with_halving"] / medians["one_after_the_other"],
        "same_winner_with_halving": halved.best_values == found.best_values,
        "largest_difference_of_a_mean": max(float((a.mean() - b.mean()).abs().max()) for a, b in pairs),
    }
    print(results)
    print(record.write("sweep_smoke", {"network": "64-50-10", "epochs": 20, "grid": grid, "repeats": repeats}, results))


def problems(seed: int) -> dict[str, tuple[bp.Data, nn.Module, bp.likelihoods.Likelihood, int]]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(400, 6, generator=generator)
    targets = torch.sin(2 * inputs[:, 0]) * inputs[:, 1] + 0.3 * inputs[:, 2]
    made = bp.Data(inputs, targets + 0.2 * torch.randn(400, generator=generator))
    return {
        "digits": (bp.data.digits(), dense(64, 50, 10), bp.likelihoods.Categorical(), 60),
        "made-up regression": (made, dense(6, 50, 1), bp.likelihoods.Gaussian(), 200),
    }


def replay(scores: list[list[float]], cuts: tuple[float, ...], keep: float) -> float:
    """The regret of successive halving, from the scores of every setting at all SHARES and at the end."""
    left = list(range(len(scores)))
    for cut in cuts:
        at = SHARES.index(cut)
        left = sorted(left, key=lambda row: scores[row][at])[: max(1, math.ceil(keep * len(left) - 1e-9))]
    return min(scores[row][-1] for row in left) - min(row[-1] for row in scores)


def cost(cuts: tuple[float, ...], keep: float) -> float:
    """The share of the steps of a sweep that drops nothing."""
    ends = (*cuts, 1.0)
    return sum((end - start) * keep**i for i, (start, end) in enumerate(zip((0.0, *cuts), ends, strict=True)))


def rungs(seeds: int) -> None:
    grid = {
        "learning_rate": [3e-4, 1e-3, 3e-3, 1e-2, 3e-2],
        "prior.scale": [0.05, 0.1, 0.3, 1.0, 3.0],
        "temperature": [0.1, 1.0],
        "initial_scale": [0.02, 0.1],
    }
    results: dict[str, Any] = {}
    for seed in range(seeds):
        torch.manual_seed(seed)
        for name, (data, network, likelihood, epochs) in problems(seed).items():
            train, validation = data.split(0.3, seed)
            model = bp.Model(network, likelihood=likelihood)
            settings = {"epochs": epochs, "seed": seed, "validation": validation, "draws": 32, "progress": False}
            found = bp.sweep(model, train, None, grid, rungs=SHARES, keep=1.0, **settings)
            scores = [[score.nll for score in row.scores] for row in found.rows if len(row.scores) == len(SHARES) + 1]
            for cuts in CUTS:
                for keep in (1 / 3, 1 / 2):
                    key = f"{', '.join(f'{cut:.2f}' for cut in cuts)}; keep {keep:.2f}"
                    entry = results.setdefault(key, {"cost": cost(cuts, keep), "regret": {}})
                    entry["regret"].setdefault(name, []).append(replay(scores, cuts, keep))
            print(seed, name, found.summary(), flush=True)
    for key, entry in results.items():
        print(f"{key:32s} cost {entry['cost']:.2f}", {n: [round(v, 4) for v in r] for n, r in entry["regret"].items()})
    print(record.write("sweep_rungs", {"grid": grid, "seeds": seeds}, results))


def paper(chosen: argparse.Namespace) -> None:
    device = chosen.device or ("cuda" if torch.cuda.is_available() else "cpu")
    images = bp.data.mnist()

    def pixels(data: bp.Data) -> bp.Data:
        return bp.Data(data.inputs.reshape(len(data), 784).float() / 126.0, data.targets)

    everything = pixels(images.train)
    train, validation = everything.rows(slice(0, 50_000)), everything.rows(slice(50_000, None))
    torch.manual_seed(0)
    model = bp.Model(dense(784, 400, 400, 10), likelihood=bp.likelihoods.Categorical(), prior=bp.priors.ScaleMixture())
    method = BayesByBackprop(kl_weights="uniform")
    grid = {name: values[: chosen.values] for name, values in PAPER.items()}
    began = time.perf_counter()

    def clock(event: bp.observers.Event) -> type[bp.observers.Stop] | None:
        late = chosen.minutes is not None and time.perf_counter() - began > 60.0 * chosen.minutes
        return bp.observers.Stop if late and event.kind in ("step", "epoch") else None

    found = bp.sweep(
        model, train.to(device), method, grid, validation=validation.to(device), epochs=chosen.epochs, batch_size=128,
        rungs=(1 / 6,), keep=0.1, choose_by="error", draws=16, device=device, observers=[clock], progress=True,
        checkpoint=chosen.checkpoint, checkpoint_every=120.0, resume=True,
    )  # fmt: skip
    print(found)
    if found.interrupted:
        print(f"stopped after {found.seconds / 60.0:.1f} minutes; call again to go on from {chosen.checkpoint}")
        return
    test = pixels(images.test).to(device)
    prediction = found.best.predict(test.inputs, 100)
    results = {
        "settings": len(found),
        "seconds": found.seconds,
        "member_steps": sum(row.steps for row in found.rows),
        "engine": found.best.context.engine,
        "plan": found.plan,
        "best": found.best_values,
        "validation_error": found.rows[0].scores[-1].error,
        "test_error": float(bp.metrics.error(prediction.mean, test.targets)),
        "test_nll": -float(prediction.log_prob(test.targets).mean()),
        "rows": found.to_dicts(),
    }
    print({name: value for name, value in results.items() if name != "rows"})
    settings = {"grid": grid, "epochs": chosen.epochs, "rungs": [1 / 6], "keep": 0.1, "batch_size": 128}
    print(record.write("sweep" if chosen.values is None else "sweep_part", settings, results))
    Path(chosen.checkpoint).unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=("smoke", "rungs", "paper"), default="smoke")
    parser.add_argument("--repeats", type=int, default=3, help="of smoke")
    parser.add_argument("--seeds", type=int, default=3, help="of rungs")
    parser.add_argument("--epochs", type=int, default=600, help="of paper")
    parser.add_argument("--values", type=int, default=None, help="of paper: so many of each list only")
    parser.add_argument("--minutes", type=float, default=None, help="of paper: stop after so many")
    parser.add_argument("--device", default=None)
    parser.add_argument("--checkpoint", default="sweep.ckpt")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore", bp.errors.BayespropWarning)
    if chosen.scale == "paper":
        paper(chosen)
    elif chosen.scale == "rungs":
        rungs(chosen.seeds)
    else:
        smoke(chosen.repeats)


if __name__ == "__main__":
    main()
