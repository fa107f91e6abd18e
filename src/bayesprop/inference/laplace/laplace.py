"""Laplace's approximation: a Gaussian at the mode, as wide as the curvature of the log joint says.

After the steps of a method that ends in a point theta*, one pass over the data gives

    q = N(theta*, (G + a H)^-1),   G = sum_i J_i^T F_i J_i,   H = diag(-d^2 log p(theta) / d theta^2)            (1)

with the Jacobian J_i of the outputs of row i, the Fisher information F_i of the likelihood in them (`output_fisher`)
and the prior's curvature H (`prior_curvature`). G is the generalised Gauss-Newton matrix, which is the Hessian of the
negative log-likelihood where the network is linear, and never indefinite elsewhere. Three forms:

    "full"         all M columns that have a distribution: M^2 numbers
    "diagonal"     only the diagonal of G + a H: the spread of each column given all others, as narrow as mean field
    "last_layer"   the full matrix over the weights of one layer; all others, and a learnt noise scale, are points

A learnt noise scale is a column like others, through its logarithm. The log evidence comes with the posterior
(`posterior.log_evidence`); it is exact for linear models with Gaussian noise, and an approximation as good as (1)
elsewhere. Given the points for "last_layer"; for "diagonal" the determinant is that of the diagonal.

References: MacKay, "A practical Bayesian framework for backpropagation networks", Neural Computation 1992. Immer,
Bauer, Fortuin, Raetsch, Khan, "Scalable Marginal Likelihood Estimation for Model Selection in Deep Learning", ICML
2021.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError, MemoryBudgetError
from bayesprop.inference.laplace.curvature import observed_precision
from bayesprop.inference.laplace.factors import diagonal_law, full_law
from bayesprop.inference.laplace.prior_curvature import check_prior
from bayesprop.inference.method import About, Info, Method
from bayesprop.layout import match
from bayesprop.model import Batch, Model, Place
from bayesprop.posteriors import Delta, DiagonalGaussian, FullGaussian, Posterior
from bayesprop.rng import Rng

__all__ = ["Laplace", "LaplaceState"]

FORMS = ("diagonal", "full", "last_layer")
GIBIBYTE = 2**30


@dataclass
class LaplaceState:
    """The state of the base method; `law`, which the last pass fills: mean, std or factor, columns and evidence."""

    base: Any
    law: dict[str, Tensor] = field(default_factory=dict)

    @property
    def buffers(self) -> dict[str, Tensor]:
        """Those of the base method."""
        return self.base.buffers


@dataclass(frozen=True)
class Laplace(Method[LaplaceState]):
    """Equation (1) of the module's docstring.

    Args:
        base: the method that finds the mode, `MAP()`, or an ensemble of it: a mixture of Gaussians then.
        hessian: "full", "diagonal" or "last_layer".
        prior_precision: the factor a on the precision of a normal prior; "evidence" for the one with the greatest
            evidence, at the mode that was found under the prior as it is.
        layer: for "last_layer", pattern(s) of the parameters that it means; None for the last module with random ones.
        memory_budget: GiB that the matrices of "full" and "last_layer" may take.

    >>> from bayesprop.inference import MAP
    >>> Laplace(MAP(), hessian="last_layer").population
    1
    """

    about: ClassVar[About | None] = About(
        approximates="the posterior around one mode by a Gaussian with the curvature there",
        cost="the steps of the base method, then a gradient for each row and output",
        choose="uncertainty for a network that is trained as usual, and evidence to compare models",
    )
    base: Method[Any]
    hessian: Literal["diagonal", "full", "last_layer"] = "full"
    prior_precision: float | Literal["evidence"] = 1.0
    layer: str | tuple[str, ...] | None = None
    memory_budget: float = 4.0

    def __post_init__(self) -> None:
        write = 'Laplace(MAP(), hessian="last_layer")'
        if isinstance(self.base, type) or not isinstance(self.base, Method):
            received = f"the class {self.base.__name__}" if isinstance(self.base, type) else repr(self.base)
            raise ConfigurationError("Laplace needs a method that finds the mode", received=received, write=write)
        faults = []
        if self.hessian not in FORMS:
            faults.append(f"hessian is one of {', '.join(map(repr, FORMS))}, got {self.hessian!r}")
        factor = self.prior_precision
        if isinstance(factor, bool) or not (factor == "evidence" or (isinstance(factor, int | float) and factor > 0)):
            faults.append(f'prior_precision is a positive factor or "evidence", got {factor!r}')
        if self.layer is not None and self.hessian != "last_layer":
            faults.append(f'layer belongs to hessian="last_layer", got {self.hessian!r}')
        if not self.memory_budget > 0:
            faults.append(f"memory_budget must be positive, got {self.memory_budget}")
        if faults:
            raise ConfigurationError("Laplace cannot work like this: " + "; ".join(faults), write=write)

    # -- what the base method says ------------------------------------------------------------------------------------

    @property
    def population(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the base method says, like the four below."""
        return self.base.population

    @property
    def needs_all_rows(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base.needs_all_rows

    @property
    def bootstrap(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base.bootstrap

    @property
    def steps(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base.steps

    @property
    def looks_at_host(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base.looks_at_host

    def resolved(self) -> Laplace:
        return replace(self, base=self.base.resolved())

    # -- the functions of a method ------------------------------------------------------------------------------------

    def init(self, model: Model, rng: Rng) -> LaplaceState:
        columns = self.columns(model)
        check_prior(model, columns, scaled=self.prior_precision != 1.0)
        if self.hessian != "diagonal":
            self._check_budget(model, rng.particles, len(columns))
        state = LaplaceState(self.base.init(model, rng))
        found = self.base.posterior(model, state.base)
        if not isinstance(found, Delta):
            raise ConfigurationError(
                "Laplace needs a method that ends in a point",
                received=f"{type(self.base).__name__}, whose posterior is a {type(found).__name__}",
                expected="MAP, or an ensemble of it",
                write=f'Laplace(MAP(), hessian="{self.hessian}")',
            )
        return state

    def numbers(self, place: Place, step: int) -> tuple[float | Tensor, ...]:
        """Those of the base method."""
        return self.base.numbers(place, step)

    def update(self, model: Model, state: LaplaceState, batch: Batch, rng: Rng) -> tuple[LaplaceState, Info]:
        state.base, info = self.base.update(model, state.base, batch, rng)
        return state, info

    def run(
        self, model: Model, state: LaplaceState, places: Iterable[tuple[Batch, Rng]]
    ) -> Iterator[tuple[LaplaceState, Info]]:
        """As the base method runs."""
        for base, info in self.base.run(model, state.base, places):
            state.base = base
            yield state, info

    def columns(self, model: Model) -> Tensor:
        """The numbers of the columns that get a spread."""
        layout = model.layout
        if self.hessian != "last_layer":
            return torch.arange(layout.latent, device=model.device)
        blocks = layout.of_kind("random")
        if self.layer is None:
            chosen = [block for block in blocks if block.module == blocks[-1].module]
        else:
            names = match(self.layer, [block.name for block in blocks], argument="layer")
            chosen = [block for block in blocks if block.name in names]
        return torch.cat([torch.arange(b.start, b.stop, device=model.device) for b in chosen])

    def finish(self, model: Model, state: LaplaceState, epoch: Callable[[], Iterator[Batch]], rng: Rng) -> LaplaceState:
        """The pass over the data."""
        state.base = self.base.finish(model, state.base, epoch, rng)
        found, columns = self.base.posterior(model, state.base), self.columns(model)
        theta, diagonal = found.moments()[0].detach(), self.hessian == "diagonal"
        matrix, value = observed_precision(model, theta, found.buffers, epoch, rng, columns, diagonal=diagonal)
        law = diagonal_law if diagonal else full_law
        spread, evidence = law(model, theta, matrix, value, columns, self.prior_precision)
        state.law = {"mean": theta.clone(), "spread": spread, "evidence": evidence}
        return state

    def posterior(self, model: Model, state: LaplaceState) -> Posterior:
        """The Gaussian; before the last pass, the point that the base method has reached."""
        found = self.base.posterior(model, state.base)
        if not state.law:
            return found
        mean, spread, evidence = (state.law[name] for name in ("mean", "spread", "evidence"))
        if self.hessian == "diagonal":
            return DiagonalGaussian(model, mean, spread, found.buffers, evidence=evidence)
        return FullGaussian(model, mean, spread, found.buffers, columns=self.columns(model), evidence=evidence)

    def memory(self, model: Model, particles: int, rows: int) -> int:
        """Bytes of the base method, and of the mean and the matrices behind it."""
        size, base = torch.finfo(model.dtype).bits // 8, self.base.memory(model, particles, rows)
        if self.hessian == "diagonal":
            return base + particles * model.layout.size * (8 + 2 * size)
        return base + particles * model.layout.size * size + self._matrices(model, particles, len(self.columns(model)))

    def _matrices(self, model: Model, particles: int, width: int) -> int:
        """A float64 precision and a factor for each particle, and three matrices while one is factorised."""
        return width**2 * (particles * (8 + torch.finfo(model.dtype).bits // 8) + 24)

    def _check_budget(self, model: Model, particles: int, width: int) -> None:
        """Refuse matrices that would take more than the budget, before a step is taken."""
        needed, allowed = self._matrices(model, particles, width), self.memory_budget * GIBIBYTE
        if needed <= allowed:
            return
        last = replace(self, hessian="last_layer").columns(model) if self.hessian == "full" else None
        fits = last is not None and self._matrices(model, particles, len(last)) <= allowed
        raise MemoryBudgetError(
            f'Laplace(hessian="{self.hessian}"): the matrices do not fit into their memory budget',
            received=f"{width:,} x {width:,} numbers"
            + (f" for each of {particles} particles" if particles > 1 else "")
            + f": {needed / GIBIBYTE:.2f} GiB",
            expected=f"at most memory_budget={self.memory_budget:g} GiB"
            + (f'; hessian="last_layer" has {len(last)} columns' if last is not None and fits else ""),
            write=('Laplace(MAP(), hessian="last_layer")  # or ' if fits else "")
            + f'Laplace(MAP(), hessian="diagonal")  # or memory_budget={math.ceil(needed / GIBIBYTE)}',
        )
