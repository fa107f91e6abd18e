"""What a posterior knows about each weight: how far from zero it is, in units of its own uncertainty.

    signal to noise = |mean| / std                                                                             (1)
    in decibels     = 20 log10(|mean| / std)                                                                   (2)

(1) is what Blundell et al. (2015, section 5.1 and figure 4) prune by. A weight with ratio r has the wrong sign with
probability Phi(-r): at 0 dB that is one draw in six. (2) takes the ratio as one of amplitudes, as usual for signals;
the paper draws decibels and does not say which of the two it means.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bayesprop.posteriors import Posterior

__all__ = ["decibels", "ratio", "signal_to_noise"]


def signal_to_noise(posterior: Posterior) -> dict[str, Tensor]:
    """Equation (1) of each random parameter by name, in the shape of `posterior.mean(name)`.

    A weight without any spread is known: its ratio is infinite, or 0 where it is zero, as after pruning.
    """
    posterior.needs("moments", "the signal to noise of weights")
    found = {}
    for block in posterior.model.layout.of_kind("random"):
        found[block.name] = ratio(posterior.mean(block.name), posterior.std(block.name))
    return found


def ratio(mean: Tensor, std: Tensor) -> Tensor:
    """|mean| / std, and 0 where both are 0."""
    return torch.where(mean == 0, torch.zeros_like(mean), mean.abs() / std)


def decibels(signal: Tensor) -> Tensor:
    """Equation (2) of ratios (1): 0 for 1, 20 for 10, minus infinity for 0."""
    return 20.0 * signal.log10()
