"""Bayes by Backprop's step on a GPU: the two passes over the columns, and for stacks of dense layers the products too.

`explain` says which body runs, and why not a faster one; the choice is never silent. All three bodies draw the same
noise and take the same step to float tolerance:

    dense    sample and update; the network in between is a stack of dense layers, whose products are kernels, too
    columns  sample and update; the network in between is whatever torch makes of it
    plain    `gradients` and `optimizers`, for settings that the kernels do not know
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bayesprop.inference.method import Info
from bayesprop.inference.optimizers import SGD, Adam, as_optimizer
from bayesprop.inference.variational.gradients import prior_score
from bayesprop.kernels import columns, dense, device
from bayesprop.kernels.rooms import settle
from bayesprop.likelihoods import Categorical
from bayesprop.model import Batch, Model
from bayesprop.priors.bound import BoundPrior, Vector
from bayesprop.random_weights import SharedWeights
from bayesprop.rng import Rng, Stream
from bayesprop.stacks import find_stack

if TYPE_CHECKING:
    from bayesprop.inference.variational.bayes_by_backprop import BayesByBackprop, MeanFieldState

__all__ = ["Program", "program", "run", "update"]


@dataclass(frozen=True)
class Program:
    """How a method's step runs for a model: the body, why it is this one, and what the kernels need to know.

    `given` says that the prior's score comes from torch for all columns with a distribution.
    """

    body: str
    reason: str
    rule: columns.Rule | None = None
    family: str = "given"
    exact: bool = False
    stack: dense.Stack | None = None
    constants: Tensor | None = None


_KNOWN: weakref.WeakKeyDictionary[Model, tuple[BayesByBackprop, Program]] = weakref.WeakKeyDictionary()


def program(method: BayesByBackprop, model: Model) -> Program:
    """The body that `update` will use for this method on this model; found once, and asked for in every step."""
    known = _KNOWN.get(model)
    if known is None or known[0] is not method:
        known = _KNOWN[model] = (method, _choose(method, model))
    return known[1]


def _choose(method: BayesByBackprop, model: Model) -> Program:
    if not device.available(model.device):
        return Program("plain", device.status(model.device))
    if model.dtype != torch.float32:
        return Program("plain", "plain torch: theta is float64")
    if not isinstance(method.estimator, SharedWeights):
        return Program("plain", f"plain torch: the noise of {type(method.estimator).__name__} lives in activations")
    if method.clip_norm is not None:
        return Program("plain", "plain torch: gradients are clipped by their norm")
    if method.stick_the_landing:
        return Program("plain", "plain torch: stick_the_landing")
    rule = _rule(method)
    if rule is None:
        return Program("plain", "plain torch: the optimiser is neither Adam, AdamW nor SGD")
    prior, closed = model.bound_prior, method.kl != "monte_carlo" and model.bound_prior.has_kl
    family = _family(prior)
    if family is None and closed:
        return Program("plain", "plain torch: several families of priors, each with its KL in closed form")
    where = device.status(model.device)
    family = "given" if family is None else family
    constants = _constants(prior, family, model.device)
    found = find_stack(model.network, model.layout)
    obstacle = found if isinstance(found, str) else ""
    if not prior.centred:
        obstacle = "weights are a multiple of a learnt scale"
    if model.output is not None:
        obstacle = "the prediction is picked out of what the network returns"
    if isinstance(found, str) or obstacle:
        reason = f"{where}: sample and update; the network by torch, because {obstacle}"
        return Program("columns", reason, rule, family, closed, None, constants)
    reason = f"{where}: {len(found.layers)} dense layers from the weights' noise to their update"
    return Program("dense", reason, rule, family, closed, found, constants)


def _rule(method: BayesByBackprop) -> columns.Rule | None:
    optimizer = as_optimizer(method.optimizer)
    if isinstance(optimizer, Adam):
        return columns.Rule("adam", optimizer.beta1, optimizer.beta2, optimizer.epsilon, optimizer.weight_decay)
    if isinstance(optimizer, SGD):
        return columns.Rule("momentum", optimizer.momentum) if optimizer.momentum else columns.Rule("sgd")
    return None


def _family(prior: BoundPrior) -> str | None:
    """The one family that covers all columns with fixed numbers, which may differ from column to column."""
    group = prior.groups[0]
    if len(prior.groups) > 1 or group.factors or group.density.name not in columns.FAMILIES:
        return None
    return group.density.name


def _constants(prior: BoundPrior, family: str, where: torch.device) -> Tensor:
    """The numbers of a family, (particles or 1, columns or 1, 4); of "given" there are none."""
    if family == "given":
        return torch.zeros(1, 1, 4, device=where)
    group = prior.groups[0]
    values = [group.arguments[name] for name in group.density.parameters]
    found = columns.prior_constants(family, *(v.values if isinstance(v, Vector) else v for v in values))
    found = found.reshape((1,) * (3 - found.dim()) + found.shape)  # those of particles have three axes already
    if prior.order is not None and found.shape[1] > 1:
        found = found[:, prior.order.values]
    return found.contiguous().to(where)


def update(
    chosen: Program,
    method: BayesByBackprop,
    model: Model,
    state: MeanFieldState,
    batch: Batch,
    rng: Rng,
    numbers: Sequence[float | Tensor] | Tensor,
    *,
    theta: Tensor | None = None,
) -> Info:
    """One step, in place, by the body that `program` chose.

    A `theta` that is given is the sample of this step; it becomes that of the next one.
    """
    _settle(state)
    step = _tensor(rng.step, state)
    pace = numbers if isinstance(numbers, Tensor) else _on_device(numbers, rng.particles, state.mean.device)
    drawn = _sample(chosen, method, model, state, rng, step) if theta is None else theta
    body = _dense if chosen.body == "dense" else _columns
    value, gradient = body(chosen, model, state, batch, drawn)
    rule, constants, estimator = chosen.rule, chosen.constants, method.estimator
    assert rule is not None
    assert constants is not None
    assert isinstance(estimator, SharedWeights)
    random, width = model.layout.random, model.layout.latent
    scores = None
    if chosen.family == "given":
        scores = prior_score(model, drawn[..., :width])
    elif width > random:
        scores = prior_score(model, drawn[..., :width], skip_weights=True)[..., random:].contiguous()
    value = columns.update(
        state.mean, state.rho, state.moments, gradient, value, rng.seeds, step, int(Stream.WEIGHTS), pace,
        rule=rule, prior=columns.Prior(chosen.family, constants, chosen.exact), scores=scores, random=random,
        antithetic=estimator.antithetic, likelihood_scale=-1.0 / batch.rows, kl_scale=1.0 / batch.num_data,
        value_scale=batch.num_data / batch.rows, ahead=theta,
    )  # fmt: skip
    return Info(value)


def run(
    chosen: Program,
    method: BayesByBackprop,
    model: Model,
    state: MeanFieldState,
    places: Iterable[tuple[Batch, Rng]],
) -> Iterator[tuple[MeanFieldState, Info]]:
    """Steps in a row: each draws the next one's sample while it has the new means and scales at hand."""
    theta = None
    _settle(state)
    for batch, rng in places:
        theta = _sample(chosen, method, model, state, rng, _tensor(rng.step, state)) if theta is None else theta
        numbers = method.numbers(batch, rng.step) if batch.numbers is None else batch.numbers
        yield state, update(chosen, method, model, state, batch, rng, numbers, theta=theta)


