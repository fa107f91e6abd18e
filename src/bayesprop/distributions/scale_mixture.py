"""The mixture of two zero-mean normals of Blundell et al. (2015), equation (7).

    p(w) = pi N(w; 0, scale1^2) + (1 - pi) N(w; 0, scale2^2)                                               (1)
    d log p / dw = -w (r / scale1^2 + (1 - r) / scale2^2)                                                  (2)
    r = sigmoid(log pi + log N(w; 0, scale1^2) - log(1 - pi) - log N(w; 0, scale2^2))                      (3)

Both components stay logarithms until the end, and r and 1 - r are two sigmoids, so that far in the tail nothing
underflows and the gradient remains the one of the wide component. There is no closed form of the divergence from a
Gaussian.

The paper gives -log scale1 in {0, 1, 2} and -log scale2 in {6, 7, 8}; scale1 and scale2 here are standard deviations.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bayesprop.distributions.elementwise import Elementwise, Number, log
from bayesprop.distributions.normal import log_density as normal_log_density

__all__ = ["DENSITY", "log_density", "score"]


def _components(value: Tensor, pi: Number, scale1: Number, scale2: Number) -> tuple[Tensor, Tensor]:
    first = normal_log_density(value, 0.0, scale1) + log(pi)
    return first, normal_log_density(value, 0.0, scale2) + log(1.0 - pi)


def log_density(value: Tensor, pi: Number, scale1: Number, scale2: Number) -> Tensor:
    """Equation (1), its logarithm."""
    return torch.logaddexp(*_components(value, pi, scale1, scale2))


def score(value: Tensor, pi: Number, scale1: Number, scale2: Number) -> Tensor:
    """Equations (2) and (3)."""
    first, second = _components(value, pi, scale1, scale2)
    odds = first - second
    return -value * (torch.sigmoid(odds) / (scale1 * scale1) + torch.sigmoid(-odds) / (scale2 * scale2))


def std(pi: Number, scale1: Number, scale2: Number) -> Number:
    """sqrt(pi scale1^2 + (1 - pi) scale2^2)."""
    return (pi * scale1 * scale1 + (1.0 - pi) * scale2 * scale2) ** 0.5


DENSITY = Elementwise("scale_mixture", ("pi", "scale1", "scale2"), log_density, score, std)
