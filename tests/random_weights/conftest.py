"""A bench: one network with a Gaussian over its weights, and noise that is a function of (seed, draw, step)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayesprop import random_weights as rw
from bayesprop.kernels import noise
from bayesprop.rng import Stream


class Bench:
    """Means are the network's own parameters (tied ones once), scales lie between 0.1 and 0.3, all in float64."""

    def __init__(
        self,
        network: nn.Module,
        inputs: Tensor,
        estimator: Any,
        *,
        example_dim: int = 0,
        output: Callable[[Any], Tensor] = lambda result: result,
    ) -> None:
        self.network, self.inputs, self.estimator, self.output = network.double(), inputs, estimator, output
        self.means = {name: p.detach().clone() for name, p in self.network.named_parameters()}
        spread = torch.Generator().manual_seed(1)
        self.scales = {
            name: 0.1 + 0.2 * torch.rand(mean.shape, generator=spread, dtype=torch.float64)
            for name, mean in self.means.items()
        }

        def call(weights: dict[str, Tensor], rows: int) -> None:
            self.forward(weights, inputs.narrow(example_dim, 0, rows))

        self.uses = rw.trace(call, self.means)
        self.plan = rw.make_plan(estimator, self.uses)

    def forward(self, weights: dict[str, Tensor], inputs: Tensor) -> Tensor:
        buffers = {name: buffer.clone() for name, buffer in self.network.named_buffers()}
        return self.output(torch.func.functional_call(self.network, {**weights, **buffers}, (inputs,)))

    def noises(self, key: Tensor) -> dict[str, Tensor]:
        """Weight noise by name, as whoever owns the weights would draw it."""
        drawn, start = noise.normal(key, 0, int(Stream.WEIGHTS), sum(m.numel() for m in self.means.values())), 0
        found = {}
        for name, mean in self.means.items():
            found[name] = drawn[start : start + mean.numel()].reshape(mean.shape).to(mean.dtype)
            start += mean.numel()
        return found

    def __call__(
        self,
        means: dict[str, Tensor],
        scales: dict[str, Tensor],
        key: Tensor | None = None,
        inputs: Tensor | None = None,
    ) -> Tensor:
        """The output of one forward pass."""
        key = torch.tensor([5, 0]) if key is None else key
        source = rw.NoiseSource(key)
        weights = rw.randomize(self.plan, self.estimator, means, scales, self.noises(key), source)
        return self.forward(weights, self.inputs if inputs is None else inputs)

    def rules(self) -> dict[str, str]:
        return {name: evaluation.rule for name, evaluation in self.plan.items()}


@pytest.fixture
def bench() -> type[Bench]:
    torch.manual_seed(0)  # initial weights of the test networks; the library itself never draws from this generator
    return Bench