def _settle(state: MeanFieldState) -> None:
    """Give the state's matrices rows that GPUs read fast; after the first step there is nothing left to do."""
    state.mean, state.rho = settle(state.mean), settle(state.rho)
    state.moments = {name: settle(moment) if moment.dim() == 2 else moment for name, moment in state.moments.items()}


def _tensor(step: int | Tensor, state: MeanFieldState) -> Tensor:
    return step if isinstance(step, Tensor) else torch.tensor(step, device=state.mean.device)


def _on_device(numbers: Sequence[float | Tensor], particles: int, here: torch.device) -> Tensor:
    rows = [torch.as_tensor(number, dtype=torch.float32, device=here).expand(particles) for number in numbers]
    return torch.stack(rows)


def _precision(where: torch.device) -> str:
    """How a stack multiplies: "bf16" under autocast to it, else as torch's own products are told to."""
    if torch.is_autocast_enabled(where.type) and torch.get_autocast_dtype(where.type) == torch.bfloat16:
        return "bf16"
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def _sample(
    chosen: Program, method: BayesByBackprop, model: Model, state: MeanFieldState, rng: Rng, step: Tensor
) -> Tensor:
    """theta; in half the bytes if it holds nothing but weights that are multiplied in bf16."""
    estimator = method.estimator
    assert isinstance(estimator, SharedWeights)
    whole = chosen.body == "dense" and model.layout.size == model.layout.random and chosen.family != "given"
    dtype = torch.bfloat16 if whole and _precision(state.mean.device) == "bf16" else torch.float32
    return columns.sample(
        state.mean, state.rho, rng.seeds, step, int(Stream.WEIGHTS), estimator.samples,
        antithetic=estimator.antithetic, dtype=dtype,
    )  # fmt: skip


