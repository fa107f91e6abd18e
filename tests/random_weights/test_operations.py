"""What rules read: each torch function in the form output = apply(input, weight, bias), linear in weight and bias."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bayesprop import random_weights as rw
from bayesprop.random_weights import operations
from bayesprop.random_weights.operations import Operation, draw_of, mean_of, read


def _numbers(*shape: int, seed: int = 2) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _weight(mean: Tensor, example_dim: int | None = 0) -> rw.RandomWeight:
    source = rw.NoiseSource(torch.tensor([3, 1]))
    return rw.RandomWeight.create(mean, torch.full_like(mean, 0.1), None, {}.get, source, example_dim=example_dim)


X, W, B = _numbers(5, 4), _numbers(3, 4, seed=3), _numbers(3, seed=4)
INDICES = torch.tensor([[0, 2], [1, 1], [2, 0]])

# name: (function, arguments with weight and bias at the named places, options, form, input channel, output channel)
READ: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str, int | None, int]] = {
    "linear": (F.linear, (X, W, B), {}, "linear", -1, -1),
    "linear without bias": (F.linear, (X, W), {}, "linear", -1, -1),
    "linear by name": (F.linear, (), {"input": X, "weight": W, "bias": B}, "linear", -1, -1),
    "matmul": (torch.matmul, (X, W.T), {}, "linear", -1, -1),
    "a method": (Tensor.matmul, (_numbers(5, 2, 4), W.T), {}, "linear", -1, -1),
    "mm": (torch.mm, (X, W.T), {}, "linear", -1, -1),
    "the operator": (Tensor.__matmul__, (X, W.T), {}, "linear", -1, -1),
    "addmm": (torch.addmm, (B, X, W.T), {}, "linear", -1, -1),
    "conv1d": (F.conv1d, (_numbers(2, 4, 9), _numbers(6, 2, 3), _numbers(6), 3, 2, 1, 2), {}, "convolution", 1, 1),
    "conv2d": (
        F.conv2d,
        (_numbers(2, 2, 6, 5), _numbers(3, 2, 3, 2), None),
        {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)},
        "convolution",
        1,
        1,
    ),
    "conv2d same": (
        F.conv2d,
        (_numbers(2, 2, 5, 4), _numbers(2, 1, 3, 3), _numbers(2)),
        {"padding": "same", "groups": 2},
        "convolution",
        1,
        1,
    ),
    "conv3d": (F.conv3d, (_numbers(2, 2, 3, 4, 5), _numbers(4, 2, 1, 2, 3)), {"stride": 2}, "convolution", 1, 1),
    "conv_transpose1d": (
        F.conv_transpose1d,
        (_numbers(2, 4, 5), _numbers(4, 3, 3), _numbers(6), 3, 1, 2, 2),
        {},
        "convolution",
        1,
        1,
    ),
    "conv_transpose2d": (
        F.conv_transpose2d,
        (_numbers(2, 2, 4, 3), _numbers(2, 3, 3, 2)),
        {"stride": (2, 3), "output_padding": (1, 2)},
        "convolution",
        1,
        1,
    ),
    "conv_transpose3d": (
        F.conv_transpose3d,
        (_numbers(2, 2, 2, 3, 2), _numbers(2, 3, 2, 2, 2)),
        {"dilation": 2},
        "convolution",
        1,
        1,
    ),
    "embedding": (F.embedding, (INDICES, _numbers(4, 3), 1), {"scale_grad_by_freq": True}, "embedding", None, -1),
}


def _read(case: str) -> tuple[Operation, Tensor]:
    """The operation as a rule would see it, and what the function itself answers."""
    function, arguments, options, *_ = READ[case]
    expected = function(*arguments, **options)
    operation = read(function, arguments, options)
    assert operation is not None
    return operation, expected


@pytest.mark.parametrize("case", READ)
def test_what_is_read_is_what_the_function_does(case):
    operation, expected = _read(case)
    assert (operation.form, operation.input_channel, operation.output_channel) == READ[case][3:]
    answer = operation.apply(operation.input, operation.weight, operation.bias)
    torch.testing.assert_close(answer, expected, rtol=0, atol=0)


@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"scale_grad_by_freq": True}])
def test_options_that_only_a_gradient_shows_are_kept(options):
    """Padding has no gradient, and that of a row may be divided by how often it was looked up."""
    table, found = _numbers(4, 3), []
    operation = read(F.embedding, (INDICES, table), options)
    assert operation is not None
    for call in (lambda w: F.embedding(INDICES, w, **options), lambda w: operation.apply(INDICES, w, None)):
        leaf = table.clone().requires_grad_()
        found += torch.autograd.grad(call(leaf).sum(), leaf)
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)
    counts = torch.tensor([2.0, 2.0, 0.0 if "padding_idx" in options else 2.0, 0.0], dtype=torch.float64)
    expected = counts / 2 if options.get("scale_grad_by_freq") else counts
    torch.testing.assert_close(found[1], expected[:, None].expand(4, 3))


@pytest.mark.parametrize("case", READ)
def test_what_is_read_is_linear_in_weight_and_bias(case):
    """apply(x, a w + c v, a b + c d) = a apply(x, w, b) + c apply(x, v, d): what both rules rest on."""
    operation, _ = _read(case)
    x, w, b = operation.input, operation.weight, operation.bias
    v, d = _numbers(*w.shape, seed=7), None if b is None else _numbers(*b.shape, seed=8)
    mixed = None if b is None or d is None else 0.5 * b - 2 * d
    together = operation.apply(x, 0.5 * w - 2 * v, mixed)
    apart = 0.5 * operation.apply(x, w, b) - 2 * operation.apply(x, v, d)
    torch.testing.assert_close(together, apart, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", READ)
def test_channels_are_where_the_weight_connects(case):
    """Changing one input channel of one example changes that example alone; the output channel has the bias's size."""
    operation, answer = _read(case)
    if operation.bias is not None:
        assert answer.shape[operation.output_channel] == operation.bias.numel()
    if operation.input_channel is not None:
        moved, channel = operation.input.clone(), operation.input_channel
        moved[0].select(channel if channel < 0 else channel - 1, 0).add_(1.0)
        changed = operation.apply(moved, operation.weight, operation.bias) - answer
        assert changed[0].abs().max() > 0
        assert changed[1:].abs().max() == 0
    assert operation.counts_examples(0)
    assert not operation.counts_examples(None)
    assert not operation.counts_examples(operation.input.dim())
    assert not operation.counts_examples(-1)


