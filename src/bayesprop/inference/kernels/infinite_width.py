"""The infinitely wide network: regression with the Gaussian process that the user's own network and prior become.

As the hidden layers of a dense network grow, with the variance of their weights scaled with fan-in, the outputs under
the prior become a Gaussian process (`posteriors.wide_network`), and the posterior given Gaussian noise is exact
(`posteriors.gaussian_process`). There is nothing to train: no weight is ever drawn.

Scales of hierarchical priors and a learnt noise scale, all of them called t, are found at the maximum of

    log p(y | t) + log p(t)                                                                                        (1)

in unconstrained coordinates, by `learning_steps` steps of Adam on the exact evidence. Where all of them are known the
steps do nothing.

References: Neal, "Priors for infinite networks", 1994; Lee et al., "Deep Neural Networks as Gaussian Processes",
ICLR 2018; Matthews et al., "Gaussian Process Behaviour in Wide Deep Neural Networks", ICLR 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError, MemoryBudgetError
from bayesprop.inference.method import About, Info, Method
from bayesprop.inference.optimizers import Adam
from bayesprop.inference.schedules import Cosine
from bayesprop.likelihoods import Gaussian
from bayesprop.model import Batch, Model
from bayesprop.posteriors import GaussianProcess
from bayesprop.posteriors.gaussian_process import log_evidence, noise_variance
from bayesprop.posteriors.process import factor_of
from bayesprop.posteriors.wide_network import WideNetwork
from bayesprop.rng import Rng

__all__ = ["NNGP", "Rows", "WideState"]

GIBIBYTE = 2**30
MATRICES = 8  # of N x N numbers that a step holds: a kernel, its factor, and what their gradient needs


class Rows:
    """All rows of the data, once a step has seen them. They are the data's own and no part of a checkpoint."""

    def __init__(self, batch: Batch) -> None:
        outputs = batch.targets.flatten(2) if batch.targets.dim() > 2 else batch.targets[..., None]
        self.inputs, self.targets = batch.inputs, outputs


@dataclass
class WideState:
    """hyper (particles, H), the unconstrained scales; the optimiser's moments; their log evidence (particles, 1), of
    the last step; buffers; and the rows."""

    hyper: Tensor
    moments: dict[str, Tensor]
    evidence: Tensor
    buffers: dict[str, Tensor]
    rows: Rows | None = None


