"""Members and their rows of a population's state."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from bayesprop.inference.method import state_tensors
from bayesprop.rng import Rng
from bayesprop.training.sweeping.members import Score, fill, park


@pytest.mark.parametrize("optimizer", ["adam", torch.optim.RMSprop])
def test_what_is_parked_is_put_back_in_any_company(members, model, method, optimizer):
    made, how = model("norm"), method(optimizer=optimizer)
    found = members([{"seed": i} for i in range(3)])
    state = how.init(made, Rng.create(0, 3))
    for i, tensor in enumerate(state_tensors(state).values()):
        tensor.copy_(torch.arange(tensor.numel()).reshape(tensor.shape) + 100.0 * i)
    park(found, state)
    before = {name: tensor.clone() for name, tensor in state_tensors(state).items()}
    for tensor in state_tensors(state).values():
        tensor.zero_()
    other = how.init(made, Rng.create(1, 2))
    fill([found[2], found[0]], other)
    for name, tensor in state_tensors(other).items():
        assert_close(tensor, before[name][[2, 0]] if tensor.dim() else before[name], rtol=0.0, atol=0.0)


def test_the_newest_score_counts_and_none_is_the_worst(members):
    (member,) = members([{"seed": 3}])
    assert member.last("nll") == math.inf
    member.scores = [Score(1, 3, 0.5, 0.1), Score(2, 6, 0.4, 0.2)]
    assert (member.last("nll"), member.last("error")) == (0.4, 0.2)


def test_who_is_dropped_gives_back_what_it_held(members):
    (member,) = members([{"learning_rate": 0.001, "seed": 3}])
    member.state = {"mean": torch.zeros(1)}
    assert member.alive
    member.drop("dropped")
    assert (member.alive, member.fate, member.state) == (False, "dropped", {})
    assert member.describe() == "number 0 (learning_rate = 0.001, seed = 3)"
