"""The whole gradient of the ELBO, layer by layer and estimator by estimator, against central differences."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesprop.random_weights import Flipout, LocalReparameterization, SharedWeights

from ..conftest import Problem, method_with, normal

ESTIMATORS = [
    *(SharedWeights(samples) for samples in (1, 3, 10)),
    *(SharedWeights(samples, antithetic=True) for samples in (2, 10)),
    *(LocalReparameterization(samples) for samples in (1, 3, 10)),
    *(Flipout(samples) for samples in (1, 3, 10)),
]


class Normalised(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv1d(3, 4, 3), norm, nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.norm(self.first(x))).mean(-1))


class Recurrent(nn.Module):
    """Rows come first; the layer inside wants time first."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.transpose(0, 1))[0].transpose(0, 1)


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
        self.weight = nn.Parameter(torch.randn(3, 4))
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


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def _encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, activation="gelu", batch_first=True)


def _indices(*shape: int) -> Tensor:
    return torch.randint(0, 7, shape, generator=torch.Generator().manual_seed(2))


CASES: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "root linear": (lambda: nn.Linear(4, 3), normal(5, 4)),
    "mlp": (_mlp, normal(5, 4)),
    "mlp over a sequence": (_mlp, normal(4, 3, 4)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=3, padding=2, groups=2), normal(4, 4, 8)),
    "conv2d": (lambda: nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2)), normal(4, 2, 6, 5)),
    "conv2d same": (lambda: nn.Conv2d(2, 2, 3, padding="same", groups=2, bias=False), normal(4, 2, 5, 4)),
    "conv3d": (
        lambda: nn.Conv3d(2, 4, (1, 2, 3), stride=(1, 3, 2), padding=(0, 1, 1), groups=2),
        normal(4, 2, 3, 4, 5),
    ),
    "conv_transpose1d": (
        lambda: nn.ConvTranspose1d(4, 6, 3, stride=3, padding=1, output_padding=2, groups=2),
        normal(4, 4, 5),
    ),
    "conv_transpose2d": (
        lambda: nn.ConvTranspose2d(2, 3, (3, 2), stride=(2, 3), output_padding=(1, 2)),
        normal(4, 2, 4, 3),
    ),
    "conv_transpose3d": (
        lambda: nn.ConvTranspose3d(2, 3, 2, stride=2, output_padding=(0, 1, 0)),
        normal(4, 2, 2, 1, 2),
    ),
    "embedding": (lambda: nn.Embedding(7, 3), _indices(6)),
    "embedding of a sequence with padding": (lambda: nn.Embedding(7, 3, padding_idx=1), _indices(4, 5)),
    "layer norm": (lambda: Normalised(nn.LayerNorm(6)), normal(4, 3, 8)),
    "batch norm": (lambda: Normalised(nn.BatchNorm1d(4)), normal(4, 3, 8)),
    "group norm": (lambda: Normalised(nn.GroupNorm(2, 4)), normal(4, 3, 8)),
    "lstm": (lambda: Recurrent(nn.LSTM(3, 2, num_layers=2, bidirectional=True)), normal(4, 3, 3)),
    "gru": (lambda: Recurrent(nn.GRU(3, 4)), normal(4, 3, 3)),
    "attention": (SelfAttention, normal(4, 5, 4)),
    "transformer": (_encoder, normal(4, 3, 4)),
    "tied autoencoder": (TiedAutoencoder, normal(5, 4)),
    "tied language model": (LanguageModel, _indices(4, 5)),
}


@functools.cache
def _problem(case: str) -> Problem:
    build, inputs = CASES[case]
    return Problem(build().double(), inputs, num_data=17)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_exact(assert_gradients, case, estimator):
    assert_gradients(_problem(case), method_with(estimator=estimator, kl="auto"))


def test_the_cases_run_both_ways_and_exercise_every_rule():
    """Recurrent networks go lane by lane, the others at once; each estimator meets what it has a rule for."""
    loops = {case for case in CASES if not _problem(case).model.vectorised}
    assert loops == {"lstm", "gru"}
    rules = {}
    for case in CASES:
        plan = _problem(case).model.plan(LocalReparameterization())
        rules[case] = {evaluation.rule for evaluation in plan.values()}
    assert len(rules) == 21
    assert rules["root linear"] == rules["mlp"] == rules["embedding"] == {"local"}
    assert rules["conv3d"] == rules["mlp over a sequence"] == {"flipout"}
    assert rules["lstm"] == rules["tied language model"] == {"shared"}
    assert rules["transformer"] == {"shared", "flipout"}
