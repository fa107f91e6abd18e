"""A network with a random function added to it, another one for each member of an ensemble.

    f(x) = g(x; w) + scale p(x),    p the same architecture with random weights that are never trained          (1)

Far from the data the trained part g tends to a smooth nothing, and members of a plain ensemble agree there more than
they should; with (1) they disagree as much as the functions p do. For a linear network whose prior has the scale of p,
a member is a draw u = S (X^T y / s^2 + p / t^2) around the posterior mean, S the posterior covariance and t the prior's
deviation: exact in the mean, and a little narrow where the data are few and noisy.

The weights of p are buffers of the network: a `DeepEnsemble` draws them for each member, and they are saved with the
posterior. Without an ensemble p is the network as it was given.

Reference: Osband, Aslanides, Cassirer, "Randomized Prior Functions for Deep Reinforcement Learning", NeurIPS 2018.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from bayesprop.errors import ConfigurationError

__all__ = ["PriorFunction"]


class PriorFunction(nn.Module):
    """Equation (1): wrap your network in it before you make the model. `scale` is a number on the scale of outputs.

    >>> PriorFunction(nn.Linear(3, 1), scale=0.5)(torch.zeros(2, 3)).shape
    torch.Size([2, 1])
    """

    def __init__(self, network: nn.Module, scale: float = 1.0) -> None:
        super().__init__()
        if not scale > 0.0:
            raise ConfigurationError(
                "PriorFunction: scale must be positive", received=f"{scale}", write="PriorFunction(network, scale=1.0)"
            )
        recurrent = [name or "the network" for name, m in network.named_modules() if isinstance(m, nn.RNNBase)]
        if recurrent:
            raise ConfigurationError(
                "a random prior function of a recurrent network is not supported: torch keeps its weights in a list",
                received=", ".join(recurrent[:3]),
                expected="a network of layers that are no RNN, GRU or LSTM",
                write="DeepEnsemble(MAP(), bootstrap=True)  # another way to make members differ",
            )
        self.network, self.prior, self.scale = network, copy.deepcopy(network).eval(), float(scale)
        self.spreads: dict[str, float] = {}
        for name, module in self.prior.named_modules():
            fan_in = _fan_in(module)
            for key, parameter in list(module._parameters.items()):
                if parameter is None:
                    continue
                del module._parameters[key]
                module.register_buffer(key, parameter.detach().clone())
                if parameter.dim() > 1 or fan_in:
                    spread = math.sqrt((2.0 if parameter.dim() > 1 else 1.0) / (fan_in or parameter.shape[-1]))
                    self.spreads[f"{name}.{key}" if name else key] = spread

    def forward(self, *arguments: Any, **keywords: Any) -> Tensor:
        with torch.no_grad():
            prior = self.prior(*arguments, **keywords)
        return self.network(*arguments, **keywords) + self.scale * prior


def _fan_in(module: nn.Module) -> int:
    """Numbers that one unit of a layer sees; 0 for modules without a weight matrix, whose parameters stay as they
    are."""
    weight = module._parameters.get("weight")
    return math.prod(weight.shape[1:]) if weight is not None and weight.dim() > 1 else 0
