"""Hamilton's equations in steps, for all chains at once.

With scales s (one for each column; the mass matrix is diag(s^-2)) and a momentum r ~ N(0, 1) in units of them,

    H(theta, r) = -log p(theta, D) + |r|^2 / 2                                                                  (1)
    r <- r + e/2 s grad log p;    theta <- theta + e s r;    r <- r + e/2 s grad log p                          (2)

(2) is reversible (a trajectory with -r leads back), keeps volumes, and changes H by O(e^2), so that a Metropolis test
of exp(H - H') makes the law exact. A column with s = 0 does not move.

Reference: Neal, "MCMC using Hamiltonian dynamics", Handbook of Markov Chain Monte Carlo, 2011.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from bayesprop.inference.mcmc.target import Point

__all__ = ["energy", "trajectory"]

Density = Callable[[Tensor, Mapping[str, Tensor]], Point]


def energy(point: Point, momentum: Tensor) -> Tensor:
    """Equation (1), float64 (particles,)."""
    return 0.5 * momentum.double().square().sum(1) - point.value


def trajectory(
    density: Density, start: Point, momentum: Tensor, scale: Tensor, step_size: float, steps: int
) -> tuple[Point, Tensor]:
    """Where `steps` times (2) leads all chains, and the momentum there; one evaluation of the gradient each.

    Neither the start nor its momentum is written into.
    """
    point, stride = start, step_size * scale
    momentum = (stride * point.gradient).mul_(0.5).add_(momentum)
    for step in range(steps):
        point = density((stride * momentum).add_(point.theta), point.buffers)
        kick = stride * point.gradient
        momentum.add_(kick, alpha=0.5 if step == steps - 1 else 1.0)
    return point, momentum
