"""The operations that rules understand, reduced to one form.

A rule of local reparameterisation or of flipout needs to know only that an operation is linear in its weight and
bias,

    output = apply(input, weight, bias),                                                                             (1)

and which dimensions of input and output are channels, that is, connected by the weight. `read` brings the arguments
of a torch function into this form, so that each rule is written once, for F.linear, the forms of `x @ w`, all
convolutions and F.embedding alike. Arguments for which (1) does not hold with `input` as plain data (a weight on
the left of a product, an embedding that renormalises its rows) are not read, and the operation then sees an
ordinary sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesprop.random_weights.draw import Draw
from bayesprop.random_weights.random_weight import Function, RandomWeight, Rule

__all__ = ["Form", "Operation", "draw_of", "mean_of", "read", "rules"]

Form = Literal["linear", "convolution", "embedding"]


@dataclass(frozen=True)
class Operation:
    """Equation (1) with its arguments.

    `input_channel` is the dimension of the input that the weight contracts (None for an embedding, whose input are
    indices), `output_channel` the dimension of the output that it creates.
    """

    form: Form
    input: Tensor
    weight: Tensor
    bias: Tensor | None
    apply: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    input_channel: int | None
    output_channel: int

    @property
    def example_dim(self) -> int | None:
        """The dimension that counts examples, as the random weight has been told."""
        for tensor in (self.weight, self.bias):
            if isinstance(tensor, RandomWeight):
                return tensor.example_dim
        return None

    @property
    def draw(self) -> Draw:
        """The draw that owns the noise of this operation: the weight's, or the bias's if only the bias is random."""
        draw = draw_of(self.weight) or draw_of(self.bias)
        assert draw is not None  # rules are asked only when one of the two is random
        return draw

    def counts_examples(self, dim: int | None) -> bool:
        """Whether `dim` of the input can be the one that counts examples: it exists, and the weight does not mix it."""
        if dim is None or not 0 <= dim < self.input.dim():
            return False
        if self.form == "convolution":
            return dim == 0 and self.input.dim() == self.weight.dim()
        return self.input_channel is None or dim != self.input_channel % self.input.dim()

    def uses_once(self, example_dim: int) -> bool:
        """Whether each example meets the weight at one position only. Positions of a convolution always share it."""
        shape = list(self.input.shape)
        if self.input_channel is not None:
            shape[self.input_channel] = 1
        shape[example_dim] = 1
        return self.form != "convolution" and math.prod(shape) == 1

    def along(self, tensor: Tensor, channel: int, example_dim: int) -> list[int]:
        """The shape that has one entry per example and channel of `tensor`, and broadcasts over its positions."""
        kept = {channel % tensor.dim(), example_dim}
        return [size if dim in kept else 1 for dim, size in enumerate(tensor.shape)]


def draw_of(tensor: Tensor | None) -> Draw | None:
    """The draw of a random weight; None for everything else."""
    return tensor.draw if isinstance(tensor, RandomWeight) else None


def mean_of(tensor: Any) -> Any:
    """The mean of a random weight; everything else as it is."""
    return tensor.draw.mean if isinstance(tensor, RandomWeight) else tensor


def _linear(function: Function, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Operation | None:
    if weight.dim() != 2:
        return None
    return Operation("linear", input, weight, bias, function, -1, -1)


def _matmul(function: Function, *operands: Tensor, **options: Any) -> Operation | None:
    if options or len(operands) != 2 or operands[1].dim() != 2:
        return None
    return Operation("linear", operands[0], operands[1], None, lambda x, w, b: torch.matmul(x, w), -1, -1)


def _addmm(function: Function, *operands: Tensor, **options: Any) -> Operation | None:
    if options or len(operands) != 3:
        return None
    bias, input, weight = operands
    if isinstance(bias, RandomWeight) and bias.dim() != 1:
        return None

    def apply(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        return torch.mm(x, w) if b is None else torch.addmm(b, x, w)

    return Operation("linear", input, weight, bias, apply, -1, -1)


def _convolution(
    function: Function, input: Tensor, weight: Tensor, bias: Tensor | None = None, *rest: Any, **options: Any
) -> Operation:
    def apply(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        return function(x, w, b, *rest, **options)

    return Operation("convolution", input, weight, bias, apply, 1, 1)


def _embedding(
    function: Function,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    *rest: Any,
    **options: Any,
) -> Operation | None:
    if max_norm is not None:
        return None

    def apply(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        return function(x, w, padding_idx, None, *rest, **options)

    return Operation("embedding", input, weight, None, apply, None, -1)


_READERS: Mapping[Function, Callable[..., Operation | None]] = {
    F.linear: _linear,
    torch.matmul: _matmul,
    torch.mm: _matmul,
    Tensor.matmul: _matmul,
    Tensor.mm: _matmul,
    Tensor.__matmul__: _matmul,
    torch.addmm: _addmm,
    Tensor.addmm: _addmm,
    F.conv1d: _convolution,
    F.conv2d: _convolution,
    F.conv3d: _convolution,
    F.conv_transpose1d: _convolution,
    F.conv_transpose2d: _convolution,
    F.conv_transpose3d: _convolution,
    F.embedding: _embedding,
}


def read(function: Function, args: Any, kwargs: Any) -> Operation | None:
    """The operation that this call of a torch function is; None when it is not of the form (1)."""
    reader = _READERS.get(function)
    operation = reader(function, *args, **kwargs) if reader is not None else None
    return None if operation is None or isinstance(operation.input, RandomWeight) else operation


def _answer(function: Function, evaluate: Callable[[Operation, int], Tensor], *args: Any, **kwargs: Any) -> Any:
    operation = read(function, args, kwargs)
    if operation is None:
        return NotImplemented
    example_dim = operation.example_dim
    if example_dim is None or not operation.counts_examples(example_dim):
        return NotImplemented
    return evaluate(operation, example_dim)


def rules(evaluate: Callable[[Operation, int], Tensor]) -> Mapping[Function, Rule]:
    """The rule of each torch function that can be read, from one `evaluate(operation, example_dim)`."""
    return MappingProxyType({function: partial(_answer, function, evaluate) for function in _READERS})
