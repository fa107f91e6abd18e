"""Laplace's approximation: a Gaussian at the mode, as wide as the curvature of the log joint says.

After the steps of a method that ends in a point theta*, one pass over the data gives

    q = N(theta*, (G + a H)^-1),   G = sum_i J_i^T F_i J_i,   H = diag(-d^2 log p(theta) / d theta^2)            (1)

with the Jacobian J_i of the outputs of row i, the Fisher information F_i of the likelihood in them (`output_fisher`)
and the prior's curvature H (`prior_curvature`). G is the generalised Gauss-Newton matrix, which is the Hessian of the
negative log-likelihood where the network is linear, and never indefinite elsewhere. Five forms:

    "full"         all M columns that have a distribution: M^2 numbers
    "kron"         for each parameter a Kronecker product of two matrices (`kronecker`), as KFAC has it
    "diagonal"     only the diagonal of G + a H: the spread of each column given all others, as narrow as mean field
    "last_layer"   the full matrix over the weights of one layer; all others, and a learnt noise scale, are points
    "subnetwork"   the full matrix over some weights: those with the largest variance under "diagonal", or your choice

Predictions are those of the network's tangent at theta* unless asked otherwise (`posteriors.linearised`): the Gaussian
is that of the tangent, and draws of it, put into the network itself, predict worse than the mode.

A learnt noise scale is a column like others, through its logarithm. The log evidence comes with the posterior
(`posterior.log_evidence`); it is exact for linear models with Gaussian noise, and an approximation as good as (1)
elsewhere, given the points for "last_layer" and "subnetwork"; for "diagonal" and "kron" the determinant is that of the
approximation.

References: MacKay, "A practical Bayesian framework for backpropagation networks", Neural Computation 1992. Immer,
Bauer, Fortuin, Raetsch, Khan, "Scalable Marginal Likelihood Estimation for Model Selection in Deep Learning", ICML
2021. Ritter, Botev, Barber, "A Scalable Laplace Approximation for Neural Networks", ICLR 2018. Daxberger et al.,
"Bayesian Deep Learning via Subnetwork Inference", ICML 2021; "Laplace Redux", NeurIPS 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.inference.laplace.budget import check_budget, matrix_bytes
from bayesprop.inference.laplace.curvature import observed_precision
from bayesprop.inference.laplace.factors import diagonal_law, full_law, renewed_noise, rotated
from bayesprop.inference.laplace.kronecker import kronecker_factors
from bayesprop.inference.laplace.noise import check_noise
from bayesprop.inference.laplace.prior_curvature import check_kronecker_prior, check_prior
from bayesprop.inference.method import About, Info, Method
from bayesprop.layout import match
from bayesprop.model import Batch, Model, Place
from bayesprop.posteriors import Delta, DiagonalGaussian, FullGaussian, KroneckerGaussian, Posterior
from bayesprop.rng import Rng

__all__ = ["Laplace", "LaplaceState"]

FORMS = ("diagonal", "full", "kron", "last_layer", "subnetwork")


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
        hessian: "full", "kron", "diagonal", "last_layer" or "subnetwork".
        prior_precision: the factor a on the precision of a normal prior; "evidence" for the one with the greatest
            evidence, at the mode that was found under the prior as it is.
        noise: "mode" for the noise scale of the base method; "evidence" for that with the greatest evidence (a Gaussian
            likelihood whose scale is learnt).
        predictive: "linearised" or "sampled"; `posterior.sampled()` and `posterior.linearised()` change it later.
        layer: for "last_layer", pattern(s) of the parameters that it means; None for the last module with random ones.
        subnetwork: for "subnetwork", how many weights, pattern(s) of parameters, or a mask over the random columns.
        memory_budget: GiB that the matrices of "full", "kron", "last_layer" and "subnetwork" may take.

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
    hessian: Literal["diagonal", "full", "kron", "last_layer", "subnetwork"] = "full"
    prior_precision: float | Literal["evidence"] = 1.0
    layer: str | tuple[str, ...] | None = None
    memory_budget: float = 4.0
    noise: Literal["mode", "evidence"] = "mode"
    predictive: Literal["linearised", "sampled"] = "linearised"
    subnetwork: int | str | tuple[str, ...] | Tensor = 1000

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
        if self.noise not in ("mode", "evidence"):
            faults.append(f'noise is "mode" or "evidence", got {self.noise!r}')
        if self.predictive not in ("linearised", "sampled"):
            faults.append(f'predictive is "linearised" or "sampled", got {self.predictive!r}')
        if isinstance(self.subnetwork, bool) or (isinstance(self.subnetwork, int) and self.subnetwork < 1):
            faults.append(f"subnetwork is a number of weights, a pattern or a mask, got {self.subnetwork!r}")
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
        if self.hessian == "kron":
            check_kronecker_prior(model)
        if self.noise == "evidence":
            check_noise(model)
        check_budget(self, model, rng.particles)
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
        """The numbers of the columns that get a spread; as many as there will be of a subnetwork that is yet to be
        chosen."""
        layout = model.layout
        if self.hessian in ("diagonal", "full", "kron"):
            return torch.arange(layout.latent, device=model.device)
        blocks = layout.of_kind("random")
        chosen = self.layer if self.hessian == "last_layer" else self.subnetwork
        if isinstance(chosen, Tensor):
            if chosen.dtype != torch.bool or tuple(chosen.shape) != (layout.random,) or not bool(chosen.any()):
                raise ConfigurationError(
                    "Laplace(subnetwork=...): a mask says yes or no of each random column",
                    received=f"a tensor of {chosen.dtype}, shape {list(chosen.shape)}",
                    expected=f"torch.bool, shape [{layout.random}], with at least one True",
                    write='Laplace(MAP(), hessian="subnetwork", subnetwork=500)',
                )
            return chosen.nonzero()[:, 0].to(model.device)
        if isinstance(chosen, int):
            return torch.arange(min(chosen, layout.random), device=model.device)
        if chosen is None:
            found = [block for block in blocks if block.module == blocks[-1].module]
        else:
            argument = "layer" if self.hessian == "last_layer" else "subnetwork"
            names = match(chosen, [block.name for block in blocks], argument=argument)
            found = [block for block in blocks if block.name in names]
        return torch.cat([torch.arange(b.start, b.stop, device=model.device) for b in found])

    def finish(self, model: Model, state: LaplaceState, epoch: Callable[[], Iterator[Batch]], rng: Rng) -> LaplaceState:
        """The pass over the data; two for a subnetwork that is chosen by variances."""
        state.base = self.base.finish(model, state.base, epoch, rng)
        found, columns = self.base.posterior(model, state.base), self.columns(model)
        theta, bases = found.moments()[0].detach().clone(), {}
        form = "diagonal" if self.hessian in ("diagonal", "kron") else "full"
        if self.hessian == "kron":
            held, latents, value = kronecker_factors(model, theta, found.buffers, epoch, rng)
            matrix, bases = rotated(model, held, latents)
        else:
            if self.hessian == "subnetwork" and isinstance(self.subnetwork, int):
                columns = self._widest(model, theta, found.buffers, epoch, rng)
            matrix, value = observed_precision(
                model, theta, found.buffers, epoch, rng, columns, diagonal=form == "diagonal"
            )
        if self.noise == "evidence":
            batch = next(iter(epoch()))
            count = batch.num_data * batch.targets[0, 0].numel()
            value = renewed_noise(model, theta, matrix, value, columns, self.prior_precision, count)
        law = diagonal_law if form == "diagonal" else full_law
        spread, evidence = law(model, theta, matrix, value, columns, self.prior_precision)
        state.law = {"mean": theta, "spread": spread, "evidence": evidence}
        state.law |= {"columns": columns.expand(len(theta), -1)} | {n: b.to(theta.dtype) for n, b in bases.items()}
        return state

    def _widest(
        self, model: Model, theta: Tensor, buffers: dict[str, Tensor], epoch: Callable[[], Iterator[Batch]], rng: Rng
    ) -> Tensor:
        """The columns of the weights with the largest variance under "diagonal", on average over particles."""
        everything = torch.arange(model.layout.latent, device=theta.device)
        matrix, value = observed_precision(model, theta, buffers, epoch, rng, everything, diagonal=True)
        spread, _ = diagonal_law(model, theta, matrix, value, everything, self.prior_precision)
        variance = spread[:, : model.layout.random].square().mean(0)
        assert isinstance(self.subnetwork, int)
        return variance.topk(min(self.subnetwork, len(variance))).indices.sort().values

    def posterior(self, model: Model, state: LaplaceState) -> Posterior:
        """The Gaussian; before the last pass, the point that the base method has reached."""
        found = self.base.posterior(model, state.base)
        if not state.law:
            return found
        mean, spread, evidence = (state.law[name] for name in ("mean", "spread", "evidence"))
        if self.hessian == "diagonal":
            made = DiagonalGaussian(model, mean, spread, found.buffers, evidence=evidence)
        elif self.hessian == "kron":
            bases = {name: tensor for name, tensor in state.law.items() if name.startswith(("left.", "right."))}
            made = KroneckerGaussian(model, mean, spread, bases, found.buffers, evidence=evidence)
        else:
            made = FullGaussian(model, mean, spread, found.buffers, columns=state.law["columns"], evidence=evidence)
        return made.linearised() if self.predictive == "linearised" else made

    def memory(self, model: Model, particles: int, rows: int) -> int:
        """Bytes of the base method, and of the mean and the matrices behind it."""
        size, base = torch.finfo(model.dtype).bits // 8, self.base.memory(model, particles, rows)
        return base + particles * model.layout.size * (8 + 2 * size) + matrix_bytes(self, model, particles)
