"""The contract of methods: three functions, and a state whose tensors can be named, stored and put back."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from bayesprop.errors import CheckpointError, ConfigurationError
from bayesprop.inference import BayesByBackprop, Info, Method
from bayesprop.inference.method import check_particles, load_tensors, state_tensors
from bayesprop.random_weights import SharedWeights
from bayesprop.rng import Rng

from .conftest import Problem, method_with, normal, small_network


@dataclasses.dataclass
class Inner:
    place: Tensor
    count: int = 3


@dataclasses.dataclass
class State:
    first: Tensor
    inner: Inner
    by_name: dict[str, Any]
    several: tuple[Any, ...]
    word: str = "nothing of interest"


def _state(scale: float = 1.0) -> State:
    one = torch.arange(3.0) * scale
    return State(one, Inner(one + 1.0), {"a.b": one + 2.0, "none": None, "deep": [one + 3.0]}, (one + 4.0, 7, (one,)))


def test_every_tensor_of_a_state_has_a_name():
    found = state_tensors(_state())
    assert list(found) == ["first", "inner/place", "by_name/a.b", "by_name/deep/0", "several/0", "several/2/0"]
    expected = [torch.arange(3.0) + shift for shift in (0.0, 1.0, 2.0, 3.0, 4.0, 0.0)]
    torch.testing.assert_close(list(found.values()), expected, rtol=0.0, atol=0.0)


def test_names_lead_to_the_tensors_themselves():
    state = _state()
    assert state_tensors(state)["inner/place"] is state.inner.place
    assert state_tensors({"x": 1.0, "y": "z"}) == {}
    alone = torch.zeros(2)
    assert state_tensors([alone])["0"] is alone


def test_loading_puts_numbers_back_in_place():
    state, other = _state(), _state(2.0)
    held = state.inner.place
    load_tensors(state, state_tensors(other), source="a file")
    assert state.inner.place is held
    for name, tensor in state_tensors(state).items():
        assert torch.equal(tensor, state_tensors(other)[name])
        assert tensor is not state_tensors(other)[name]
    assert state.inner.count == 3


def test_a_state_with_other_tensors_is_refused():
    tensors = state_tensors(_state())
    more, fewer = {**tensors, "new": torch.zeros(1)}, {k: v for k, v in tensors.items() if k != "first"}
    with pytest.raises(CheckpointError, match=r"run\.bayes holds the state of another method or network") as caught:
        load_tensors(_state(), more, source="run.bayes")
    assert "received: new" in str(caught.value)
    assert "expected: fewer tensors" in str(caught.value)
    with pytest.raises(CheckpointError, match="holds the state of another method or network") as caught:
        load_tensors(_state(), fewer, source="run.bayes")
    assert "received: fewer tensors" in str(caught.value)
    assert "expected: first" in str(caught.value)


def test_a_state_with_another_shape_is_refused_before_anything_is_changed():
    state, tensors = _state(), state_tensors(_state(2.0))
    tensors["several/0"] = torch.zeros(4)
    before = copy.deepcopy(state_tensors(state))
    with pytest.raises(CheckpointError, match=r"run\.bayes: several/0 has another shape") as caught:
        load_tensors(state, tensors, source="run.bayes")
    assert "received: [4]" in str(caught.value)
    assert "expected: [3]" in str(caught.value)
    for name, tensor in state_tensors(state).items():
        assert torch.equal(tensor, before[name])


def test_bayes_by_backprop_is_a_method():
    method = BayesByBackprop(learning_rate=0.1)
    assert isinstance(method, Method)
    assert not isinstance(object(), Method)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'learning_rate'"):
        method.learning_rate = 1.0  # type: ignore[misc]


def test_info_holds_one_number_a_particle():
    problem = Problem(small_network(), normal(6, 3))
    for clip in (None, 1.0):
        method = method_with(estimator=SharedWeights(2), clip_norm=clip)
        state, info = method.update(problem.model, problem.state(3), problem.batch(3), Rng.create(0, 3))
        assert isinstance(info, Info)
        assert info.log_likelihood.shape == (3,)
        assert not info.log_likelihood.requires_grad
        assert not any(tensor.requires_grad for tensor in state_tensors(state).values())
        if clip is None:
            assert info.gradient_norm is None
        else:
            assert info.gradient_norm is not None
            assert info.gradient_norm.shape == (3,)


@pytest.mark.parametrize("optimizer", ["adam", "momentum", "sgd", torch.optim.NAdam])
def test_a_state_goes_on_from_its_stored_tensors_as_if_nothing_had_happened(optimizer):
    problem = Problem(small_network(), normal(6, 3))
    method = method_with(learning_rate=0.05, optimizer=optimizer, estimator=SharedWeights(2))
    rng = Rng.create(2, 2)

    def go(state, steps):
        for step in steps:
            state, _ = method.update(problem.model, state, problem.batch(2), rng.at(step))
        return state

    whole = go(method.init(problem.model, rng), range(6))
    stored = copy.deepcopy(state_tensors(go(method.init(problem.model, rng), range(3))))
    fresh = method.init(problem.model, rng)
    load_tensors(fresh, stored, source="memory")
    found = state_tensors(go(fresh, range(3, 6)))
    assert {"mean", "rho"} <= found.keys()
    for name, tensor in state_tensors(whole).items():
        assert torch.equal(found[name], tensor)


def test_a_number_for_each_particle_is_counted():
    """As many as there are, or one for all."""
    method = BayesByBackprop(learning_rate=torch.tensor([1e-3, 3e-3]))
    check_particles(method, 2)
    with pytest.raises(ConfigurationError, match=r"learning_rate: a tensor holds one number(.|\n)*shape \[3\]"):
        check_particles(method, 3)
