"""Which models have a log joint in native code: read off a model as the numbers of `kernels.small_stack`.

What has none takes the definitions in plain torch, which give the same numbers to float32; whoever asks is told why.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from bayesprop.distributions.hyperpriors import HalfCauchy, HalfNormal, Hyperprior
from bayesprop.kernels.small_stack import Joint
from bayesprop.likelihoods import Bernoulli, Categorical, Gaussian
from bayesprop.model import Model
from bayesprop.priors.bound import BoundPrior
from bayesprop.priors.constants import Vector
from bayesprop.stacks import find_stack

__all__ = ["native_joint"]

MOST = 20_000  # weights from which on torch's products of matrices are faster than one row at a time
KINDS: dict[type[Hyperprior], int] = {HalfNormal: 0, HalfCauchy: 1}

_joints: WeakKeyDictionary[Model, tuple[BoundPrior, Joint | str]] = WeakKeyDictionary()


def native_joint(model: Model) -> Joint | str:
    """The numbers of a model's log joint, or in words why it has none; found once."""
    known = _joints.get(model)
    if known is None or known[0] is not model.bound_prior:
        known = _joints[model] = (model.bound_prior, _read(model))
    return known[1]


def _read(model: Model) -> Joint | str:
    layout, prior, likelihood = model.layout, model.bound_prior, model.likelihood
    if model.device.type != "cpu" or model.dtype != torch.float32:
        return f"weights are {model.dtype} on {model.device.type}; native code is for float32 on the CPU"
    stack = find_stack(model.network, layout)
    if isinstance(stack, str):
        return stack
    if layout.size != layout.latent or model.buffers or model.output is not None or layout.random > MOST:
        return f"native code is for up to {MOST:,} weights, all of them random, and nothing besides"
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
        numbers = torch.arange(layout.random)
        columns = numbers[group.columns] if isinstance(group.columns, slice) else numbers[group.columns.values]
        here = {name: _number(value) for name, value in group.arguments.items()}
        if group.factors:
            if any(value.dim() > 1 for value in here.values()):
                return "a prior with a learnt scale and numbers for each particle"
            loc[columns] = here["loc"]
            where = group.factors[0](torch.arange(layout.size, dtype=torch.float64))
            scale_column[columns] = where.expand(len(columns)).to(torch.int32)
        else:
            center, precision = (_wide(row, *here.values()) for row in (center, precision))
            center[..., columns] = here["loc"]
            precision[..., columns] = here["scale"] ** -2
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


def _wide(row: Tensor, *numbers: Tensor) -> Tensor:
    """A row for each particle, where numbers have one."""
    particles = max([len(value) for value in numbers if value.dim() > 1], default=0)
    return row.repeat(particles, 1) if particles and row.dim() == 1 else row


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
