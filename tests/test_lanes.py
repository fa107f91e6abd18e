"""One function in all lanes: vmap and the loop give the same values and gradients."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from bayesprop import lanes
from bayesprop.lanes import run


@pytest.fixture
def normal():
    def make(*shape: int, seed: int = 0) -> Tensor:
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    return make


def forward(weights: dict[str, Tensor], offset: Tensor, inputs: Tensor, scale: Tensor) -> Tensor:
    """A network of two layers whose result depends on every argument."""
    return torch.tanh(inputs @ weights["first"] + offset) @ weights["second"] * scale


@pytest.mark.parametrize("vectorised", [True, False])
@pytest.mark.parametrize("particles", [1, 3])
@pytest.mark.parametrize("draws", [1, 2])
def test_every_lane_gets_what_its_tags_say(normal, particles, draws, vectorised):
    weights = {"first": normal(particles, draws, 4, 5), "second": normal(particles, draws, 5, 2, seed=1)}
    offset, inputs, scale = normal(draws, 5), normal(particles, 6, 4), normal(2)
    arguments = (weights, offset, inputs, scale)
    found = run(forward, arguments, ("PS", "S", "P", ""), particles=particles, draws=draws, vectorised=vectorised)
    assert found.shape == (particles, draws, 6, 2)
    for p, s in itertools.product(range(particles), range(draws)):
        own = {name: weight[p, s] for name, weight in weights.items()}
        torch.testing.assert_close(found[p, s], forward(own, offset[s], inputs[p], scale), rtol=1e-13, atol=1e-14)


def test_gradients_are_the_same_both_ways(normal):
    weights = {"first": normal(3, 2, 4, 5), "second": normal(3, 2, 5, 2, seed=1)}
    gradients = []
    for vectorised in (True, False):
        leaves = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
        shared = [normal(2, 5).requires_grad_(), normal(3, 6, 4).requires_grad_(), normal(2).requires_grad_()]
        options = {"particles": 3, "draws": 2, "vectorised": vectorised}
        found = run(forward, (leaves, *shared), ("PS", "S", "P", ""), **options)
        gradients.append(torch.autograd.grad(found.square().sum(), [*leaves.values(), *shared]))
    assert len(gradients[0]) == 5
    for one, other in zip(*gradients, strict=True):
        assert one.abs().sum() > 0.0
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("vectorised", [True, False])
@pytest.mark.parametrize(("particles", "draws"), [(1, 1), (1, 2), (3, 1), (3, 2)])
def test_trees_go_in_and_come_out(normal, particles, draws, vectorised):
    x = normal(particles, draws, 4)
    tree = {"pair": (x, [x + 1.0]), "empty": ()}

    def function(lane):
        first, (second,) = lane["pair"]
        return {"sum": first + second, "parts": [first.sum(), (second,)]}

    found = run(function, (tree,), ("PS",), particles=particles, draws=draws, vectorised=vectorised)
    assert found.keys() == {"sum", "parts"}
    torch.testing.assert_close(found["sum"], 2.0 * x + 1.0, rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(found["parts"][0], x.sum(-1), rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(found["parts"][1][0], x + 1.0, rtol=0.0, atol=0.0)


def test_a_single_network_is_called_as_its_author_would_call_it(normal):
    """An axis of length one is taken off: what reaches the network is a plain tensor, and a view."""
    x, seen = normal(1, 1, 4), []

    def function(lane: Tensor) -> Tensor:
        seen.append(lane)
        assert not torch._C._functorch.is_batchedtensor(lane)
        return lane * 2.0 if float(lane.sum()) > 0.0 else lane  # vmap would refuse this

    run(function, (x,), ("PS",), particles=1, draws=1)
    assert len(seen) == 1
    assert seen[0].shape == (4,)
    assert seen[0].data_ptr() == x.data_ptr()


@pytest.mark.parametrize(("particles", "draws"), [(1, 3), (3, 1), (3, 2)])
def test_only_axes_longer_than_one_are_vmapped(normal, particles, draws):
    levels = []

    def function(lane: Tensor) -> Tensor:
        levels.append(torch._C._functorch.maybe_current_level())
        return lane

    run(function, (normal(particles, draws, 2),), ("PS",), particles=particles, draws=draws)
    assert len(levels) == 1
    assert levels[0] == (2 if particles > 1 and draws > 1 else 1)


def test_lanes_draw_numbers_of_their_own(normal):
    """A dropout layer in a network must not drop the same units in every lane."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        for vectorised in (True, False):
            options = {"particles": 2, "draws": 2, "vectorised": vectorised}
            found = run(lambda x: nn.functional.dropout(x, 0.5), (torch.ones(2, 2, 64),), ("PS",), **options)
            rows = found.flatten(0, 1)
            assert not any(torch.equal(a, b) for a, b in itertools.combinations(rows, 2))


