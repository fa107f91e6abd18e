"""Gradients with respect to mean and scale, with given noise, against central differences, layer by layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bayesprop import random_weights as rw

ESTIMATORS = [rw.SharedWeights(), rw.LocalReparameterization(), rw.Flipout()]


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, add_bias_kv=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0]


class TiedAutoencoder(nn.Module):
    """One weight, used as it is and transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.5 * torch.randn(3, 4))
        self.bias = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(torch.tanh(F.linear(x, self.weight, self.bias)), self.weight.t())


class LanguageModel(nn.Module):
    """Embedding and output layer are one parameter under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.embedding(x)))


class RawMatmul(nn.Module):
    """All the ways to write a matrix product by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(4, 5)), nn.Parameter(torch.randn(3, 5))
        self.c, self.d = nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(4))
        self.e, self.f = nn.Parameter(torch.randn(6, 4)), nn.Parameter(torch.randn(2, 6))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(x @ self.a)
        x = torch.tanh(torch.mm(x, self.b.T))
        x = torch.tanh(torch.addmm(self.d, x, self.c))
        x = torch.tanh(x.matmul(self.e.mT))
        return torch.mm(x, self.f.transpose(0, 1))


class Unrolled(nn.Module):
    """A cell that a loop applies to each time step."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], 4)
        for step in x.unbind(1):
            state = self.cell(step, state)
        return self.head(state)


class Normalised(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv1d(3, 4, 3), norm, nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.norm(self.first(x))).mean(-1))


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def _encoder(training: bool) -> nn.Module:
    return nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, activation="gelu").train(training)


def _numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def _indices(*shape: int) -> Tensor:
    return torch.randint(0, 7, shape, generator=torch.Generator().manual_seed(2))


# name: (network, inputs, the dimension of the inputs that counts examples)
CASES: dict[str, tuple[Callable[[], nn.Module], Tensor, int]] = {
    "root linear": (lambda: nn.Linear(4, 3), _numbers(4, 4), 0),
    "mlp": (_mlp, _numbers(4, 4), 0),
    "linear over a sequence": (_mlp, _numbers(4, 3, 4), 0),
    "linear without bias": (lambda: nn.Linear(4, 3, bias=False), _numbers(4, 4), 0),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=3, padding=2, groups=2), _numbers(3, 4, 8), 0),
    "conv2d": (
        lambda: nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
        _numbers(3, 2, 6, 5),
        0,
    ),
    "conv2d same": (lambda: nn.Conv2d(2, 2, 3, padding="same", groups=2), _numbers(3, 2, 5, 4), 0),
    "conv2d circular": (
        lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular", bias=False),
        _numbers(3, 2, 5, 4),
        0,
    ),
    "conv3d": (
        lambda: nn.Conv3d(2, 4, (1, 2, 3), stride=(1, 3, 2), padding=(0, 1, 1), groups=2),
        _numbers(3, 2, 3, 4, 5),
        0,
    ),
    "conv_transpose1d": (
        lambda: nn.ConvTranspose1d(4, 6, 3, stride=3, padding=1, output_padding=2, groups=2),
        _numbers(3, 4, 5),
        0,
    ),
    "conv_transpose2d": (
        lambda: nn.ConvTranspose2d(2, 3, (3, 2), stride=(2, 3), output_padding=(1, 2)),
        _numbers(3, 2, 4, 3),
        0,
    ),
    "conv_transpose3d": (lambda: nn.ConvTranspose3d(2, 3, 2, dilation=2), _numbers(3, 2, 2, 3, 2), 0),
    "embedding of one index": (lambda: nn.Embedding(7, 3, padding_idx=1), _indices(6), 0),
    "embedding of a sequence": (lambda: nn.Embedding(7, 3), _indices(4, 5), 0),
    "layer norm": (lambda: Normalised(nn.LayerNorm(6)), _numbers(3, 3, 8), 0),
    "batch norm": (lambda: Normalised(nn.BatchNorm1d(4)), _numbers(3, 3, 8), 0),
    "group norm": (lambda: Normalised(nn.GroupNorm(2, 4)), _numbers(3, 3, 8), 0),
    "lstm": (lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True), _numbers(4, 3, 3), 1),
    "gru": (lambda: nn.GRU(3, 4, batch_first=True), _numbers(3, 4, 3), 0),
    "unrolled cell": (Unrolled, _numbers(3, 4, 3), 0),
    "attention": (SelfAttention, _numbers(3, 5, 4), 0),
    "transformer training": (lambda: _encoder(True), _numbers(5, 3, 4), 1),
    "transformer evaluation": (lambda: _encoder(False), _numbers(5, 3, 4), 1),
    "tied autoencoder": (TiedAutoencoder, _numbers(4, 4), 0),
    "tied language model": (LanguageModel, _indices(4, 5), 0),
    "raw matmul": (RawMatmul, _numbers(5, 4), 0),
}


def _first(result: Any) -> Tensor:
    return result[0] if isinstance(result, tuple) else result


def _assert_gradients(loss: Callable[[dict[str, Tensor], dict[str, Tensor]], Tensor], means: Any, scales: Any) -> None:
    """Two random directions, which move all means or all scales, and three single entries of each."""
    leaves = [{n: t.clone().requires_grad_() for n, t in group.items()} for group in (means, scales)]
    loss(*leaves).backward()
    random = torch.Generator().manual_seed(3)
    for which in range(2):
        flat = torch.cat([leaf.detach().flatten() for leaf in leaves[which].values()])
        gradient = torch.cat([_gradient(leaf).flatten() for leaf in leaves[which].values()])
        directions = [torch.randn(flat.shape, generator=random, dtype=torch.float64) for _ in range(2)]
        largest = gradient.abs().topk(min(3, flat.numel())).indices
        directions += [F.one_hot(index, flat.numel()).double() for index in largest]
        for direction in directions:
            values = []
            for sign in (1, -1):
                moved = (flat + sign * 1e-5 * direction).split([t.numel() for t in leaves[which].values()])
                group = {n: part.reshape(leaves[which][n].shape) for n, part in zip(leaves[which], moved, strict=True)}
                with torch.no_grad():
                    values.append(loss(*((group, scales) if which == 0 else (means, group))))
            expected = (values[0] - values[1]) / 2e-5
            # Central differences in float64 with steps of 1e-5 are exact to about 1e-9 here.
            torch.testing.assert_close(gradient @ direction, expected, rtol=1e-6, atol=1e-9)


def _gradient(leaf: Tensor) -> Tensor:
    assert leaf.grad is not None
    return leaf.grad


def _loss(output: Tensor) -> Tensor:
    """A smooth function in which every output has a weight of its own."""
    weights = torch.linspace(-1.0, 1.3, output.numel(), dtype=output.dtype).reshape(output.shape)
    return (torch.sin(output) * weights).sum()


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_exact(bench, case, estimator):
    build, inputs, example_dim = CASES[case]
    one = bench(build(), inputs, estimator, example_dim=example_dim, output=_first)
    _assert_gradients(lambda means, scales: _loss(one(means, scales)), one.means, one.scales)


# What each case has to exercise; everything else of a case is shared.
EXPECTED = {
    "root linear": {"local"},
    "linear over a sequence": {"flipout"},
    "conv_transpose2d": {"flipout"},
    "embedding of one index": {"local"},
    "embedding of a sequence": {"flipout"},
    "batch norm": {"flipout", "shared", "local"},
    "lstm": {"shared"},
    "transformer evaluation": {"flipout", "shared"},
    "tied language model": {"shared"},
    "unrolled cell": {"shared", "local"},
    "raw matmul": {"local"},
}


@pytest.mark.parametrize("case", EXPECTED)
def test_the_cases_exercise_the_rules_that_they_should(bench, case):
    build, inputs, example_dim = CASES[case]
    one = bench(build(), inputs, rw.LocalReparameterization(), example_dim=example_dim, output=_first)
    assert set(one.rules().values()) == EXPECTED[case]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_three_forward_passes_before_one_backward(bench, estimator):
    """Noise of an earlier pass must not be overwritten by a later one."""
    one = bench(nn.Sequential(nn.Conv1d(3, 2, 3), nn.Flatten(), nn.Linear(12, 2)), _numbers(4, 3, 8), estimator)
    keys = [torch.tensor([5, draw]) for draw in range(3)]

    def loss(means: dict[str, Tensor], scales: dict[str, Tensor]) -> Tensor:
        return torch.stack([_loss(one(means, scales, key)) for key in keys]).sum()

    assert len({float(_loss(one(one.means, one.scales, key))) for key in keys}) == 3
    _assert_gradients(loss, one.means, one.scales)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_only_the_bias_or_only_the_weight_is_random(bench, estimator):
    for name in ("weight", "bias"):
        for network, inputs in ((nn.Linear(4, 3), _numbers(5, 4)), (nn.Conv1d(3, 2, 3), _numbers(4, 3, 6))):
            one = bench(network, inputs, estimator)
            fixed = {n: m for n, m in one.means.items() if n != name}

            def loss(means, scales, one=one, fixed=fixed, name=name):
                key = torch.tensor([5, 0])
                noises = one.noises(key)
                some = rw.randomize(one.plan, one.estimator, means, scales, noises, rw.NoiseSource(key))
                return _loss(one.forward({name: some[name], **fixed}, one.inputs))

            _assert_gradients(loss, {name: one.means[name]}, {name: one.scales[name]})


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_activation_checkpointing_sees_the_same_noise_again(bench, estimator):
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Any:
            # The weights are taken here: the second run happens in the backward pass, after functional_call is over.
            weight, bias = self.first.weight, self.first.bias
            middle = checkpoint(lambda t: torch.tanh(F.linear(t, weight, bias)), x, use_reentrant=False)
            assert isinstance(middle, Tensor)
            return self.last(middle)

    one = bench(Checkpointed(), _numbers(4, 4), estimator)
    _assert_gradients(lambda means, scales: _loss(one(means, scales)), one.means, one.scales)


def test_gradient_is_finite_where_the_variance_is_zero(bench):
    inputs = _numbers(4, 4)
    inputs[1] = 0.0
    one = bench(nn.Linear(4, 3, bias=False), inputs, rw.LocalReparameterization())
    means = {n: m.clone().requires_grad_() for n, m in one.means.items()}
    scales = {n: torch.zeros_like(s) for n, s in one.scales.items()}
    scales["weight"][0] = 0.2
    scales["weight"].requires_grad_()
    inputs.requires_grad_()
    output = one(means, scales)
    torch.testing.assert_close(output[1], torch.zeros(3, dtype=torch.float64), rtol=0, atol=0)
    output.sum().backward()
    for leaf in (*means.values(), *scales.values(), inputs):
        assert torch.isfinite(_gradient(leaf)).all()
