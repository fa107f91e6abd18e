"""The tensor that stands for a distribution: what it says of itself, when it is drawn, and that it is drawn once."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesprop import random_weights as rw
from bayesprop.errors import CapabilityError
from bayesprop.kernels import noise
from bayesprop.random_weights import operations
from bayesprop.random_weights.random_weight import materialize
from bayesprop.rng import Rng, Stream

KEY = torch.tensor([11, 4])
ESTIMATORS = [rw.SharedWeights(), rw.LocalReparameterization(), rw.Flipout()]


def _weight(*shape: int, estimator=ESTIMATORS[0], given: bool = True) -> rw.RandomWeight:
    mean, scale, drawn = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    source = rw.NoiseSource(KEY, step=3)
    given_noise = drawn if given else None
    return rw.RandomWeight.create(mean, scale.abs(), given_noise, estimator.rules.get, source, label="layer.weight")


def test_it_describes_itself_without_being_drawn():
    weight = _weight(2, 3, given=False)
    assert weight.shape == (2, 3)
    assert (weight.dtype, weight.device.type, weight.ndim, len(weight)) == (torch.float64, "cpu", 2, 2)
    assert (weight.dim(), weight.numel(), weight.size(0), weight.is_floating_point()) == (2, 6, 2, True)
    assert repr(weight) == "RandomWeight('layer.weight', shape=(2, 3), dtype=torch.float64, device='cpu')"
    assert not weight.requires_grad
    assert weight.data_ptr() == _weight(2, 3).data_ptr() == 0  # cuDNN modules then leave the layout of weights alone
    assert weight.draw.source.requests == 0
    leaf = torch.ones(2, 3, requires_grad=True)
    assert rw.RandomWeight.create(leaf, leaf.detach(), None, weight.rule, weight.draw.source).requires_grad


def test_an_operation_without_a_rule_sees_one_sample():
    weight = _weight(2, 3, given=False)
    expected = weight.draw.mean + weight.draw.scale * noise.normal(KEY, 3, int(Stream.ACTIVATION), 6).reshape(2, 3)
    for _ in range(2):
        torch.testing.assert_close(weight * 2, expected * 2)
        torch.testing.assert_close(torch.einsum("oi,bi->bo", weight, torch.eye(3).double()), expected.T)
    torch.testing.assert_close(weight.mean(), expected.mean())  # a method of tensors, not the mean of the distribution
    assert weight.draw.source.requests == 1


def test_the_transpose_is_the_same_weight():
    weight = _weight(2, 3, given=False)
    views = [weight.t(), weight.T, weight.mT, weight.transpose(0, 1), torch.transpose(weight, -1, -2), torch.t(weight)]
    for view in views:
        assert isinstance(view, rw.RandomWeight)
        assert view.shape == (3, 2)
        torch.testing.assert_close(view + 0, (weight + 0).T, rtol=0, atol=0)
        torch.testing.assert_close(view.draw.perturbation, weight.draw.perturbation.T, rtol=0, atol=0)
        assert view.draw.request("output noise") == weight.draw.request("output noise")


def test_nested_arguments_are_materialised():
    weight = _weight(2, 3)
    plain = torch.zeros(1)
    found = materialize({"a": [weight, (plain, weight)], "b": plain})
    for tensor in (found["a"][0], found["a"][1][1]):
        assert type(tensor) is Tensor
        torch.testing.assert_close(tensor, weight.draw.sample)
    untouched = [plain, {"c": 1}]
    assert materialize(untouched) is untouched


def test_copies_and_printing_do_not_crash():
    weight = _weight(2, 3)
    twin = copy.deepcopy([weight, weight])
    assert isinstance(twin[0], rw.RandomWeight)
    assert twin[0] is twin[1]
    torch.testing.assert_close(twin[0] + 0, weight + 0)
    network = nn.LSTM(2, 3).double()
    weights = {n: _weight(*p.shape) for n, p in network.named_parameters()}
    torch.func.functional_call(network, weights, (torch.zeros(4, 1, 2, dtype=torch.float64),))
    assert len(copy.deepcopy(network).state_dict()) == 4


def test_what_passes_by_the_function_protocol_is_refused():
    with torch._C.DisableTorchFunctionSubclass(), pytest.raises(CapabilityError, match=r"estimator=SharedWeights\(\)"):
        torch.add(_weight(2, 3), 1)


def test_requests_count_upwards_from_their_own_stream():
    source = rw.NoiseSource(KEY, step=3)
    first, second = source.normal((2, 3), torch.float64), source.normal((5,), torch.float32)
    torch.testing.assert_close(first, noise.normal(KEY, 3, 65536, 6).reshape(2, 3).double(), rtol=0, atol=0)
    torch.testing.assert_close(second, noise.normal(KEY, 3, 65537, 5), rtol=0, atol=0)
    signs = source.signs((4, 50), torch.float64)
    torch.testing.assert_close(signs, noise.normal(KEY, 3, 65538, 200).reshape(4, 50).sign().double(), rtol=0, atol=0)
    torch.testing.assert_close(source.signs((4, 50), torch.float64, request=2), signs, rtol=0, atol=0)
    assert source.requests == 3
    assert source.normal((0, 4), torch.float32).shape == (0, 4)


class Everything(nn.Module):
    """A weight for each rule and one without, on inputs (rows, 3, 8)."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv1d(3, 4, 3, stride=2), nn.LayerNorm(3)
        self.sequence, self.embedding = nn.Linear(3, 3), nn.Embedding(5, 3)
        self.head = nn.Linear(15, 2)

    def forward(self, x: Tensor) -> Tensor:
        index = (x.mean((1, 2)) > 0).long() + 1
        hidden = self.sequence(torch.tanh(self.norm(self.convolution(x))))
        return self.head(torch.cat((torch.tanh(hidden).flatten(1), self.embedding(index)), -1))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_vmap_over_particles_and_draws_equals_a_loop(bench, estimator):
    inputs = torch.randn(4, 3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    one = bench(Everything(), inputs, estimator)
    means = {n: torch.stack((m, m + 0.3)) for n, m in one.means.items()}
    scales = {n: torch.stack((s, 2 * s)) for n, s in one.scales.items()}
    keys = Rng.create(7, particles=2).keys(draws=3)

    def gradients(means, scales, key):
        return torch.func.grad(lambda m, s: torch.sin(one(m, s, key)).sum(), argnums=(0, 1))(means, scales)

    for function in (one, gradients):
        over_draws = torch.func.vmap(function, in_dims=(None, None, 0))
        together = torch.func.vmap(over_draws)(means, scales, keys)
        for particle in range(2):
            for draw in range(3):
                mean, scale = ({n: t[particle] for n, t in group.items()} for group in (means, scales))
                alone = function(mean, scale, keys[particle, draw])
                picked = torch.utils._pytree.tree_map(lambda t, p=particle, d=draw: t[p, d], together)
                torch.testing.assert_close(picked, alone, rtol=1e-11, atol=1e-11)


def test_a_recurrent_network_sees_one_draw_at_all_time_steps(bench):
    """With identical inputs and zero initial state it is the LSTM that has the sampled weights."""
    inputs = torch.full((6, 3, 3), 0.7, dtype=torch.float64)
    one = bench(nn.LSTM(3, 4, num_layers=2), inputs, rw.Flipout(), example_dim=1, output=lambda result: result[0])
    key = torch.tensor([5, 0])
    drawn = one.noises(key)
    sampled = nn.LSTM(3, 4, num_layers=2).double()
    sampled.load_state_dict({n: m + one.scales[n] * drawn[n] for n, m in one.means.items()})
    torch.testing.assert_close(one(one.means, one.scales, key), sampled(inputs)[0], rtol=1e-12, atol=1e-12)

    # The same when the network is handed random weights without any rule.
    def lazy(name: str) -> rw.RandomWeight:
        return rw.RandomWeight.create(one.means[name], one.scales[name], drawn[name], {}.get, rw.NoiseSource(key))

    outputs = one.forward({name: lazy(name) for name in one.means}, inputs)
    torch.testing.assert_close(outputs, sampled(inputs)[0], rtol=1e-12, atol=1e-12)


def test_modules_with_fast_paths_take_random_weights_without_rules():
    network = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 6, batch_first=True), 2).double().eval()
    inputs = torch.randn(3, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    weights = {n: _weight(*p.shape) for n, p in network.named_parameters()}
    sampled = {n: w.draw.sample for n, w in weights.items()}
    with torch.no_grad():
        lazy = torch.func.functional_call(network, weights, (inputs,))
        torch.testing.assert_close(lazy, torch.func.functional_call(network, sampled, (inputs,)), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_the_global_generator_is_left_alone(bench, estimator):
    inputs = torch.randn(4, 3, 8, dtype=torch.float64)
    network = nn.Sequential(Everything(), nn.Dropout(0.5))
    before = torch.get_rng_state()
    one = bench(network, inputs, estimator)  # the trace runs the dropout layer, under a generator of its own
    one.network.eval()
    one(one.means, one.scales)
    after = torch.get_rng_state()
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    torch.rand(1)
    assert not torch.equal(torch.get_rng_state(), before)


def test_same_key_same_answer_other_key_other_answer(bench):
    inputs = torch.randn(4, 3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    one = bench(Everything(), inputs, rw.LocalReparameterization())
    outputs = [one(one.means, one.scales, torch.tensor(key)) for key in ([5, 0], [5, 0], [5, 1], [6, 0])]
    torch.testing.assert_close(outputs[0], outputs[1], rtol=0, atol=0)
    for other in outputs[2:]:
        assert (outputs[0] - other).abs().min() > 0


@pytest.mark.parametrize(
    "call",
    [
        lambda w: F.linear(torch.ones(3).double(), w),
        lambda w: w @ torch.ones(3, 4).double(),
        lambda w: F.linear(w, torch.ones(2, 3).double()),
        lambda w: torch.addmm(torch.ones(3).double(), torch.ones(4, 2).double(), w, beta=2),
        lambda w: F.embedding(torch.tensor([0, 1]), w, max_norm=1e6),
    ],
    ids=["one row without examples", "weight on the left", "weight as input", "addmm with factors", "max_norm"],
)
def test_calls_that_a_rule_cannot_read_see_the_sample(call):
    weight = _weight(2, 3, estimator=rw.Flipout())
    torch.testing.assert_close(call(weight), call(weight.draw.sample.clone()))


def test_rules_cover_the_functions_that_the_documentation_names():
    names = {function.__name__ for function in operations.rules(lambda operation, dim: operation.input)}
    convolutions = {f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3)}
    assert names == {"linear", "embedding", "matmul", "__matmul__", "mm", "addmm"} | convolutions