def _columns(
    chosen: Program, model: Model, state: MeanFieldState, batch: Batch, theta: Tensor
) -> tuple[Tensor, Tensor]:
    """The network by autograd: the log-likelihood (particles, samples) of the batch, and its gradient by theta."""
    leaf = theta.detach().requires_grad_(True)
    with torch.enable_grad():
        value = model.log_likelihood(leaf, state.buffers, batch)
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), gradient


def _dense(chosen: Program, model: Model, state: MeanFieldState, batch: Batch, theta: Tensor) -> tuple[Tensor, Tensor]:
    """The network as products of a stack. The log-likelihood may come in several parts (particles, parts)."""
    stack = chosen.stack
    assert stack is not None
    precision = _precision(theta.device)
    lanes, particles = theta.flatten(0, 1), theta.shape[0]
    inputs = batch.inputs.reshape(*batch.inputs.shape[:2], -1).contiguous()
    classes, rest = stack.layers[-1].outputs, None
    labels = isinstance(model.likelihood, Categorical) and batch.targets.dim() == 2 and classes <= dense.MOST_CLASSES
    outputs = dense.forward(stack, lanes, inputs, precision, last=not labels)
    if labels:
        value = dense.head(stack, lanes, outputs, inputs, batch.targets.contiguous(), precision)
        dense.backward(stack, lanes, outputs, None, precision)
    else:
        value, behind, rest = _by_likelihood(model, theta, outputs[-1], batch)
        dense.backward(stack, lanes, outputs, behind, precision)
    gradient = dense.gradient(stack, inputs, outputs, theta.shape[2], precision)
    if rest is not None:
        gradient[:, model.layout.random :] = rest.flatten(0, 1)
    return value.reshape(particles, -1), gradient.unflatten(0, theta.shape[:2])


def _by_likelihood(model: Model, theta: Tensor, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor | None]:
    """Any likelihood by autograd: its value (particles, samples), and its gradients by the outputs and by the columns
    behind the weights."""
    random, particles, samples = model.layout.random, *theta.shape[:2]
    leaf = outputs.detach().requires_grad_(True)
    behind = theta[..., random:].detach().requires_grad_(True)
    with torch.enable_grad():
        columns_of = torch.cat((theta[..., :random].detach(), behind), dim=-1)
        latents = model.latent_values(columns_of)
        lanes = leaf.unflatten(0, (particles, samples))

        def lane(output: Tensor, target: Tensor, latent: dict[str, Tensor]) -> Tensor:
            return model.likelihood.log_prob(output, target, latent).sum()

        value = model.over_lanes(lane, (lanes, batch.targets, latents), ("PS", "P", "PS"), particles, samples)
        wanted = (leaf, behind) if behind.shape[-1] else (leaf,)
        found = torch.autograd.grad(value.sum(), wanted, materialize_grads=True)
    return value.detach(), found[0], found[1] if behind.shape[-1] else None