@dataclass(frozen=True)
class NNGP(Method[WideState]):
    """See the module's docstring.

    Args:
        learning_steps: steps of equation (1), each with a factorisation of N x N numbers.
        learning_rate: of Adam on the logarithms of the scales, falling to 0 along a cosine.
        memory_budget: GiB that matrices of N x N numbers may take.

    >>> NNGP().steps
    100
    """

    about: ClassVar[About | None] = About(
        approximates="nothing, for a network that is infinitely wide: its posterior over functions, exactly",
        cost="N^3 for N rows, once for each step that learns a scale; no training otherwise",
        choose="regression with up to some thousand rows, evidence to compare depths and priors, and a standard",
    )
    learning_steps: int = 100
    learning_rate: float = 0.1
    memory_budget: float = 4.0

    needs_all_rows = True
    looks_at_host = "an exact Gaussian process is factorised on all rows, a few times"

    def __post_init__(self) -> None:
        faults = []
        if self.learning_steps < 1:
            faults.append(f"learning_steps must be at least 1, got {self.learning_steps}")
        for key in ("learning_rate", "memory_budget"):
            if not getattr(self, key) > 0:
                faults.append(f"{key} must be positive, got {getattr(self, key)}")
        if faults:
            raise ConfigurationError("NNGP cannot work like this: " + "; ".join(faults), write="NNGP()")

    @property
    def steps(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Steps of a whole run."""
        return self.learning_steps

    # -- the functions of a method ------------------------------------------------------------------------------------

    def init(self, model: Model, rng: Rng) -> WideState:
        if not isinstance(model.likelihood, Gaussian):
            raise ConfigurationError(
                "the posterior of an infinitely wide network has a closed form for Gaussian noise alone",
                received=repr(model.likelihood),
                expected="likelihoods.Gaussian, or a method for every likelihood: DeepKernel, HMC, BayesByBackprop",
                write="bp.fit(model, data, bp.inference.DeepKernel())  # a Gaussian process on learnt features",
            )
        WideNetwork(model)  # refuses networks and priors without a limit
        layout, dtype = model.layout, model.dtype
        hyper = torch.zeros(rng.particles, layout.latent - layout.random, dtype=torch.float64, device=model.device)
        for latent in model.latents:
            block = layout.by_name[latent.name]
            for particle in range(rng.particles):
                column = latent.initial_column(particle if isinstance(latent.initial, Tensor) else 0)
                hyper[particle, block.start - layout.random : block.stop - layout.random] = column
        hyper = hyper.to(dtype)
        nothing = torch.zeros(rng.particles, 1, dtype=torch.float64, device=model.device)
        buffers = model.initial_buffers(rng.particles)
        return WideState(hyper, Adam().init({"mean": hyper}), nothing, buffers)

    def update(self, model: Model, state: WideState, batch: Batch, rng: Rng) -> tuple[WideState, Info]:
        """A step of equation (1); the log evidence takes the place of the log-likelihood."""
        first = state.rows is None
        state.rows = self._rows(model, batch)
        learns = state.hyper.shape[1] > 0
        if learns or first:
            value, gradient = self._evidence(model, state)
            state.evidence[:, 0] = value
            if learns:
                rate = self.learning_rate * Cosine()(batch.progress)
                Adam().step({"mean": state.hyper}, {"mean": gradient}, state.moments, {"mean": rate}, rng.step)
        return state, Info(state.evidence[:, 0].clone())

    def finish(self, model: Model, state: WideState, epoch: Callable[[], Iterator[Batch]], rng: Rng) -> WideState:
        """The rows, for a run that was resumed at its end."""
        if state.rows is None:
            state.rows = self._rows(model, next(epoch()))
        return state

    def posterior(self, model: Model, state: WideState) -> GaussianProcess:
        """The process given the rows that were seen; the prior process before the first step."""
        hyper, buffers = state.hyper.clone(), {name: buffer.clone() for name, buffer in state.buffers.items()}
        if state.rows is not None:
            return GaussianProcess(model, state.rows.inputs.clone(), state.rows.targets.clone(), hyper, buffers)
        width = WideNetwork(model)
        inputs = hyper.new_zeros(len(hyper), 0, width.layers[0].inputs)
        return GaussianProcess(model, inputs, hyper.new_zeros(len(hyper), 0, width.outputs), hyper, buffers)

    def memory(self, model: Model, particles: int, rows: int) -> int:
        """Bytes of the matrices of one step, and of the posterior behind it."""
        return particles * (MATRICES * 8 * rows**2 + 4 * 8 * model.layout.random)

    # -- the evidence -------------------------------------------------------------------------------------------------

    def _rows(self, model: Model, batch: Batch) -> Rows:
        """The rows of a batch, if they are all and their matrices fit."""
        if batch.rows != batch.num_data:
            raise ConfigurationError(
                "NNGP looks at all rows at once",
                received=f"a minibatch of {batch.rows} out of {batch.num_data} rows",
                expected="all rows, or a Gaussian process for minibatches: DeepKernel",
                write="bp.fit(model, (inputs, targets), NNGP(), batch_size=None)",
            )
        particles = batch.targets.shape[0]
        needed, allowed = self.memory(model, particles, batch.rows), self.memory_budget * GIBIBYTE
        if needed > allowed:
            most = int(math.sqrt(allowed / (8 * MATRICES * particles)))
            raise MemoryBudgetError(
                "NNGP: the covariances of all rows do not fit into their memory budget",
                received=f"{batch.rows:,} x {batch.rows:,} numbers, {MATRICES} times: {needed / GIBIBYTE:.2f} GiB",
                expected=f"at most memory_budget={self.memory_budget:g} GiB, which holds {most:,} rows",
                write=f"NNGP(memory_budget={math.ceil(needed / GIBIBYTE)})  # or DeepKernel(), for any number of rows",
            )
        return Rows(batch)

    def _evidence(self, model: Model, state: WideState) -> tuple[Tensor, Tensor]:
        """log p(y | t), float64 (particles,), and the gradient of minus (1) for each row of the data (particles, H)."""
        rows, network, layout = state.rows, WideNetwork(model), model.layout
        assert rows is not None
        leaf = state.hyper.detach().double().clone().requires_grad_(True)
        with torch.enable_grad():
            covariance = network.own(leaf, rows.inputs)
            covariance = covariance + torch.diag_embed(
                noise_variance(model, leaf)[:, None].expand(-1, covariance.shape[1])
            )
            value = log_evidence(factor_of(covariance), rows.targets.double())
            total = value
            for latent in model.latents:
                block = layout.by_name[latent.name]
                columns = leaf[:, block.start - layout.random : block.stop - layout.random]
                total = total + latent.unconstrained_log_density(columns)
            if not total.requires_grad:  # every scale is known
                return value, torch.zeros_like(state.hyper)
            (gradient,) = torch.autograd.grad(total.sum(), leaf)
        return value.detach(), (-gradient / rows.targets.shape[1]).to(state.hyper.dtype)
