"""The rules of flipout: one weight perturbation per pass, with signs that make it different for each example.

With the perturbation D = scale * noise, and signs s (per example and input channel) and r (per example and output
channel),

    output_n = op(x_n, mean) + op(x_n * s_n, D) * r_n = op(x_n, mean + D * r_n s_n^T).                               (1)

The Gaussian is symmetric, so D * r_n s_n^T is distributed as D: for each example, (1) is exactly one sample of the
weight, seen alike by all positions of the example (pixels, time steps). Between two examples the perturbations are
uncorrelated, so that the variance of a gradient falls with the batch. The bias is perturbed by D_bias * r_n, which
is a sample of the bias, independent of the weight's, by the same argument. In an embedding s drops out: a row is
looked up, not summed.

What mixes examples (batch statistics) sees examples whose weights are uncorrelated rather than shared.

Reference: Wen, Vicol, Ba, Tran, Grosse (2018), Flipout: Efficient Pseudo-Independent Weight Perturbations on
Mini-Batches.
"""

from __future__ import annotations

from torch import Tensor

from bayesprop.random_weights import operations
from bayesprop.random_weights.operations import Operation, draw_of, mean_of

__all__ = ["RULES", "evaluate"]


def evaluate(operation: Operation, example_dim: int) -> Tensor:
    """Equation (1)."""
    input, output_channel = operation.input, operation.output_channel
    output = operation.apply(input, mean_of(operation.weight), mean_of(operation.bias))
    owner, source = operation.draw, operation.draw.source
    weight, bias = draw_of(operation.weight), draw_of(operation.bias)

    perturbation: Tensor
    if weight is None:
        assert bias is not None  # one of the two is random
        shape = [1] * output.dim()
        shape[output_channel] = -1
        perturbation = bias.perturbation.reshape(shape)
    else:
        if operation.input_channel is not None:
            shape = operation.along(input, operation.input_channel, example_dim)
            input = input * source.signs(shape, input.dtype, owner.request("input signs"))
        perturbation = operation.apply(input, weight.perturbation, None if bias is None else bias.perturbation)

    shape = operation.along(output, output_channel, example_dim)
    return output + perturbation * source.signs(shape, output.dtype, owner.request("output signs"))


RULES = operations.rules(evaluate)
