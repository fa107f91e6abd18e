"""Stacks of dense layers on a GPU against autograd of the same products, in odd sizes."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from bayesprop.kernels import dense
from bayesprop.kernels.dense import Layer, Stack

FUNCTIONS = {"identity": lambda z: z, "relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}


def make(sizes: list[int], activation: str, bias: bool, behind: int = 0) -> tuple[Stack, int]:
    """Layers one after the other in theta, from column 5 on, and the number of columns."""
    layers, start = [], 5
    for inputs, outputs in pairwise(sizes):
        after = start + inputs * outputs
        layers.append(Layer(start, after if bias else -1, inputs, outputs, activation))
        start = after + (outputs if bias else 0)
    layers[-1] = Layer(layers[-1].weight, layers[-1].bias, layers[-1].inputs, layers[-1].outputs)
    return Stack(tuple(layers)), start + behind


def reference(stack: Stack, theta: Tensor, inputs: Tensor, samples: int) -> list[Tensor]:
    """What each layer puts out, in double precision."""
    found, h = [], inputs.repeat_interleave(samples, 0)
    for layer in stack.layers:
        weight = theta[:, layer.weight : layer.weight + layer.inputs * layer.outputs]
        h = h @ weight.view(-1, layer.outputs, layer.inputs).mT
        if layer.bias >= 0:
            h = h + theta[:, None, layer.bias : layer.bias + layer.outputs]
        h = FUNCTIONS[layer.activation](h)
        found.append(h)
    return found


def problem(stack: Stack, columns: int, particles: int, samples: int, rows: int, where: torch.device):
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(particles * samples, columns, generator=generator) * 0.4
    inputs = torch.randn(particles, rows, stack.layers[0].inputs, generator=generator)
    labels = torch.randint(stack.layers[-1].outputs, (particles, rows), generator=generator)
    return theta.to(where), inputs.to(where), labels.to(where)


CASES = {
    "odd": ([3, 7, 5, 2], "tanh", True, 1, 2, 9),
    "no biases": ([3, 7, 5, 2], "relu", False, 2, 1, 9),
    "one layer": ([6, 4], "identity", True, 2, 3, 5),
    "wide rows": ([16, 32, 16, 10], "sigmoid", True, 1, 1, 20),
    "many lanes": ([5, 33, 3], "relu", True, 4, 2, 17),
    "more classes than a narrow tile": ([4, 18, 40], "relu", True, 1, 2, 6),
}


@pytest.mark.parametrize("case", CASES)
def test_labels(interpreter, case):
    """Forward, the head, backward and all gradients: 1e-5 in single precision."""
    sizes, activation, bias, particles, samples, rows = CASES[case]
    stack, columns = make(sizes, activation, bias, behind=3)
    theta, inputs, labels = problem(stack, columns, particles, samples, rows, interpreter)
    outputs = dense.forward(stack, theta, inputs, "ieee", last=False)
    parts = dense.head(stack, theta, outputs, inputs, labels, "ieee")
    dense.backward(stack, theta, outputs, None, "ieee")
    gradient = dense.gradient(stack, inputs, outputs, columns, "ieee")

    leaf = theta.double().requires_grad_()
    logits = reference(stack, leaf, inputs.double(), samples)[-1]
    chosen = log_softmax(logits, -1).gather(-1, labels.repeat_interleave(samples, 0)[..., None])[..., 0]
    (expected,) = torch.autograd.grad(chosen.sum(), leaf)
    torch.testing.assert_close(parts.sum(1).double(), chosen.sum(1).detach(), rtol=1e-5, atol=1e-5)
    used = slice(5, columns - 3)
    torch.testing.assert_close(gradient[:, used].double(), expected[:, used], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_any_gradient_behind_the_last_layer(interpreter, case):
    sizes, activation, bias, particles, samples, rows = CASES[case]
    stack, columns = make(sizes, activation, bias)
    theta, inputs, _ = problem(stack, columns, particles, samples, rows, interpreter)
    outputs = dense.forward(stack, theta, inputs, "ieee")
    leaf = theta.double().requires_grad_()
    expected = reference(stack, leaf, inputs.double(), samples)
    for mine, theirs in zip(outputs, expected, strict=True):
        torch.testing.assert_close(mine.double(), theirs.detach(), rtol=1e-5, atol=1e-5)
    behind = torch.randn(outputs[-1].shape, generator=torch.Generator().manual_seed(4)).to(interpreter)
    dense.backward(stack, theta, outputs, behind, "ieee")
    gradient = dense.gradient(stack, inputs, outputs, columns, "ieee")
    (by_theta,) = torch.autograd.grad(expected[-1], leaf, behind.double())
    torch.testing.assert_close(gradient[:, 5:].double(), by_theta[:, 5:], rtol=1e-4, atol=1e-5)


def test_logits_that_overflow_an_exponential(interpreter):
    """log p is finite where exp(logit) is not."""
    stack, columns = make([2, 3], "identity", True)
    theta, inputs, labels = problem(stack, columns, 1, 1, 4, interpreter)
    theta *= 1000.0
    parts = dense.head(stack, theta, dense.forward(stack, theta, inputs, "ieee", last=False), inputs, labels, "ieee")
    logits = reference(stack, theta.double(), inputs.double(), 1)[-1]
    expected = log_softmax(logits, -1).gather(-1, labels[..., None]).sum()
    assert float(expected) < -500.0
    torch.testing.assert_close(parts.sum().double(), expected, rtol=1e-5, atol=0.0)
