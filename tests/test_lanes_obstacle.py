"""What stands between a network and vmap: found before training, and said in one line."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

from bayesprop.lanes import obstacle


def look(network: nn.Module, inputs: Tensor, *, compare: bool = True) -> str:
    """The obstacle for a network as it is; what it looks at must be left alone."""
    weights = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
    before = [t.clone() for t in (inputs, *weights.values(), *buffers.values())]

    def forward(own: dict[str, Tensor], copies: dict[str, Tensor], rows: Tensor) -> Tensor:
        return torch.func.functional_call(network, {**own, **copies}, (rows,))

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        found = obstacle(forward, weights, buffers, inputs, compare=compare)
        with torch.no_grad():  # as a model looks: it must see the same
            assert obstacle(forward, weights, buffers, inputs, compare=compare) == found
    for one, other in zip(before, (inputs, *weights.values(), *buffers.values()), strict=True):
        assert torch.equal(one, other)
    assert "\n" not in found
    return found


class Layered(nn.Module):
    """A linear layer, and what is done with its outputs or its inputs."""

    def __init__(self, behind=lambda h: h, before=lambda x: x) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)
        self.behind, self.before = behind, before
        with torch.no_grad():
            values = torch.linspace(-0.5, 0.7, 16)
            self.layer.weight.copy_(values[:12].reshape(4, 3))
            self.layer.bias.copy_(values[12:])

    def forward(self, x: Tensor) -> Tensor:
        return self.behind(self.layer(self.before(x)))


@pytest.fixture
def inputs() -> Tensor:
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(0))


BATCHABLE = {
    "linear": lambda: Layered(),
    "network of layers": lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.LayerNorm(4), nn.Linear(4, 1)),
    "batch norm": lambda: nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)),
    "in place on its own": lambda: Layered(lambda h: h.mul(2.0).relu_()),
    "a weight that is not used": lambda: nn.ModuleDict({"used": nn.Linear(3, 2), "not": nn.Linear(1, 1)}),
    "a weight of no size": lambda: nn.Sequential(nn.Linear(3, 0), nn.Linear(0, 2)),
    "half precision": lambda: Layered().to(torch.bfloat16),
}


@pytest.mark.parametrize("name", BATCHABLE)
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_these_have_no_obstacle(name, inputs):
    network = BATCHABLE[name]()
    if isinstance(network, nn.ModuleDict):
        network.forward = lambda x: network["used"](x)
    assert look(network, inputs.to(torch.bfloat16) if name == "half precision" else inputs) == ""


def test_no_obstacle_in_evaluation_mode(inputs):
    assert look(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout()).eval(), inputs) == ""


# -- operations that vmap refuses --------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0][:, -1]


@torch.library.custom_op("bayesprop_tests::recurrent", mutates_args=())
def recurrent(x: Tensor) -> Tensor:
    """As cuDNN's recurrent layers are: a gradient, but vmap is refused."""
    return x.sin()


@recurrent.register_vmap
def _refuse(info, in_dims, x):
    raise RuntimeError("Batching rule not implemented for bayesprop_tests::recurrent.\nA second line.")


