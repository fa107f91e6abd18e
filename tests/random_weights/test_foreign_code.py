"""Weights in code that torch's function protocol does not reach: functions with a backward of their own, extensions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesprop import random_weights as rw
from bayesprop.errors import CapabilityError

ESTIMATORS = [rw.SharedWeights(), rw.LocalReparameterization(), rw.Flipout()]


class Product(torch.autograd.Function):
    """x w^T with a backward of its own, as a fused kernel would bring it."""

    @staticmethod
    def forward(x: Tensor, w: Tensor) -> Tensor:
        return x @ w.t()

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[override]
        x, w = ctx.saved_tensors
        return gradient @ w, gradient.t() @ x


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Parameter(torch.randn(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        found = Product.apply(torch.tanh(self.first(x)), self.second)
        assert isinstance(found, Tensor)
        return found


class Frozen(nn.Module):
    """A weight that is read without gradients, and once more with them."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        self.gate, self.head, self.again = nn.Linear(4, 4), nn.Linear(4, 2), again

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            gate = torch.sigmoid(self.gate(x))
        return self.head(gate * (self.gate(x) if self.again else x))


class Extension(nn.Module):
    """A layer whose code answers below the protocol, as compiled extensions do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x))
        with torch._C.DisableTorchFunctionSubclass():
            return F.linear(hidden, self.last.weight, self.last.bias)


def _numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_a_function_with_its_own_backward_reaches_mean_and_scale(bench, estimator):
    """Against central differences in float64 along one direction: exact to about 1e-9. A random weight inside of the
    function would take the gradient for itself, and mean and scale would be left with none."""
    one = bench(Custom(), _numbers(5, 4), estimator)
    assert one.rules()["second"] == "shared"
    assert one.rules()["first.weight"] == estimator.rule
    groups = [{n: t.clone().requires_grad_() for n, t in group.items()} for group in (one.means, one.scales)]
    leaves = [leaf for group in groups for leaf in group.values()]
    gradients = torch.autograd.grad(torch.sin(one(*groups)).sum(), leaves)
    directions = [torch.cos(torch.arange(leaf.numel(), dtype=torch.float64)).reshape(leaf.shape) for leaf in leaves]
    values = []
    for sign in (1, -1):
        moved = [leaf.detach() + sign * 1e-5 * d for leaf, d in zip(leaves, directions, strict=True)]
        half = len(moved) // 2
        means, scales = (dict(zip(one.means, part, strict=True)) for part in (moved[:half], moved[half:]))
        values.append(torch.sin(one(means, scales)).sum())
    slope = sum((g * d).sum() for g, d in zip(gradients, directions, strict=True))
    torch.testing.assert_close(slope, (values[0] - values[1]) / 2e-5, rtol=1e-7, atol=1e-8)
    by_name = dict(zip((*one.means, *(f"scale of {n}" for n in one.scales)), gradients, strict=True))
    assert by_name["second"].abs().min() > 0
    assert by_name["scale of second"].abs().min() > 0


@pytest.mark.parametrize("again", [True, False])
def test_a_weight_that_is_read_without_gradients_is_shared(bench, again):
    one = bench(Frozen(again), _numbers(5, 4), rw.Flipout())
    assert [one.rules()[name] for name in ("gate.weight", "head.weight")] == ["shared", "flipout"]
    means = {n: m.clone().requires_grad_() for n, m in one.means.items()}
    output = one(means, one.scales)
    gradients = torch.autograd.grad(output.sum(), list(means.values()), allow_unused=True)
    found = {name for name, gradient in zip(means, gradients, strict=True) if gradient is not None}
    assert found == {"head.weight", "head.bias"} | ({"gate.weight", "gate.bias"} if again else set())


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_an_extension_is_given_plain_tensors(bench, estimator):
    one = bench(Extension(), _numbers(5, 4), estimator)
    assert [one.rules()[name] for name in ("first.weight", "last.weight", "last.bias")] == [
        estimator.rule,
        "shared",
        "shared",
    ]
    drawn = one.noises(torch.tensor([5, 0]))
    given = {n: t for n, t in one.means.items() if not n.startswith("last")}
    zero = {n: torch.zeros_like(t) for n, t in given.items()}
    output = one(one.means, one.scales | zero)
    hidden = torch.tanh(F.linear(one.inputs, one.means["first.weight"], one.means["first.bias"]))
    weight, bias = (one.means[n] + one.scales[n] * drawn[n] for n in ("last.weight", "last.bias"))
    torch.testing.assert_close(output, F.linear(hidden, weight, bias))


def test_only_the_trace_may_look_below_the_protocol(bench):
    """A pass that an extension reaches with a random weight would lose its gradient: it is refused, not answered."""
    one = bench(Extension(), _numbers(5, 4), rw.Flipout())
    source = rw.NoiseSource(torch.tensor([5, 0]))
    random = {
        n: rw.RandomWeight.create(m, one.scales[n], None, rw.Flipout().rules.get, source) for n, m in one.means.items()
    }
    with pytest.raises(CapabilityError, match="reached a random weight from below torch's function protocol"):
        one.forward(random, one.inputs)
