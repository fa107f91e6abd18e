"""A prior that has met a network: densities, gradients and divergences on rows of columns.

Columns with the same family of densities form one group, whatever parameters and patterns they come from, and a group
is evaluated by one formula on one row. Arguments that are the same everywhere stay Python floats; others are vectors.

With column x, weight w, latents t and a group's scale split into non-centred factors s(t) and centred factors c(t),

    non-centred:  x ~ p(. ; 0, c(t)),  w = loc + s(t) x             centred only:  x ~ p(. ; loc, c(t)),  w = x     (1)
    log p(x, t) = sum log p(x | t) + sum [log p(scale) + log |d scale / d t|]                                      (2)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from bayesprop.distributions.elementwise import Elementwise, Family, Number
from bayesprop.distributions.hyperpriors import Hyperprior
from bayesprop.errors import ConfigurationError
from bayesprop.latents import Latent
from bayesprop.layout import Block
from bayesprop.priors.constants import PerParticle, Vector
from bayesprop.priors.hierarchical import Spread

__all__ = ["BoundPrior", "Group", "Vector"]

SUMMED = 1 << 20  # columns whose divergence is summed at a time


@dataclass(frozen=True, eq=False)
class Group:
    """Columns that share one family of densities. `factors` is empty for a fixed scale, which then is an argument."""

    density: Elementwise
    columns: slice | Vector
    size: int
    arguments: Mapping[str, float | Vector]
    factors: tuple[Spread, ...] = ()

    @property
    def non_centred(self) -> bool:
        return any(not factor.centred for factor in self.factors)

    def read(self, theta: Tensor) -> Tensor:
        return theta[..., self.columns if isinstance(self.columns, slice) else self.columns.like(theta)]

    def argument(self, name: str, theta: Tensor) -> Number:
        value = self.arguments[name]
        return value.like(theta) if isinstance(value, Vector) else value

    def values(self, theta: Tensor) -> tuple[Number, ...]:
        """The density's arguments for the columns, in its order: a non-centred column has location 0."""
        skip = "loc" if self.non_centred else None
        return tuple(0.0 if name == skip else self.argument(name, theta) for name in self.density.parameters)

    def log_scale(self, theta: Tensor, centred: bool) -> Tensor | None:
        """log c(t) or log s(t) of equation (1), (..., size) or (..., 1); None where there is no such factor."""
        parts = [factor(theta) for factor in self.factors if factor.centred == centred]
        return sum(parts[1:], start=parts[0]) if parts else None

    def log_density(self, theta: Tensor) -> Tensor:
        """log p(x | t), elementwise."""
        column, log_scale = self.read(theta), self.log_scale(theta, centred=True)
        if log_scale is None:
            return self.density.log_density(column, *self.values(theta))
        loc = 0.0 if self.non_centred else self.argument("loc", theta)
        standard = {"loc": 0.0, "scale": 1.0}
        rest = (standard[n] if n in standard else self.argument(n, theta) for n in self.density.parameters)
        return self.density.log_density((column - loc) * torch.exp(-log_scale), *rest) - log_scale

    def weights(self, theta: Tensor) -> Tensor:
        column, log_scale = self.read(theta), self.log_scale(theta, centred=False)
        return column if log_scale is None else self.argument("loc", theta) + torch.exp(log_scale) * column

    def from_weights(self, weights: Tensor, theta: Tensor) -> Tensor:
        weight, log_scale = self.read(weights), self.log_scale(theta, centred=False)
        return weight if log_scale is None else (weight - self.argument("loc", theta)) * torch.exp(-log_scale)

    def moments(self, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """Moments of loc + s x where x and log s are independent Gaussians, so that s is log-normal."""
        m, s = self.read(mean), self.read(std)
        log_mean = self.log_scale(mean, centred=False)
        if log_mean is None:
            return m, s
        parts = [factor(std).square() for factor in self.factors if not factor.centred]
        log_variance = sum(parts[1:], start=parts[0])
        expected = torch.exp(log_mean + 0.5 * log_variance)
        spread = torch.sqrt(torch.expm1(log_variance) * m.square() + torch.exp(log_variance) * s.square())
        return self.argument("loc", mean) + expected * m, expected * spread


@dataclass(frozen=True, eq=False)
class BoundPrior:
    """A prior over the columns of a layout. Columns to the right of those it knows are ignored everywhere.

    `random` is the number W of weights, `size` the number H of weights and latents. `order` undoes the order of the
    groups; None where they lie in order. `hyperpriors` are the latents again, those with equal hyperpriors as one, each
    with the hyperprior itself.
    """

    random: int
    latents: tuple[Latent, ...]
    groups: tuple[Group, ...]
    hyperpriors: tuple[tuple[slice, Latent, Hyperprior], ...]
    order: Vector | None
    descriptions: Mapping[str, str]

    @cached_property
    def size(self) -> int:
        return self.random + sum(latent.size for latent in self.latents)

    @cached_property
    def centred(self) -> bool:
        """Whether the random columns are the weights themselves."""
        return not any(group.non_centred for group in self.groups)

    @cached_property
    def family(self) -> Family | None:
        """The one family with plain numbers that covers all columns of every particle, if there is one."""
        return self.families[0] if len(self.families) == 1 else None

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """The same where particles have numbers of their own: one for each of them, one for all, or none at all."""
        group = self.groups[0]
        if len(self.groups) > 1 or group.factors:
            return ()
        rows: list[list[float]] = []
        for name in group.density.parameters:
            value = group.arguments[name]
            if isinstance(value, PerParticle) and value.values.shape[1] == 1:
                rows.append(value.values[:, 0].tolist())
            elif not isinstance(value, Vector):
                rows.append([value])
            else:
                return ()
        count = max(map(len, rows), default=1)
        wide = [row if len(row) == count else row * count for row in rows]
        return tuple(Family(group.density.name, tuple(row[p] for row in wide)) for p in range(count))

    def _enough(self, theta: Tensor, columns: int) -> None:
        if theta.shape[-1] < columns:
            raise ConfigurationError(
                "the prior covers more columns than it was given",
                received=f"a tensor of shape {list(theta.shape)}",
                expected=f"(..., {columns}) or wider: {self.random} weights and {self.size - self.random} latents",
            )

    def _gathered(self, part: Callable[[Group], Tensor]) -> Tensor:
        """One row of W columns from what each group says about its own."""
        parts = [part(group) for group in self.groups]
        row = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        return row if self.order is None else row[..., self.order.like(row)]

    # -- density ----------------------------------------------------------------------------------------------------

    def log_density(self, theta: Tensor) -> Tensor:
        """Equation (2): (..., H) to (...)."""
        self._enough(theta, self.size)
        total = self.groups[0].log_density(theta).sum(-1)
        for group in self.groups[1:]:
            total = total + group.log_density(theta).sum(-1)
        for columns, latent, _ in self.hyperpriors:
            total = total + latent.unconstrained_log_density(theta[..., columns])
        return total

    def log_density_columns(self, theta: Tensor) -> Tensor:
        """log p(x | t) of each random column: (..., H) to (..., W)."""
        self._enough(theta, self.size)
        return self._gathered(lambda group: group.log_density(theta))

    def score(self, theta: Tensor) -> Tensor:
        """The gradient of equation (2) in the shape of theta; in closed form when no scale is learnt."""
        self._enough(theta, self.size)
        if self.latents:
            return torch.func.grad(lambda columns: self.log_density(columns).sum())(theta)
        row = self._gathered(lambda group: group.density.score(group.read(theta), *group.values(theta)))
        return self._widened(row, theta)

    def prior_std(self) -> Tensor | None:
        """The standard deviation of each random column, float64 on the CPU; None unless all are finite and fixed, and
        the same for every particle.

        A non-centred column is standardised: its standard deviation is that of its family at scale 1.
        """
        here = torch.zeros((), dtype=torch.float64)

        def one(group: Group) -> Tensor:
            own = any(isinstance(value, PerParticle) for value in group.arguments.values())
            fixed = not own and not any(factor.centred for factor in group.factors)
            std = group.density.std(*group.values(here)) if fixed else math.inf
            return torch.as_tensor(std, dtype=torch.float64).expand(group.size)

        row = self._gathered(one)
        return row.clone() if bool(torch.isfinite(row).all()) else None

    # -- divergence from a Gaussian ---------------------------------------------------------------------------------

    @cached_property
    def has_kl(self) -> bool:
        """Whether KL(N(mean, std^2) || prior) has a closed form: every family has one, and no scale is learnt."""
        return not self.latents and all(group.density.kl is not None for group in self.groups)

    def kl(self, mean: Tensor, std: Tensor) -> Tensor | None:
        """Sum over columns of KL(N(mean, std^2) || prior): (..., W) to (...), float64 throughout.

        A few columns at a time where all have the same numbers: a large network should not need its size once more.
        """
        if not self.has_kl:
            return None
        group = self.groups[0]
        alike = self.order is None and not any(isinstance(value, Vector) for value in group.arguments.values())
        if len(self.groups) > 1 or not alike:
            columns = self.kl_columns(mean.double(), std.double())
            return None if columns is None else columns.sum(-1)
        self._enough(mean, self.random)
        assert group.density.kl is not None
        total = torch.zeros(mean.shape[:-1], dtype=torch.float64, device=mean.device)
        values = group.values(mean[..., :1].double())
        for start in range(0, self.random, SUMMED):
            part = slice(start, min(start + SUMMED, self.random))
            total = total + group.density.kl(mean[..., part].double(), std[..., part].double(), *values).sum(-1)
        return total

    def kl_columns(self, mean: Tensor, std: Tensor) -> Tensor | None:
        """The divergence of each column: (..., W)."""
        self._enough(mean, self.random)
        if not self.has_kl:
            return None

        def one(group: Group) -> Tensor:
            assert group.density.kl is not None
            return group.density.kl(group.read(mean), group.read(std), *group.values(mean))

        return self._gathered(one)

    def kl_gradients(self, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor] | None:
        """Derivatives of `kl` by mean and by std, each in their shape; None when `kl` is."""
        self._enough(mean, self.random)
        if not self.has_kl:
            return None

        def pair(group: Group) -> tuple[Tensor, Tensor]:
            assert group.density.kl_gradients is not None
            return group.density.kl_gradients(group.read(mean), group.read(std), *group.values(mean))

        pairs = {id(group): pair(group) for group in self.groups}
        by_mean, by_std = (self._gathered(lambda group, i=i: pairs[id(group)][i]) for i in (0, 1))
        return self._widened(by_mean, mean), self._widened(by_std, std)

    # -- columns and weights ----------------------------------------------------------------------------------------

    def weights(self, theta: Tensor) -> Tensor:
        """The network's weights (..., W) of columns (..., H): a view when nothing is non-centred."""
        if self.centred:
            self._enough(theta, self.random)
            return theta[..., : self.random]
        self._enough(theta, self.size)
        return self._gathered(lambda group: group.weights(theta))

    def columns(self, weights: Tensor, theta: Tensor) -> Tensor:
        """The inverse of `weights` for the latents in theta: (..., W) of weights to (..., W) of columns."""
        self._enough(theta, self.size)
        return weights if self.centred else self._gathered(lambda group: group.from_weights(weights, theta))

    def weight_moments(self, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the weights, each (..., W), if all columns are independent N(mean, std^2)."""
        if self.centred:
            self._enough(mean, self.random)
            return mean[..., : self.random], std[..., : self.random]
        self._enough(mean, self.size)
        pairs = {id(group): group.moments(mean, std) for group in self.groups}
        first, second = (self._gathered(lambda group, i=i: pairs[id(group)][i]) for i in (0, 1))
        return first, second

    def describe(self, block: Block) -> str:
        """The prior of one parameter, for people: Normal(0, 1)."""
        return self.descriptions[block.name]

    def _widened(self, row: Tensor, theta: Tensor) -> Tensor:
        """A row of W columns in theta's width: zeros in the columns that the prior ignores."""
        extra = theta.shape[-1] - row.shape[-1]
        return torch.nn.functional.pad(row, (0, extra)) if extra else row
