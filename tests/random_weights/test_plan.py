"""Who uses a weight, how it is evaluated, and the reason in words."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesprop import random_weights as rw


def _numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


class Flattened(nn.Module):
    """The head sees rows that are positions of all examples, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.sequence, self.head, self.unused = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.sequence(x)).flatten(0, 1)).unflatten(0, x.shape[:2])


def test_reasons_in_words(bench):
    plan = bench(Flattened(), _numbers(4, 5, 3), rw.Flipout()).plan
    assert plan["sequence.weight"] == plan["sequence.bias"]
    assert plan["sequence.weight"] == rw.Evaluation(
        "linear", "flipout", 0, "positions of an example share the weight, examples do not"
    )
    reason = "no dimension of the input [10, 4] of linear just counts examples"
    assert plan["head.weight"] == plan["head.bias"] == rw.Evaluation("linear", "shared", None, reason)
    assert plan["unused.weight"] == rw.Evaluation("", "shared", None, "not used in the forward pass")


def test_each_estimator_plans_by_its_own_rules(bench):
    network = nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(24, 2))
    wanted = {
        rw.SharedWeights(): ("shared", "shared", "shared"),
        rw.Flipout(): ("flipout", "shared", "flipout"),
        rw.LocalReparameterization(): ("flipout", "shared", "local"),
    }
    for estimator, rules in wanted.items():
        one = bench(network, _numbers(4, 3, 8), estimator)
        assert one.network.training
        for layer, rule in zip("013", rules, strict=True):
            assert {one.rules()[f"{layer}.weight"], one.rules()[f"{layer}.bias"]} == {rule}
    shared, flipout = (bench(network, _numbers(4, 3, 8), e).plan for e in (rw.SharedWeights(), rw.Flipout()))
    assert shared["0.bias"].reason == "SharedWeights draws one sample per forward pass"
    assert flipout["1.weight"].reason == "batch_norm has no rule for a random weight in this place"


@pytest.mark.parametrize("positions", [2, 3, 4])
@pytest.mark.parametrize("example_dim", [0, 1])
def test_a_sequence_as_long_as_the_trace_has_rows_is_no_trap(bench, positions, example_dim):
    shape = (4, positions, 3) if example_dim == 0 else (positions, 4, 3)
    one = bench(nn.Linear(3, 2), _numbers(*shape), rw.Flipout(), example_dim=example_dim)
    assert one.plan["weight"].example_dim == example_dim
    assert one.uses["weight"][0].input_shape == ((2, positions, 3) if example_dim == 0 else (positions, 2, 3))


def test_two_dimensions_that_count_examples_are_none(bench):
    class Pairs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pair = nn.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.pair(x[:, None] * x[None, :]).mean(1)

    plan = bench(Pairs(), _numbers(4, 3), rw.LocalReparameterization()).plan
    assert plan["pair.weight"].rule == "shared"
    assert "just counts examples" in plan["pair.weight"].reason


def test_examples_as_channels_or_as_pixels_are_shared(bench):
    class Sideways(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel, self.row = nn.Parameter(torch.randn(1, 1, 1)), nn.Parameter(torch.randn(2, 3))

        def forward(self, x: Tensor) -> Tensor:
            over_examples = F.conv1d(x.mean(1)[None, None], self.kernel)[0, 0]
            return over_examples + (self.row @ x.T).sum(0)

    one = bench(Sideways(), _numbers(4, 3), rw.Flipout())
    assert one.rules() == {"kernel": "shared", "row": "shared"}
    assert one.plan["row"].reason == "matmul has no rule for a random weight in this place"
    one(one.means, one.scales)


def test_a_weight_that_is_used_twice_takes_its_biases_with_it(bench):
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
            self.second.weight = self.first.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.second(torch.tanh(self.first(x)))

    one = bench(Tied(), _numbers(4, 3), rw.LocalReparameterization())
    assert set(one.plan) == {"first.weight", "first.bias", "second.bias"}
    assert set(one.rules().values()) == {"shared"}
    assert one.plan["first.weight"].reason == "used 2 times in the forward pass (linear), always with the same weights"
    assert one.plan["second.bias"].reason == "linear takes it together with first.weight, which is shared"
    assert [use.call for use in one.uses["first.weight"]] == [0, 1]


def test_attention_is_shared_and_the_rest_of_a_transformer_is_not(bench):
    network = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0)
    for training in (True, False):
        one = bench(network.train(training), _numbers(5, 4, 4), rw.LocalReparameterization(), example_dim=1)
        flipped = {name for name, rule in one.rules().items() if rule == "flipout"}
        assert flipped == {"linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias"}
        assert {one.plan[name].example_dim for name in flipped} == {1}
        assert "multi_head_attention_forward has no rule" in one.plan["self_attn.out_proj.bias"].reason


def test_batch_statistics_and_repeated_rows(bench):
    """The trace works on two equal rows, as a caller with one row has them, and in training mode."""
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()
    row = _numbers(1, 3)

    def call(weights: dict[str, Tensor], rows: int) -> None:
        buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
        torch.func.functional_call(network, {**weights, **buffers}, (row.expand(rows, -1),))

    weights = {name: p.detach() for name, p in network.named_parameters()}
    plan = rw.make_plan(rw.LocalReparameterization(), rw.trace(call, weights))
    assert [plan[f"{layer}.weight"].rule for layer in "012"] == ["local", "shared", "local"]
    assert int(network.state_dict()["1.num_batches_tracked"]) == 0


def test_a_pass_whose_operations_depend_on_the_rows_is_shared(bench):
    class PerExample(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.head = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.stack([self.linear(row) for row in x]))

    one = bench(PerExample(), _numbers(4, 3), rw.LocalReparameterization())
    assert set(one.rules().values()) == {"shared"}


def test_missing_noise_is_drawn_when_it_is_needed(bench):
    one = bench(Flattened(), _numbers(4, 5, 3), rw.LocalReparameterization())
    source = rw.NoiseSource(torch.tensor([5, 0]))
    weights = rw.randomize(one.plan, one.estimator, one.means, one.scales, {}, source)
    assert type(weights["head.weight"]) is Tensor
    assert isinstance(weights["sequence.weight"], rw.RandomWeight)
    drawn = rw.NoiseSource(source.key).normal((2, 4), torch.float64, request=0)
    torch.testing.assert_close(weights["head.weight"], one.means["head.weight"] + one.scales["head.weight"] * drawn)
    one.forward(weights, one.inputs)
    # Four shared tensors; for the first layer its weight-sized perturbations and two sets of signs.
    assert source.requests == 4 + 4
    simple = bench(nn.Linear(3, 2), _numbers(4, 3), rw.LocalReparameterization())
    source = rw.NoiseSource(torch.tensor([5, 0]))
    simple.forward(rw.randomize(simple.plan, simple.estimator, simple.means, simple.scales, {}, source), simple.inputs)
    assert source.requests == 1  # no weight-sized noise at all