@pytest.mark.parametrize("particles", [1, 3])
@pytest.mark.parametrize("vectorised", [True, False])
def test_what_a_lane_writes_into_its_copy_stays_there(particles, vectorised):
    """Buffers carry the tag PS: each lane counts for itself, and the caller sees the counts afterwards."""
    buffers = {"count": torch.arange(6.0)[: 2 * particles].reshape(particles, 2, 1)}

    def function(own: dict[str, Tensor]) -> Tensor:
        own["count"].add_(10.0)
        return own["count"] * 2.0

    expected = buffers["count"] + 10.0
    found = run(function, (buffers,), ("PS",), particles=particles, draws=2, vectorised=vectorised)
    assert torch.equal(buffers["count"], expected)
    assert torch.equal(found, 2.0 * expected)


@pytest.mark.parametrize("vectorised", [True, False])
def test_a_buffer_that_is_written_and_used_does_not_void_the_gradient(normal, vectorised):
    """In the loop the lanes' buffers lie in one tensor: what the second lane writes does not concern the first."""
    weights, counts = normal(2, 3, 4).requires_grad_(), torch.zeros(2, 3, 1).double()

    def function(weight: Tensor, count: Tensor) -> Tensor:
        count.add_(weight.detach().sum())
        return (weight * count).sum()

    total = run(function, (weights, counts), ("PS", "PS"), particles=2, draws=3, vectorised=vectorised).sum()
    (gradient,) = torch.autograd.grad(total, weights)
    torch.testing.assert_close(gradient, weights.detach().sum(-1, keepdim=True).expand(2, 3, 4), rtol=1e-13, atol=0.0)
    torch.testing.assert_close(counts, weights.detach().sum(-1, keepdim=True), rtol=1e-13, atol=0.0)


def test_a_lane_that_spoils_what_it_needs_itself_is_still_told(normal):
    weights, counts = normal(2, 3, 4).requires_grad_(), torch.ones(2, 3, 1).double()

    def function(weight: Tensor, count: Tensor) -> Tensor:
        value = (weight * count).sum()
        count.add_(1.0)
        return value

    total = run(function, (weights, counts), ("PS", "PS"), particles=2, draws=3, vectorised=False).sum()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(total, weights)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # inside of make_dual
@pytest.mark.parametrize("vectorised", [True, False])
def test_forward_mode_passes_through_the_lanes(normal, vectorised):
    """Also in the loop, where rows are made in another way: no tangent is lost."""
    x, tangent = normal(3, 2, 4), normal(3, 2, 4, seed=1)

    def total(values: Tensor) -> Tensor:
        return run(lambda row: row.square().sum(), (values,), ("PS",), particles=3, draws=2, vectorised=vectorised)

    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(total(forward_ad.make_dual(x, tangent))).tangent
    assert found is not None
    torch.testing.assert_close(found, (2.0 * x * tangent).sum(-1), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("vectorised", [True, False])
def test_without_gradients(normal, mode, vectorised):
    x = normal(3, 2, 4)
    with mode():
        found = run(torch.sin, (x.clone(),), ("PS",), particles=3, draws=2, vectorised=vectorised)
    torch.testing.assert_close(found.clone(), x.sin(), rtol=1e-14, atol=0.0)


@pytest.mark.parametrize("fast", [True, False])
def test_attention_is_computed_by_the_body_that_vmap_batches(normal, fast):
    """And the user's choice is put back, also after an error."""
    inside: list[tuple[bool, bool]] = []

    def state() -> tuple[bool, bool]:
        return torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled()

    def look(lane: Tensor) -> Tensor:
        inside.append(state())
        return lane

    def fail(lane: Tensor) -> Tensor:
        raise ValueError("inside of a lane")

    x, before = normal(2, 2, 3), torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(fast)
    try:
        run(look, (x,), ("PS",), particles=2, draws=2)
        assert state() == (fast, True)
        with pytest.raises(ValueError, match="inside of a lane"):
            run(fail, (x,), ("PS",), particles=2, draws=2)
        assert state() == (fast, True)
        run(look, (x[:1, :1],), ("PS",), particles=1, draws=1)
        run(look, (x,), ("PS",), particles=2, draws=2, vectorised=False)
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
    assert inside == [(False, False)] + [(fast, True)] * 5


def test_a_transformer_is_batched_as_it_is_alone(normal):
    network = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True, dtype=torch.float64)
    weights = {n: normal(2, 2, *p.shape, seed=i) for i, (n, p) in enumerate(network.named_parameters())}
    x = normal(5, 3, 4, seed=99)

    def function(own: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return torch.func.functional_call(network, own, (inputs,))

    for module in (network.train(), network.eval()):
        both = [
            run(function, (weights, x), ("PS", ""), particles=2, draws=2, vectorised=vectorised)
            for vectorised in (True, False)
        ]
        assert module is network
        torch.testing.assert_close(*both, rtol=1e-11, atol=1e-12)


def test_public_names():
    assert lanes.__all__ == ["batchable", "obstacle", "run"]
