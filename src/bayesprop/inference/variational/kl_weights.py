"""How much of the KL each minibatch of an epoch carries.

Minibatch i = 1..M gets the share pi_i of the KL, with sum_i pi_i = 1 over an epoch (Blundell et al. 2015, equation 9).
The functions here return M pi_i, so that 1 means "as in the ELBO" whatever the number of minibatches is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bayesprop.errors import ConfigurationError

__all__ = ["Geometric", "KLWeights", "Uniform", "Warmup", "as_weights"]

# (index of the minibatch from 0, their number M, progress of the whole training from 0 to 1) -> M pi_i
KLWeights = Callable[[int, int, float], float]


@dataclass(frozen=True)
class Uniform:
    """pi_i = 1 / M: every step minimises an unbiased estimate of the same objective."""

    def __call__(self, index: int, count: int, progress: float) -> float:
        return 1.0


@dataclass(frozen=True)
class Geometric:
    """pi_i = 2^(M-i) / (2^M - 1): the prior speaks first, then the data (Blundell et al. 2015, section 3.4).

    >>> sum(Geometric()(i, 7, 0.0) for i in range(7)) / 7
    1.0
    """

    def __call__(self, index: int, count: int, progress: float) -> float:
        # 2^(M-i) / (2^M - 1) = 2^-i / (1 - 2^-M): this form does not overflow. 2^-index is 0 beyond 1074 minibatches.
        return count * 2.0 ** -min(index + 1, 1074) / (1.0 - 2.0 ** -min(count, 1074))


@dataclass(frozen=True)
class Warmup:
    """From 0 to 1 linearly over the first `share` of the training, then `after`.

    Early on the noise is not known and every weight looks superfluous; a KL at full weight then switches units off that
    the data would have used, and mean-field inference does not switch them on again. The means find a good place first,
    and what is optimised from then on is the ELBO itself.
    """

    share: float = 0.5
    after: KLWeights = Uniform()

    def __post_init__(self) -> None:
        if not 0.0 < self.share <= 1.0:
            raise ConfigurationError(
                "Warmup: share is the part of the training in which the KL grows",
                received=f"{self.share}",
                expected="a number above 0 and up to 1",
                write="Warmup(share=0.5)",
            )

    def __call__(self, index: int, count: int, progress: float) -> float:
        return min(1.0, progress / self.share) * self.after(index, count, progress)


def as_weights(choice: str | KLWeights) -> KLWeights:
    """A schedule from its name or as it is."""
    named: dict[str, KLWeights] = {"uniform": Uniform(), "geometric": Geometric(), "warmup": Warmup()}
    if isinstance(choice, str):
        if choice not in named:
            raise ConfigurationError(
                f"no KL schedule is called {choice!r}", expected=", ".join(named), write='kl_weights="uniform"'
            )
        return named[choice]
    if not callable(choice):
        raise ConfigurationError(
            "kl_weights must be a name or a function of (index, count, progress)",
            received=repr(choice),
            write='kl_weights="uniform"',
        )
    return choice
