"""Prediction of 10,000 inputs with 100 draws: this library against a loop over draws in plain torch.

    python benchmarks/prediction.py [--rounds 7] [--device cpu]

MLP 784-400-400-10. The loop does what a user would write: draw all weights, run the network, add up the softmax.
The two take turns; the median of the ratios counts.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from record import summary, write
from torch import nn

import bayesprop as bp

ROWS, DRAWS = 10_000, 100


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10))


def timed(run: Callable[[], torch.Tensor], device: str) -> tuple[float, torch.Tensor]:
    if device != "cpu":
        torch.cuda.synchronize()
    start = time.perf_counter()
    found = run()
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - start, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    device = arguments.device
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(ROWS, 784, generator=generator).to(device)
    labels = torch.randint(10, (640,), generator=generator).to(device)
    model = bp.Model(network(), likelihood=bp.likelihoods.Categorical()).to(device)
    posterior = bp.fit(model, (inputs[:640], labels), epochs=2, progress=False)
    plain = network().to(device)
    moments = [
        (p, posterior.mean(name).view_as(p), posterior.std(name).view_as(p)) for name, p in plain.named_parameters()
    ]

    @torch.no_grad()
    def loop() -> torch.Tensor:
        total = torch.zeros(ROWS, 10, device=device)
        for _ in range(DRAWS):
            for parameter, mean, std in moments:
                parameter.copy_(mean + std * torch.randn_like(parameter))
            total += plain(inputs).softmax(1)
        return total / DRAWS

    def ours() -> torch.Tensor:
        return posterior.predict(inputs, draws=DRAWS).mean

    ratios, seconds = [], {"loop": [], "bayesprop": []}
    for number in range(arguments.rounds + 1):
        slow, first = timed(loop, device)
        fast, second = timed(ours, device)
        # A probability varies by at most 0.5, its mean over 100 draws by 0.05: two such means are 0.056 apart.
        assert float((first - second).abs().mean()) < 0.06
        if number:
            ratios.append(fast / slow)
            seconds["loop"].append(slow)
            seconds["bayesprop"].append(fast)
    found = {"ratio": statistics.median(ratios), **{name: summary(values) for name, values in seconds.items()}}
    print(f"ratio {found['ratio']:.3f}, " + ", ".join(f"{n} {statistics.median(v):.3f} s" for n, v in seconds.items()))
    write(
        "prediction" if device == "cpu" else "prediction_gpu",
        {"rows": ROWS, "draws": DRAWS, "device": device, "rounds": arguments.rounds},
        found,
    )


if __name__ == "__main__":
    main()
