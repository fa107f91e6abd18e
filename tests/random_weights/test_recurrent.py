"""One draw of the weights per forward pass of a recurrent network, shared by all time steps, for each estimator."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesprop import random_weights as rw

ESTIMATORS = [rw.SharedWeights(), rw.LocalReparameterization(), rw.Flipout()]
KEY = torch.tensor([5, 0])


class Unrolled(nn.Module):
    """A cell that a loop applies to each time step."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        state, states = x.new_zeros(x.shape[0], 4), []
        for step in x.unbind(1):
            state = self.cell(step, state)
            states.append(state)
        return torch.stack(states, 1)


class ByHand(nn.Module):
    """The cell of an Elman network from linear layers and a raw matrix product."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.recurrent = nn.Linear(3, 4), nn.Parameter(0.3 * torch.randn(4, 4))

    def forward(self, step: Tensor, state: Tensor) -> Tensor:
        return torch.tanh(self.inward(step) + state @ self.recurrent)


# name: (network, the dimension that counts examples)
NETWORKS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "lstm": (lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True), 1),
    "lstm, batch first, projected": (lambda: nn.LSTM(3, 4, batch_first=True, proj_size=2), 0),
    "gru": (lambda: nn.GRU(3, 4, num_layers=2, bidirectional=True), 1),
    "rnn": (lambda: nn.RNN(3, 4, nonlinearity="relu"), 1),
    "gru cell": (lambda: Unrolled(nn.GRUCell(3, 4)), 0),
    "rnn cell": (lambda: Unrolled(nn.RNNCell(3, 4)), 0),
    "by hand": (lambda: Unrolled(ByHand()), 0),
}


def _first(result: Tensor | tuple[Tensor, ...]) -> Tensor:
    return result[0] if isinstance(result, tuple) else result


def _inputs(steps: int, example_dim: int) -> Tensor:
    shape = (steps, 5, 3) if example_dim == 1 else (5, steps, 3)
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


class Counting(rw.NoiseSource):
    """A source that writes down how many numbers each request asked for."""

    def __init__(self) -> None:
        super().__init__(KEY)
        self.drawn: list[int] = []

    def normal(self, shape, dtype, request=None) -> Tensor:
        self.drawn.append(math.prod(shape))
        return super().normal(shape, dtype, request)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("name", NETWORKS)
def test_each_weight_is_drawn_once_however_many_steps_there_are(bench, name, estimator):
    """Counted: every parameter asks for its own size once; another draw per step would ask seven times."""
    make, dim = NETWORKS[name]
    for steps in (2, 7):
        one = bench(make(), _inputs(steps, dim), estimator, example_dim=dim, output=_first)
        assert set(one.rules().values()) == {"shared"}
        source = Counting()
        one.forward(rw.randomize(one.plan, estimator, one.means, one.scales, {}, source), one.inputs)
        assert sorted(source.drawn) == sorted(mean.numel() for mean in one.means.values())
        assert source.requests == len(one.means) > 2


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("name", NETWORKS)
def test_it_is_the_network_that_has_the_drawn_weights(bench, name, estimator):
    make, dim = NETWORKS[name]
    one = bench(make(), _inputs(6, dim), estimator, example_dim=dim, output=_first)
    drawn = one.noises(KEY)
    sampled = make().double()
    sampled.load_state_dict({n: mean + one.scales[n] * drawn[n] for n, mean in one.means.items()})
    torch.testing.assert_close(one(one.means, one.scales, KEY), _first(sampled(one.inputs)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("make", [lambda: nn.RNN(3, 4, batch_first=True), NETWORKS["by hand"][0]])
def test_without_memory_equal_steps_give_equal_states(bench, make, estimator):
    """Recurrent weights of zero without spread: the state is tanh(W x + b), the same at all steps for one W only."""
    inputs = torch.full((3, 6, 3), 0.7, dtype=torch.float64)
    one = bench(make(), inputs, estimator, output=_first)
    recurrent = [name for name in one.means if "recurrent" in name or "weight_hh" in name]
    assert len(recurrent) == 1
    zero = {name: torch.zeros_like(one.means[name]) for name in recurrent}
    states = one(one.means | zero, one.scales | zero)
    torch.testing.assert_close(states, states[:, :1].expand_as(states), rtol=1e-13, atol=1e-13)
    assert (states - one(one.means | zero, one.scales | zero, torch.tensor([5, 1]))).abs().min() > 0


def test_layers_around_a_recurrent_one_keep_their_rules(bench):
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.lstm, self.head = nn.Embedding(7, 3), nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.head(self.lstm(F.dropout(self.embedding(tokens), 0.0))[0][:, -1])

    one = bench(Tagger(), torch.arange(20).reshape(4, 5) % 7, rw.LocalReparameterization())
    rules = one.rules()
    assert [rules["embedding.weight"], rules["head.weight"], rules["head.bias"]] == ["flipout", "local", "local"]
    assert {rule for name, rule in rules.items() if name.startswith("lstm")} == {"shared"}
    assert "lstm has no rule for a random weight in this place" in one.plan["lstm.weight_hh_l0"].reason
