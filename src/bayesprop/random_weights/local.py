"""The rules of local reparameterisation: the noise of the weights moved into the outputs.

If each example meets the weight once (the rows of a matrix in F.linear or `x @ w`, one index per example in
F.embedding), the outputs of an example, given its input, are independent Gaussians,

    mean      m = x mean_w + mean_b                                                                                  (1)
    variance  v = x^2 scale_w^2 + scale_b^2                                                                          (2)
    output      = m + sqrt(v) * noise,    noise ~ N(0, 1) per example and output.                                    (3)

(3) is one sample of the weight per example, independent between examples; the weight itself is never drawn.

Where positions of an example share the weight (convolutions, sequences), outputs at two positions are correlated
through it. Independent noise per position has the right marginals and another joint distribution, so that the
expected log-likelihood of a network is that of a different posterior: a biased bound. There these rules use
flipout, which is exact for the joint distribution within an example.

Reference: Kingma, Salimans, Welling (2015), Variational Dropout and the Local Reparameterization Trick.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bayesprop.random_weights import flipout, operations
from bayesprop.random_weights.operations import Operation, draw_of, mean_of

__all__ = ["RULES", "evaluate", "root"]


def root(variance: Tensor) -> Tensor:
    """sqrt(v), with derivative 0 instead of infinity where v = 0 (a row of zeros, a scale that is switched off)."""
    positive = variance > 0
    return torch.where(positive, torch.where(positive, variance, 1.0).sqrt(), 0.0)


def _deviation(operation: Operation) -> Tensor:
    """The square root of equation (2)."""
    weight, bias = draw_of(operation.weight), draw_of(operation.bias)
    if weight is None:
        assert bias is not None  # one of the two is random
        return bias.scale
    if operation.form == "embedding":
        return operation.apply(operation.input, weight.scale, None)
    variance_of_bias = None if bias is None else bias.scale.square()
    return root(operation.apply(operation.input.square(), weight.scale.square(), variance_of_bias))


def evaluate(operation: Operation, example_dim: int) -> Tensor:
    """Equation (3) where each example meets the weight once, flipout elsewhere."""
    if not operation.uses_once(example_dim):
        return flipout.evaluate(operation, example_dim)
    output = operation.apply(operation.input, mean_of(operation.weight), mean_of(operation.bias))
    draw = operation.draw
    noise = draw.source.normal(output.shape, output.dtype, draw.request("output noise"))
    return output + _deviation(operation) * noise


RULES = operations.rules(evaluate)
