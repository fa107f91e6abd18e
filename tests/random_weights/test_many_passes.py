"""Several forward passes before one backward pass: each keeps the noise that it was computed with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayesprop import random_weights as rw

ESTIMATORS = [rw.SharedWeights(), rw.LocalReparameterization(), rw.Flipout()]


def _numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def _first(result: Any) -> Tensor:
    return result[0] if isinstance(result, tuple) else result


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attention(x, x, x)[0])


# name: (network, inputs, the dimension of the inputs that counts examples)
NETWORKS: dict[str, tuple[Callable[[], nn.Module], Tensor, int]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), _numbers(4, 4), 0),
    "convolution": (lambda: nn.Sequential(nn.Conv1d(4, 3, 3), nn.BatchNorm1d(3), nn.Tanh()), _numbers(4, 4, 6), 0),
    "lstm": (lambda: nn.LSTM(4, 3, num_layers=2, bidirectional=True), _numbers(5, 4, 4), 1),
    "attention": (SelfAttention, _numbers(4, 5, 4), 0),
}


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_gradient_of_a_sum_is_the_sum_of_the_gradients(bench, name, estimator):
    """Three passes with keys of their own, then one backward pass, against three pairs of passes. Noise that is drawn
    into the place of earlier noise would leave the gradients by the means right and those by the scales wrong."""
    make, inputs, dim = NETWORKS[name]
    one = bench(make(), inputs, estimator, example_dim=dim, output=_first)
    keys = [torch.tensor([5, draw]) for draw in range(3)]

    def gradients(*chosen: Tensor) -> list[Tensor]:
        leaves = [{n: t.clone().requires_grad_() for n, t in group.items()} for group in (one.means, one.scales)]
        total = torch.stack([torch.sin(one(*leaves, key)).sum() for key in chosen]).sum()
        return list(torch.autograd.grad(total, [leaf for group in leaves for leaf in group.values()]))

    together, apart = gradients(*keys), [gradients(key) for key in keys]
    assert len(together) == 2 * len(one.means)
    for index, gradient in enumerate(together):
        torch.testing.assert_close(gradient, sum(alone[index] for alone in apart), rtol=1e-10, atol=1e-12)
    scales = slice(len(one.means), None)
    assert max(float((a - b).abs().max()) for a, b in zip(apart[0][scales], apart[1][scales], strict=True)) > 0.01


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_a_second_pass_leaves_the_first_as_it_was(bench, estimator):
    make, inputs, _ = NETWORKS["mlp"]
    one = bench(make(), inputs, estimator)
    first = one(one.means, one.scales, torch.tensor([5, 0]))
    before = first.clone()
    second = one(one.means, one.scales, torch.tensor([5, 1]))
    torch.testing.assert_close(first, before, rtol=0, atol=0)
    assert (first - second).abs().min() > 0
    torch.testing.assert_close(one(one.means, one.scales, torch.tensor([5, 0])), before, rtol=0, atol=0)
