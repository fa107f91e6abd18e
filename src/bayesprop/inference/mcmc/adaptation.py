"""What a Hamiltonian chain learns during its warm-up: step size, scales, and how long its trajectories are.

*Step size* e, one for all chains, by dual averaging towards a share d of accepted proposals. With a the mean acceptance
probability of the chains at adaptation step t since the last restart,

    h <- (1 - 1 / (t + 10)) h + (d - a) / (t + 10);   log e = m - sqrt(t) h / 0.05;   mean weighted by t^-0.75     (1)

*Scales* by the variance within chains over windows that double in length, between the first 15 % and the last 10 % of
the warm-up.

*Length* T by ascending ChEES, the change of squared distance from the centre c, from q to q' with velocity v':

    d/dlogT  E (|q' - c|^2 - |q - c|^2)^2 / 4  =  E [(|q' - c|^2 - |q - c|^2) (q' - c) . v' h T]                  (2)

in units of the scales; h is the share of T that a trajectory takes, and the centre the running mean of each chain.
Shares come from a van der Corput sequence, so that no period of the target can lock in.

References: Hoffman, Gelman, "The No-U-Turn Sampler", JMLR 2014 (equation 1, windows as in Stan); Hoffman, Radul,
Sountsov, "An Adaptive-MCMC Scheme for Setting Trajectory Lengths in Hamiltonian Monte Carlo", AISTATS 2021 (2).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Spread", "Tuning", "chees_slope", "jitter_of", "window_ends"]

FIRST_WINDOW = 25
DELAY, GAIN, FORGETTING = 10.0, 0.05, 0.75  # t_0, gamma and kappa of Hoffman and Gelman
LENGTH_RATE, LENGTH_MEMORY = 0.05, 0.95  # of Adam without momentum on log T
PRIOR_DRAWS = 5.0  # draws that the scales so far count for, as in Stan


def window_ends(warm_up: int) -> tuple[int, ...]:
    """After how many trajectories the scales are renewed.

    >>> window_ends(1000)
    (175, 225, 325, 900)
    """
    at, last, size = int(0.15 * warm_up), int(0.9 * warm_up), FIRST_WINDOW
    ends: list[int] = []
    while last - at >= FIRST_WINDOW // 2:
        at = at + size if last - at >= 3 * size else last
        ends.append(at)
        size *= 2
    return tuple(ends)


def jitter_of(index: int, jitter: float) -> float:
    """Which share of the length trajectory number `index` takes: between 1 - jitter and 1, evenly spread.

    >>> [jitter_of(index, 1.0) for index in range(3)]
    [0.5, 0.25, 0.75]
    """
    share, weight, rest = 0.0, 0.5, index + 1
    while rest:
        share += weight * (rest & 1)
        rest, weight = rest >> 1, 0.5 * weight
    return 1.0 - jitter + jitter * share


def chees_slope(start: Tensor, end: Tensor, velocity: Tensor, acceptance: Tensor, length: float) -> float:
    """Equation (2) for positions relative to the centre, in units of the scales, after a time of `length` = h T: the
    mean over chains, weighted by acceptance. A proposal that is not finite has no weight."""
    start, end, velocity = start.double(), end.double(), velocity.double()
    change = end.square().sum(1) - start.square().sum(1)
    slope = length * change * (end * velocity).sum(1)
    weight = torch.where(torch.isfinite(slope), acceptance, 0.0)
    return float((weight * slope.nan_to_num(0.0, 0.0, 0.0)).sum() / weight.sum().clamp_min(1e-300))


@dataclass
class Tuning:
    """The numbers of equations (1) and (2). They live in the state as scalars on the CPU: the loop over leapfrog steps
    asks for them."""

    log_step: float = 0.0
    log_step_mean: float = 0.0
    centre: float = 0.0
    error: float = 0.0
    since: float = 0.0
    log_length: float = 0.0
    log_length_mean: float = 0.0
    slope_square: float = 0.0
    slopes: float = 0.0

    @classmethod
    def read(cls, tensors: Mapping[str, Tensor]) -> Tuning:
        return cls(**{name: float(tensor) for name, tensor in tensors.items()})

    def tensors(self) -> dict[str, Tensor]:
        return {name: torch.tensor(value, dtype=torch.float64) for name, value in dataclasses.asdict(self).items()}

    def restart(self, step_size: float) -> None:
        """Begin dual averaging again near a step size; trajectories keep their number of steps."""
        ratio = math.log(step_size) - self.log_step
        self.log_step = self.log_step_mean = math.log(step_size)
        self.centre, self.error, self.since = math.log(10.0 * step_size), 0.0, 0.0
        self.log_length = self.log_length_mean = self.log_length + ratio

    def adapt_step(self, acceptance: float, wanted: float) -> None:
        """Equation (1)."""
        self.since += 1.0
        self.error += ((wanted - acceptance) - self.error) / (self.since + DELAY)
        self.log_step = self.centre - math.sqrt(self.since) / GAIN * self.error
        self.log_step_mean += self.since**-FORGETTING * (self.log_step - self.log_step_mean)

    def adapt_length(self, slope: float, longest: int) -> None:
        """A step up (2), by Adam without momentum; a length is between one step and `longest` of them."""
        self.slopes += 1.0
        self.slope_square += (1.0 - LENGTH_MEMORY) * (slope * slope - self.slope_square)
        size = math.sqrt(self.slope_square / (1.0 - LENGTH_MEMORY**self.slopes))
        if size > 0.0:
            self.log_length += LENGTH_RATE * slope / size
        low, high = self.log_step, self.log_step + math.log(longest)
        self.log_length = min(max(self.log_length, low), high)
        self.log_length_mean += max(self.since, 1.0) ** -FORGETTING * (self.log_length - self.log_length_mean)


@dataclass
class Spread:
    """Running mean and sum of squared deviations of each chain, (particles, columns), since the window began."""

    mean: Tensor
    squares: Tensor
    count: Tensor

    @classmethod
    def empty(cls, theta: Tensor) -> Spread:
        return cls(torch.zeros_like(theta), torch.zeros_like(theta), torch.zeros((), dtype=torch.float64))

    def add(self, theta: Tensor) -> None:
        """Welford's update."""
        self.count += 1.0
        before = theta - self.mean
        self.mean.add_(before / float(self.count))
        self.squares.addcmul_(before, theta - self.mean)

    def renewed(self, scale: Tensor) -> Tensor:
        """Scales from the variance within all chains, after which a new window begins: (particles, columns).

        The scales so far count as five draws more; columns whose scale is 0 stay where they are.
        """
        chains, draws = self.mean.shape[0], float(self.count)
        within = self.squares.sum(0, keepdim=True) / (chains * max(draws - 1.0, 1.0))
        variance = (chains * draws * within + PRIOR_DRAWS * scale.square()) / (chains * draws + PRIOR_DRAWS)
        self.squares.zero_()
        self.count.zero_()
        return torch.where(scale > 0.0, variance.sqrt(), 0.0)
