"""Any `torch.distributions` distribution as a likelihood.

    y ~ factory(f(x))                                                                                       (1)

For what has no file of its own here: a mixture density, a beta, a zero-inflated count.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.distributions import Distribution

from bayesprop.data.tensors import to_tensor
from bayesprop.errors import ConfigurationError, DataError
from bayesprop.likelihoods.categorical import whole_numbers
from bayesprop.likelihoods.likelihood import Likelihood, Task, compact, same_rows, sum_targets, widen
from bayesprop.likelihoods.regression import finite_targets

__all__ = ["FromDistribution"]

_KINDS = ("classification", "count", "regression")
_lock = threading.RLock()


@contextlib.contextmanager
def _unvalidated() -> Iterator[None]:
    """Distributions made in this block do not look at their arguments: that would stop a GPU at every step.

    torch has this switch only for all distributions together, so it is put back afterwards.
    """
    with _lock:
        before = Distribution._validate_args
        Distribution.set_default_validate_args(False)
        try:
            yield
        finally:
            Distribution.set_default_validate_args(before)


@dataclass(frozen=True)
class FromDistribution(Likelihood):
    """A likelihood from a function that turns outputs (n, ...) into a distribution over n rows of targets.

    Args:
        factory: called with the network's outputs; returns a `torch.distributions.Distribution` whose shape (batch and
            event together) is that of the targets.
        kind: what the targets are. "classification" needs a distribution that can enumerate its support, whose k-th
            value is class k.

    The distribution's parameters are not validated inside training: `check` does it once. Quantiles come from samples.

    >>> import torch
    >>> from bayesprop import likelihoods
    >>> likelihood = likelihoods.FromDistribution(lambda f: torch.distributions.Laplace(f[:, 0], f[:, 1].exp()))
    >>> likelihood.log_prob(torch.zeros(3, 2), torch.ones(3), {})
    tensor([-1.6931, -1.6931, -1.6931])
    """

    factory: Callable[[Tensor], Distribution]
    kind: Literal["regression", "classification", "count"] = "regression"

    task: ClassVar[Task] = "regression"  # what an object says is `kind`, set below

    def __post_init__(self) -> None:
        if not callable(self.factory) or isinstance(self.factory, Distribution):
            raise ConfigurationError(
                "FromDistribution needs a function that makes the distribution from the network's outputs",
                received=f"factory={self.factory!r}",
                write="likelihoods.FromDistribution(lambda f: torch.distributions.Laplace(f[:, 0], f[:, 1].exp()))",
            )
        if self.kind not in _KINDS:
            raise ConfigurationError(
                "FromDistribution needs to know what the targets are",
                received=f"kind={self.kind!r}",
                expected=" or ".join(map(repr, _KINDS)),
                write='likelihoods.FromDistribution(factory, kind="regression")',
            )
        object.__setattr__(self, "task", self.kind)

    def encode(self, targets: Any) -> Tensor:
        if self.kind == "regression":
            return finite_targets(targets, self)
        return whole_numbers(to_tensor(targets, "targets"), "FromDistribution")

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        same_rows(self, outputs, targets)
        try:
            distribution = self.factory(outputs)
        except (ValueError, RuntimeError, IndexError, TypeError) as error:
            raise DataError(
                f"the factory of FromDistribution failed: {str(error).splitlines()[0]}",
                received=f"outputs {tuple(outputs.shape)}",
                expected="a function that works on these outputs and keeps parameters in their support",
                write="factory=lambda f: torch.distributions.Gamma(f[:, 0].exp(), f[:, 1].exp())  # for example",
            ) from error
        if not isinstance(distribution, Distribution):
            raise DataError(
                "the factory of FromDistribution must return a torch.distributions.Distribution",
                received=f"a {type(distribution).__name__}",
            )
        shape = distribution.batch_shape + distribution.event_shape
        rows = targets[: outputs.shape[0]]
        if len(shape) == 0 or _behind(shape) != _behind(rows.shape) or shape[0] != rows.shape[0]:
            raise DataError(
                "FromDistribution needs a distribution over rows like those of the targets",
                received=f"a distribution of shape {tuple(shape)} for targets {tuple(rows.shape)}",
                expected=f"batch shape and event shape together {tuple(rows.shape)}",
                write="factory=lambda f: torch.distributions.Poisson(f[:, 0].exp())  # (n,) from outputs (n, 1)",
            )
        if self.kind == "classification" and not distribution.has_enumerate_support:
            raise DataError(
                'FromDistribution(kind="classification") needs a distribution that can enumerate its classes',
                received=type(distribution).__name__,
                expected="for example torch.distributions.Categorical, or kind='count'",
            )
        support: Any = distribution.support
        inside = support.check(rows.reshape(shape).to(outputs.dtype)).reshape(rows.shape[0], -1).all(1)
        if not bool(inside.all()):
            row = int(torch.nonzero(~inside)[0, 0])
            raise DataError(
                f"a target is outside the support of {type(distribution).__name__}",
                received=f"{rows[row].tolist()} in row {row}",
                expected=f"values in {support}",
            )

    def _make(self, outputs: Tensor) -> Distribution:
        with _unvalidated():
            return self.factory(widen(outputs))

    def log_prob(self, outputs: Tensor, targets: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        with _unvalidated():  # some distributions make others inside log_prob
            distribution = self.factory(widen(outputs))
            shape = distribution.batch_shape + distribution.event_shape
            values = targets if tuple(targets.shape) == tuple(shape) else targets.reshape(shape)
            if values.is_floating_point():
                values = values.to(widen(outputs).dtype)
            return sum_targets(distribution.log_prob(values))

    def mean(self, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        if self.kind != "classification":
            return compact(self._make(outputs).mean)
        with _unvalidated():
            distribution = self.factory(widen(outputs))
            # (K, n, ...) log-probabilities of the classes, whatever the distribution's own parameters are.
            each = distribution.log_prob(distribution.enumerate_support()).exp()
        return compact(each.movedim(0, 1), keep=2)

    def variance(self, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        if self.kind == "classification":
            return super().variance(outputs, latents)
        return compact(self._make(outputs).variance)

    def sample(self, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        drawn = compact(self._make(outputs).sample())
        return drawn.long() if self.kind == "classification" else drawn


def _behind(shape: torch.Size) -> tuple[int, ...]:
    return tuple(size for size in shape[1:] if size != 1)