torch.library.register_autograd(
    "bayesprop_tests::recurrent",
    lambda ctx, gradient: gradient * ctx.saved_tensors[0].cos(),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def test_a_recurrent_layer_without_a_rule(inputs):
    assert look(Recurrent(), inputs[:, None].repeat(1, 6, 1)).startswith("Batching rule not implemented for aten::lstm")


def test_a_recurrent_layer_of_a_library_for_devices(inputs):
    """Whatever the error: the loop over lanes is right, and its first line is the reason."""
    expected = "Batching rule not implemented for bayesprop_tests::recurrent."
    assert look(Layered(recurrent), inputs) == expected
    assert look(Layered(recurrent), inputs, compare=False) == expected


def test_an_operation_that_would_run_in_a_slow_loop_inside_of_vmap(inputs):
    """Twice: torch must not say so only the first time. And whatever the user does with warnings."""
    network = Layered(lambda h: torch.histc(h, 4) + h)
    for action in ("ignore", "always", "error"):
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            assert look(network, inputs).startswith("There is a performance drop")


def test_control_flow_that_depends_on_data(inputs):
    assert "data-dependent control flow" in look(Layered(lambda h: h if h.sum() > 0.0 else -h), inputs)
    assert ".item()" in look(Layered(lambda h: h * h.sum().item()), inputs)


@pytest.mark.parametrize(
    "write",
    [lambda x: x.add_(1.0), lambda x: x.mul_(torch.arange(3.0)), nn.functional.relu_],
    ids=["add", "multiply", "relu"],
)
def test_writing_into_the_inputs(write, inputs):
    """All lanes share them: whoever writes there writes for the others too, and into the user's data."""
    assert "refers to a single memory location" in look(Layered(before=write), inputs)


def test_writing_a_weight_into_the_inputs(inputs):
    network = Layered()
    network.before = lambda x: x.mul_(network.layer.weight.sum())
    assert "inplace arithmetic" in look(network, inputs)


def test_an_obstacle_in_prediction_only(inputs):
    """Without gradients torch chooses other bodies for some layers."""
    network = Layered(lambda h: h if torch.is_grad_enabled() else recurrent(h))
    assert look(network, inputs) == "Batching rule not implemented for bayesprop_tests::recurrent."


def test_an_error_without_words(inputs):
    def fail(h: Tensor) -> Tensor:
        raise KeyError

    assert look(Layered(fail), inputs) == "KeyError"


def test_buffers_that_are_written_and_used(inputs):
    """Both ways must run, or there is nothing to compare."""

    class Counting(Layered):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("passes", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.passes += 1.0
            return self.layer(x) * self.passes

    assert look(Counting(), inputs) == ""


# -- operations that vmap gets wrong -----------------------------------------------------------------------------------


def wrong(values=torch.sin, slope=torch.cos):
    """sin with its right gradient; under vmap another function with its own."""

    class Right(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x.sin()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, gradient):
            return gradient * ctx.saved_tensors[0].cos()

        @staticmethod
        def vmap(info, in_dims, x):
            return Batched.apply(x), in_dims[0]

    class Batched(Right):
        @staticmethod
        def forward(x):
            return values(x)

        @staticmethod
        def backward(ctx, gradient):
            return None if slope is None else gradient * slope(ctx.saved_tensors[0])

    return Right.apply


def test_a_rule_that_is_right(inputs):
    assert look(Layered(wrong()), inputs) == ""


@pytest.mark.parametrize(
    "values",
    [lambda x: 1.1 * x.sin(), lambda x: x.sin() * float("nan"), lambda x: x.sin() + float("inf"), torch.cos],
    ids=["too large", "not a number", "infinite", "another function"],
)
def test_wrong_values(values, inputs):
    assert look(Layered(wrong(values)), inputs) == "vmap changes the network's values"


@pytest.mark.parametrize(
    "slope",
    [lambda x: 1.1 * x.cos(), lambda x: -x.cos(), torch.zeros_like, lambda x: x * float("nan"), None],
    ids=["too large", "sign", "zero", "not a number", "no path to the weights"],
)
def test_wrong_gradients(slope, inputs):
    """Values are right, so only the comparison of gradients can tell."""
    assert look(Layered(wrong(slope=slope)), inputs) == "vmap changes the network's gradients"


def test_a_gradient_that_is_lost_for_some_weights_only(inputs):
    """The bias lies behind the wrong operation and keeps its gradient; the weight before loses its own."""
    cut = wrong(slope=None)

    class Behind(Layered):
        def forward(self, x: Tensor) -> Tensor:
            return cut(x @ self.layer.weight.T) + self.layer.bias

    assert look(Behind(), inputs) == "vmap changes the network's gradients"


@pytest.mark.parametrize("factor", [1.0 + 1e-5, 1.0 - 1e-3])
def test_rounding_is_no_obstacle(factor, inputs):
    """Reductions in another order, or tensor cores: up to one part in a hundred of the largest value."""
    assert look(Layered(wrong(lambda x: factor * x.sin(), lambda x: factor * x.cos())), inputs) == ""


def test_a_network_whose_outputs_are_not_numbers_is_the_same_both_ways(inputs):
    """log of negative numbers: an error of the network, which is not for this room to find."""
    assert look(Layered(lambda h: (h - 100.0).log()), inputs) == ""


def test_a_network_that_draws_is_only_run(inputs):
    """Lanes differ, as they should; whether vmap runs can be asked all the same."""
    network = nn.Sequential(nn.Linear(3, 3), nn.Dropout())
    assert look(network, inputs) == "vmap changes the network's values"
    assert look(network, inputs, compare=False) == ""
