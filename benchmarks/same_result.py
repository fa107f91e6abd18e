"""Whether the GPU's own bodies learn what the plain path learns: the same steps, and the same error on MNIST.

    python benchmarks/same_result.py [--epochs 20] [--seeds 5] [--device cuda]

A clip of gradients that never clips sends a training down the plain path. First 100 steps in float32 products: the
difference between the two trajectories, which Adam makes the larger the smaller a gradient is. Then MNIST with settings
and products as users have them, 5 seeds each.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from captured import dense
from record import summary, write

import bayesprop as bp

NEVER = 1e9


def fitted(model: bp.Model, data: Any, seed: int, plain: bool, **how: Any) -> bp.posteriors.DiagonalGaussian:
    method = bp.inference.BayesByBackprop(learning_rate=1e-3, clip_norm=NEVER if plain else None)
    found = bp.fit(model, data, method, batch_size=128, seed=seed, progress=False, **how)
    assert isinstance(found, bp.posteriors.DiagonalGaussian)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    images = bp.data.mnist()
    inputs, targets = images.train.inputs.flatten(1).float() / 126.0, images.train.targets
    held = images.test.inputs.flatten(1).float() / 126.0, images.test.targets.to(arguments.device)
    found: dict[str, Any] = {}
    for name, prior in (("normal", bp.priors.Normal()), ("mixture", bp.priors.ScaleMixture(0.5, 0.75, 0.1))):
        torch.manual_seed(0)
        model = bp.Model(dense(784, 400, 400, 10), likelihood=bp.likelihoods.Categorical(), prior=prior)
        model = model.to(arguments.device)
        rows = inputs[:12_800], targets[:12_800]
        own, plain = (fitted(model, rows, 0, which, epochs=1, tf32=False) for which in (False, True))
        apart = own.mean() - plain.mean()
        found[f"{name}, 100 steps"] = {
            "largest difference of a mean": float(apart.abs().max()),
            "root mean square of differences": float(apart.square().mean().sqrt()),
            "largest relative difference of a std": float((own.std() / plain.std() - 1.0).abs().max()),
            "engines": [own.context.engine, plain.context.engine],
        }
        print(name, found[f"{name}, 100 steps"], flush=True)
        for which, key in ((False, "own"), (True, "plain")):
            errors, losses = [], []
            for seed in range(arguments.seeds):
                posterior = fitted(model, (inputs, targets), seed, which, epochs=arguments.epochs)
                prediction = posterior.predict(held[0], 64)
                errors.append(float(bp.metrics.error(prediction.mean, held[1])))
                losses.append(-float(prediction.log_prob(held[1]).mean()))
            found[f"{name}, MNIST, {key}"] = {"error": summary(errors), "nll": summary(losses)}
            print(name, key, found[f"{name}, MNIST, {key}"], flush=True)
    write("same_result", {"epochs": arguments.epochs, "seeds": arguments.seeds}, found)


if __name__ == "__main__":
    main()
