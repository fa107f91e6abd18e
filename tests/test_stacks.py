"""Which networks are stacks of dense layers, and why others are not."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import bayesprop as bp
from bayesprop import likelihoods
from bayesprop.kernels.dense import Layer
from bayesprop.stacks import dense_parts, find_stack


def found(network: nn.Module, **options):
    model = bp.Model(network, likelihood=likelihoods.Gaussian(0.5), **options)
    return find_stack(model.network, model.layout)


def test_a_stack_is_read_off_its_modules():
    stack = found(nn.Sequential(nn.Flatten(), nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2))))
    assert not isinstance(stack, str)
    assert stack.layers == (Layer(0, 12, 3, 4, "relu"), Layer(16, 24, 4, 2, "identity"))


def test_a_layer_alone_and_layers_without_bias():
    stack = found(nn.Linear(3, 2))
    assert not isinstance(stack, str)
    assert stack.layers == (Layer(0, 6, 3, 2),)
    stack = found(
        nn.Sequential(nn.Linear(3, 2, bias=False), nn.Tanh(), nn.Identity(), nn.Dropout(0.0), nn.Linear(2, 1))
    )
    assert not isinstance(stack, str)
    assert [layer.bias for layer in stack.layers] == [-1, 8]
    assert stack.layers[0].activation == "tanh"


def test_an_activation_that_is_used_twice_counts_twice():
    shared = nn.Tanh()
    stack = found(nn.Sequential(nn.Linear(3, 4), shared, nn.Linear(4, 4), shared, nn.Linear(4, 2)))
    assert not isinstance(stack, str)
    assert [layer.activation for layer in stack.layers] == ["tanh", "tanh", "identity"]


class Subclass(nn.Linear):
    """Not what it looks like."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2.0 * super().forward(x)


def hooked() -> nn.Module:
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    network[0].register_forward_hook(lambda module, inputs, output: output + 1.0)
    return network


def tied() -> nn.Module:
    network = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    network[2].weight = network[0].weight
    return network


OTHERS = {
    "a hook": (hooked, {}, "has hooks or a parametrisation"),
    "a parametrisation": (lambda: parametrizations.weight_norm(nn.Linear(3, 1)), {}, "has hooks or a parametrisation"),
    "a tied weight": (tied, {}, "is tied to"),
    "dropout": (lambda: nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1)), {}, "1 is a Dropout"),
    "an activation without a kernel": (
        lambda: nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 1)),
        {},
        "1 is a GELU",
    ),
    "an activation at the end": (lambda: nn.Sequential(nn.Linear(3, 1), nn.ReLU()), {}, "follows the last layer"),
    "an activation at the start": (lambda: nn.Sequential(nn.ReLU(), nn.Linear(3, 1)), {}, "0 is a ReLU"),
    "a subclass": (lambda: nn.Sequential(Subclass(3, 1)), {}, "0 is a Subclass"),
    "a frozen bias": (lambda: nn.Linear(3, 1), {"random": "weight"}, "bias is not random"),
    "a convolution": (lambda: nn.Sequential(nn.Conv1d(1, 1, 1)), {}, "0 is a Conv1d"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_others_are_none_and_it_is_said_why(case):
    make, options, words = OTHERS[case]
    answer = found(make(), **options)
    assert isinstance(answer, str)
    assert words in answer


def test_parts_are_those_of_any_stack_whatever_is_random():
    """Float64, fixed and tied layers too: what they are is for others to judge."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2))).double()
    network[1].requires_grad_(False)
    parts = dense_parts(network)
    assert not isinstance(parts, str)
    assert [(name, activation) for name, _, activation in parts] == [("1", "relu"), ("3.0", "identity")]
    assert parts[0][1] is network[1]
    assert dense_parts(nn.Sequential(nn.Linear(3, 4), nn.GELU())) == "1 is a GELU"