def test_the_table_above_has_every_function_that_is_read():
    same = {Tensor.mm: torch.mm, Tensor.addmm: torch.addmm}
    functions = {function for function, *_ in READ.values()}
    found = set(operations.rules(lambda operation, dim: operation.input))
    assert len(found) == 15
    assert {same.get(function, function) for function in found} == functions
    for function, twin in same.items():
        arguments = (X, W.T) if twin is torch.mm else (B, X, W.T)
        operation = read(function, arguments, {})
        assert operation is not None
        torch.testing.assert_close(operation.apply(operation.input, operation.weight, operation.bias), twin(*arguments))


@pytest.mark.parametrize(
    ("function", "arguments", "options"),
    [
        (F.linear, (X, _numbers(4)), {}),
        (torch.matmul, (X, _numbers(2, 4, 3)), {}),
        (torch.matmul, (X, W.T), {"out": torch.empty(5, 3, dtype=torch.float64)}),
        (torch.addmm, (B, X, W.T), {"beta": 2}),
        (torch.addmm, (_weight(_numbers(5, 3)), X, W.T), {}),
        (F.embedding, (INDICES, _numbers(4, 3), None, 1.0), {}),
        (F.linear, (_weight(X), W, B), {}),
        (torch.matmul, (_weight(W), X.T), {}),
        (torch.einsum, ("oi,bi->bo", W, X), {}),
        (F.layer_norm, (X, (4,), W[0]), {}),
    ],
    ids=[
        *("a vector as weight", "a stack of weights", "out=", "a factor", "a bias that is a matrix", "max_norm"),
        *("a random input", "a weight on the left", "einsum", "layer_norm"),
    ],
)
def test_what_has_no_such_form_is_not_read(function, arguments, options):
    assert read(function, arguments, options) is None


def test_examples_and_positions():
    def linear(*shape: int) -> Operation:
        found = read(F.linear, (_numbers(*shape), W), {})
        assert found is not None
        return found

    assert linear(5, 4).uses_once(0)
    assert linear(1, 5, 4).uses_once(1)  # one position, whatever stands before the examples
    assert not linear(2, 5, 4).uses_once(0)
    assert not linear(2, 5, 4).counts_examples(2)  # the weight mixes this dimension
    assert linear(2, 5, 4).counts_examples(1)
    convolution, _ = _read("conv1d")
    assert not convolution.uses_once(0)
    assert not convolution.counts_examples(2)  # pixels
    unbatched = read(F.conv1d, (_numbers(4, 9), _numbers(6, 4, 3)), {})
    assert unbatched is not None
    assert not unbatched.counts_examples(0)  # channels
    lookup = read(F.embedding, (torch.tensor([0, 2, 1]), _numbers(4, 3)), {})
    assert lookup is not None
    assert lookup.uses_once(0)
    sequences, _ = _read("embedding")
    assert not sequences.uses_once(0)


def test_signs_have_one_number_for_each_example_and_channel():
    images, answer = _read("conv2d")
    assert images.along(images.input, 1, 0) == [2, 2, 1, 1]
    assert images.along(answer, images.output_channel, 0) == [2, 3, 1, 1]
    sequences = read(F.linear, (_numbers(6, 5, 4), W), {})
    assert sequences is not None
    assert sequences.along(sequences.input, -1, 1) == [1, 5, 4]


def test_moments_of_what_may_be_random():
    random, bias = _weight(W, example_dim=1), _weight(B, example_dim=2)
    assert draw_of(random) is random.draw
    assert mean_of(random) is random.draw.mean
    assert (draw_of(W), draw_of(None), mean_of(W) is W, mean_of(None)) == (None, None, True, None)
    both, only_bias = read(F.linear, (X, random, bias), {}), read(F.linear, (X, W, bias), {})
    plain, _ = _read("linear")
    assert both is not None
    assert only_bias is not None
    assert (both.draw is random.draw, both.example_dim) == (True, 1)  # the weight owns the noise
    assert (only_bias.draw is bias.draw, only_bias.example_dim) == (True, 2)
    assert plain.example_dim is None


def test_a_rule_declines_where_examples_cannot_be_told():
    asked: list[int] = []

    def evaluate(operation: Operation, example_dim: int) -> Tensor:
        asked.append(example_dim)
        return operation.input

    linear = operations.rules(evaluate)[F.linear]
    for dim in (None, 2, 5, -1):
        assert linear(_numbers(2, 5, 4), _weight(W, example_dim=dim)) is NotImplemented
    assert linear(X, _weight(_numbers(4))) is NotImplemented
    assert asked == []
    assert linear(_numbers(2, 5, 4), _weight(W, example_dim=1)).shape == (2, 5, 4)
    assert asked == [1]
