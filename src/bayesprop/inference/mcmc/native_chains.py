"""Which models have native trajectories, and how: a log joint read off a model as the numbers of `kernels.chains`.

`explain` says whether a model has them, and why not if not; the choice is never silent. What has none takes the
definition in `target` and `leapfrog`, which gives the same trajectories to float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from bayesprop.distributions.hyperpriors import HalfCauchy, HalfNormal, Hyperprior
from bayesprop.inference.mcmc.target import Point
from bayesprop.kernels import chains
from bayesprop.kernels.chains import Joint
from bayesprop.likelihoods import Bernoulli, Categorical, Gaussian
from bayesprop.model import Batch, Model
from bayesprop.priors.constants import PerParticle, Vector
from bayesprop.stacks import find_stack

__all__ = ["NativeTarget", "explain", "native_target"]

MOST = 20_000  # weights from which on torch's products of matrices are faster than one row at a time
KINDS: dict[type[Hyperprior], int] = {HalfNormal: 0, HalfCauchy: 1}

_joints: WeakKeyDictionary[Model, Joint | str] = WeakKeyDictionary()


def explain(model: Model) -> str:
    """One sentence: which body runs the trajectories of a model, and why."""
    found = _joint(model)
    if isinstance(found, str):
        return f"plain torch: {found}"
    library = chains.library()
    return library.reason if library.handle is not None else f"plain torch: {library.reason}"


def _joint(model: Model) -> Joint | str:
    if model not in _joints:
        _joints[model] = _read(model)
    return _joints[model]


def _read(model: Model) -> Joint | str:
    """The numbers of a model's log joint, or in words why it has none."""
    layout, prior, likelihood = model.layout, model.bound_prior, model.likelihood
    if model.device.type != "cpu" or model.dtype != torch.float32:
        return f"weights are {model.dtype} on {model.device.type}; native trajectories are float32 on the CPU"
    stack = find_stack(model.network, layout)
    if isinstance(stack, str):
        return stack
    if layout.size != layout.latent or model.buffers or model.output is not None or layout.random > MOST:
        return f"native trajectories are for up to {MOST:,} weights, all of them random, and nothing besides"
    if type(likelihood) not in (Gaussian, Bernoulli, Categorical):
        return f"the likelihood is {type(likelihood).__name__}"
    kinds = _latents(model)
    if isinstance(kinds, str):
        return kinds
    rows = [torch.zeros(layout.random), torch.ones(layout.random), torch.zeros(layout.random)]
    center, precision, loc = rows
    scale_column = torch.full((layout.random,), -1, dtype=torch.int32)
    for group in prior.groups:
        if group.density.name != "normal" or len(group.factors) > 1 or any(f.centred for f in group.factors):
            return "a prior that is not normal, or whose scale is a product or centred"
        if any(isinstance(value, PerParticle) for value in group.arguments.values()):
            return "a prior with numbers for each particle"
        numbers = torch.arange(layout.random)
        columns = numbers[group.columns] if isinstance(group.columns, slice) else numbers[group.columns.values]
        here = {name: _number(value) for name, value in group.arguments.items()}
        if group.factors:
            loc[columns] = here["loc"]
            where = group.factors[0](torch.arange(layout.size, dtype=torch.float64))
            scale_column[columns] = where.expand(len(columns)).to(torch.int32)
        else:
            center[columns] = here["loc"]
            precision[columns] = here["scale"] ** -2
    noise, noise_column = 1.0, -1
    if isinstance(likelihood, Gaussian):
        if likelihood.latents:
            noise_column = layout.by_name[likelihood.latents[0].name].start
        else:
            noise = float(likelihood.scale)  # type: ignore[arg-type]
    name = type(likelihood).__name__
    return Joint(stack, layout.size, center, precision, loc, scale_column, kinds, name, noise, noise_column)


def _number(value: float | Vector) -> Tensor:
    return value.values.float() if isinstance(value, Vector) else torch.tensor(float(value))


def _latents(model: Model) -> tuple[tuple[int, int, float], ...] | str:
    """Column, kind and scale of each hyperprior's columns."""
    found: list[tuple[int, int, float]] = []
    known: list[tuple[range, Hyperprior]] = []
    for columns, _, hyperprior in model.bound_prior.hyperpriors:
        known.append((range(model.layout.size)[columns], hyperprior))
    for latent in model.likelihood.latents:
        block = model.layout.by_name[latent.name]
        known.append((range(block.start, block.stop), model.likelihood.scale))  # type: ignore[attr-defined]
    for columns, hyperprior in known:
        scale = getattr(hyperprior, "scale", None)
        if type(hyperprior) not in KINDS or hyperprior.of != "scale" or isinstance(scale, Tensor) or scale is None:
            return f"the hyperprior {hyperprior.describe()} is no HalfNormal or HalfCauchy of a scale"
        found += [(column, KINDS[type(hyperprior)], float(scale)) for column in columns]
    return tuple(found)


@dataclass(frozen=True)
class NativeTarget:
    """The log joint of one model and all of its rows, ready for trajectories."""

    joint: Joint
    inputs: Tensor
    targets: Tensor
    rows: int

    def trajectory(
        self, start: Point, momentum: Tensor, scale: Tensor, step_size: float, steps: int
    ) -> tuple[Point, Tensor]:
        """As `leapfrog.trajectory`: where the steps lead all chains, and the momentum there."""
        theta, gradient, momentum = (t.contiguous().clone() for t in (start.theta, start.gradient, momentum))
        value, data_term = chains.trajectory(
            self.joint,
            self.inputs,
            self.targets,
            self.rows,
            theta,
            gradient,
            momentum,
            scale.contiguous(),
            step_size,
            steps,
        )
        return Point(theta, value, data_term, gradient, {}), momentum


def native_target(model: Model, batch: Batch) -> NativeTarget | None:
    """None where `explain` says plain torch."""
    found = _joint(model)
    if isinstance(found, str) or chains.library().handle is None or not isinstance(batch.inputs, Tensor):
        return None
    targets = batch.targets.flatten(2) if batch.targets.dim() > 2 else batch.targets[..., None]
    inputs = batch.inputs.flatten(2)
    if inputs.shape[2] != found.stack.layers[0].inputs:  # several rows of outputs for one row of inputs
        return None
    return NativeTarget(found, chains.in_blocks(inputs), chains.in_blocks(targets), batch.rows)
