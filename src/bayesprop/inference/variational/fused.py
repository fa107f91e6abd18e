"""Bayes by Backprop's step as native code on a CPU, where the settings allow it.

    whole    one call for all of a step: small stacks of dense layers, whose time would be that of the calls into torch
    passes   two passes over the columns; the network in between is whatever torch makes of it
    plain    `gradients` and `optimizers`

`explain` says which, and why not another; the choice is never silent. In the passes, columns that are not random
weights (latents, point estimates) are few and take the plain path in the same step.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bayesprop.inference.joints import native_joint
from bayesprop.inference.method import Info
from bayesprop.inference.optimizers import Adam, as_optimizer
from bayesprop.inference.variational.gradients import prior_score, scales
from bayesprop.kernels import descent, mean_field, native
from bayesprop.kernels.small_stack import Joint
from bayesprop.model import Batch, Model
from bayesprop.random_weights import SharedWeights
from bayesprop.rng import Rng, Stream

if TYPE_CHECKING:
    from bayesprop.inference.variational.bayes_by_backprop import BayesByBackprop, MeanFieldState

__all__ = ["Choice", "explain", "run", "update"]

KEPT = 1 << 22  # weights up to which noise is kept: beyond, memory is as slow as drawing it again, and scarcer


@dataclass(frozen=True)
class Choice:
    """Which body runs a step, and why; the `joint` of a whole step."""

    native: bool
    reason: str
    joint: Joint | None = None


_KNOWN: weakref.WeakKeyDictionary[Model, tuple[BayesByBackprop, str, str]] = weakref.WeakKeyDictionary()


def explain(method: BayesByBackprop, model: Model) -> Choice:
    """The body that `update` will use for this method on this model."""
    known = _KNOWN.get(model)
    if known is None or known[0] is not method:
        obstacle = _obstacle(method, model)
        known = _KNOWN[model] = (method, obstacle, obstacle or _obstacle_to_passes(method, model))
    _, obstacle, to_passes = known
    if obstacle:
        return Choice(False, f"plain torch: {obstacle}")
    joint = native_joint(model) if not torch.is_autocast_enabled("cpu") else None
    if isinstance(joint, Joint) and descent.library().handle is not None:
        return Choice(True, f"whole steps in {descent.library().reason}", joint)
    obstacle = to_passes
    if obstacle:
        return Choice(False, f"plain torch: {obstacle}")
    return Choice(native.library().handle is not None, native.status())


def _obstacle(method: BayesByBackprop, model: Model) -> str:
    """What keeps all native code from this method on this model; "" if nothing does."""
    if model.device.type != "cpu":
        return f"weights live on {model.device.type}, native code is for the CPU"
    if model.dtype != torch.float32:
        return "theta is float64"
    if method.estimator != SharedWeights():
        return f"{type(method.estimator).__name__} with {method.estimator.samples} samples"
    if not isinstance(as_optimizer(method.optimizer), Adam):
        return "the optimiser is not Adam or AdamW"
    if method.clip_norm is not None:
        return "gradients are clipped"
    return "stick_the_landing" if method.stick_the_landing else ""


def _obstacle_to_passes(method: BayesByBackprop, model: Model) -> str:
    """What keeps the two passes from it besides."""
    families = model.bound_prior.families
    if not families or families[0].name not in mean_field.FAMILIES:
        return f"the prior is not one of the families {', '.join(mean_field.FAMILIES)} with numbers as parameters"
    if families[0].name == "laplace" and method.kl != "monte_carlo":
        return "the KL of a Laplace prior is taken in closed form"
    return ""


def update(
    method: BayesByBackprop,
    model: Model,
    state: MeanFieldState,
    batch: Batch,
    rng: Rng,
    rates: Mapping[str, float | Tensor],
    kl_weight: float | Tensor,
    *,
    kept: tuple[Tensor, Tensor] | None = None,
    joint: Joint | None = None,
) -> Info:
    """One step, in place: whole with a `joint`. `kept` are theta and the noise of its weights at this step; both become
    those of the next."""
    assert isinstance(rng.step, int)
    if joint is not None and isinstance(batch.inputs, Tensor):  # inputs by name or several of them take the other way
        return _whole(joint, method, model, state, batch, rng, rates, kl_weight)
    random, width = model.layout.random, model.layout.latent
    keys, stream = rng.keys()[:, 0], int(Stream.WEIGHTS)
    if kept is None:
        theta = mean_field.sample(state.mean, state.rho, keys, rng.step, stream, random)
    else:
        theta, _ = kept
        theta[:, random:] = state.mean[:, random:]
    noise = None
    if width > random:
        noise = rng.normal(width, Stream.WEIGHTS)[:, 0, random:]
        theta[:, random:width] += scales(state.rho[:, random:])[0] * noise
    value, pieces = _weight_gradients(model, state, theta, batch)
    families = model.bound_prior.families
    optimizer = as_optimizer(method.optimizer)
    assert isinstance(optimizer, Adam)
    mean_field.adam_update(
        _tensors(state),
        pieces[:-1],
        keys,
        rng.step,
        stream,
        family=families[0].name,
        parameters=families[0].parameters if len(families) == 1 else [family.parameters for family in families],
        closed_form=method.kl != "monte_carlo",
        adam=_adam(optimizer, rates, rng),
        likelihood_weight=-1.0 / batch.rows,
        kl_weights=[w / batch.num_data for w in _per_particle(kl_weight, rng.particles)],
        ahead=kept,
    )
    if model.layout.size > random:
        _update_rest(model, state, theta, pieces[-1], noise, batch, rng, optimizer, rates, kl_weight)
    return Info(value * (batch.num_data / batch.rows))


def run(
    method: BayesByBackprop, model: Model, state: MeanFieldState, places: Iterable[tuple[Batch, Rng]]
) -> Iterator[tuple[MeanFieldState, Info]]:
    """Steps in a row: each draws the next one's sample, unless there are too many weights to keep their noise."""
    kept, random, joint = None, model.layout.random, explain(method, model).joint
    few = random * state.mean.shape[0] <= KEPT and joint is None
    for batch, rng in places:
        assert isinstance(rng.step, int)
        if kept is None and few:
            kept = torch.empty_like(state.mean), state.mean.new_empty(state.mean.shape[0], random)
            keys, stream = rng.keys()[:, 0], int(Stream.WEIGHTS)
            mean_field.sample(state.mean, state.rho, keys, rng.step, stream, random, out=kept[0], kept=kept[1])
        mean_rate, rho_rate, kl_weight, *_ = method.numbers(batch, rng.step)
        rates = {"mean": mean_rate, "rho": rho_rate}
        yield state, update(method, model, state, batch, rng, rates, kl_weight, kept=kept, joint=joint)


def _tensors(state: MeanFieldState) -> tuple[Tensor, ...]:
    names = ("mean.first", "mean.second", "rho.first", "rho.second")
    return state.mean, state.rho, *(state.moments[name] for name in names)


def _adam(optimizer: Adam, rates: Mapping[str, float | Tensor], rng: Rng) -> list[tuple[float, ...]]:
    """For each particle the eight numbers that native.cpp lists."""
    assert isinstance(rng.step, int)
    shared = (optimizer.beta1, optimizer.beta2, optimizer.epsilon, *optimizer.corrections(rng.step))
    mean_rates, rho_rates = (_per_particle(rates[name], rng.particles) for name in ("mean", "rho"))
    return [(m, r, *shared, 1.0 - m * optimizer.weight_decay) for m, r in zip(mean_rates, rho_rates, strict=True)]


def _whole(
    joint: Joint,
    method: BayesByBackprop,
    model: Model,
    state: MeanFieldState,
    batch: Batch,
    rng: Rng,
    rates: Mapping[str, float | Tensor],
    kl_weight: float | Tensor,
) -> Info:
    """A step in one call."""
    optimizer, targets = as_optimizer(method.optimizer), batch.targets
    assert isinstance(optimizer, Adam)
    targets = targets if targets.dtype == torch.int64 else targets.float()
    assert isinstance(rng.step, int)
    value = descent.descend(
        joint,
        batch.inputs if batch.inputs.dim() == 3 else batch.inputs.flatten(2),
        targets.flatten(2) if targets.dim() > 2 else targets[..., None],
        _tensors(state),
        rng.seeds,
        rng.step,
        int(Stream.WEIGHTS),
        adam=_adam(optimizer, rates, rng),
        kl_weights=[w / batch.num_data for w in _per_particle(kl_weight, rng.particles)],
        closed_form=method.kl != "monte_carlo" and model.bound_prior.has_kl,
        value_scale=batch.num_data / batch.rows,
    )
    return Info(value)


def _weight_gradients(model: Model, state: MeanFieldState, theta: Tensor, batch: Batch) -> tuple[Tensor, list[Tensor]]:
    """log p(batch | w), (particles,), and its gradient in pieces that follow the columns: random weights, then the
    rest.

    A single network is differentiated with respect to each parameter by itself, and its gradients are used where
    autograd leaves them: joining them into one row would cost a pass over all columns.
    """
    layout = model.layout
    if theta.shape[0] > 1:
        leaf = theta.requires_grad_(True)
        with torch.enable_grad():
            value = model.log_likelihood(leaf[:, None], state.buffers, batch)[:, 0]
            (gradient,) = torch.autograd.grad(value.sum(), leaf)
        theta.requires_grad_(False)
        return value.detach(), [gradient[:, : layout.random], gradient[:, layout.random :]]
    row = theta[0]
    leaves = [row[block.columns].view(block.shape).requires_grad_(True) for block in layout.of_kind("random")]
    rest = row[layout.random :].requires_grad_(True)
    with torch.enable_grad():
        value = model.row_log_likelihood(leaves, rest, state.buffers, batch)
        found = torch.autograd.grad(value, (*leaves, rest), allow_unused=True)
    pieces = [
        leaf.new_zeros(1, leaf.numel()) if gradient is None else gradient.reshape(1, -1)
        for leaf, gradient in zip((*leaves, rest), found, strict=True)
    ]
    return value.detach()[None], pieces


def _per_particle(value: float | Tensor, particles: int) -> list[float]:
    return value.tolist() if isinstance(value, Tensor) and value.dim() == 1 else [float(value)] * particles


def _update_rest(
    model: Model,
    state: MeanFieldState,
    theta: Tensor,
    gradient: Tensor,
    noise: Tensor | None,
    batch: Batch,
    rng: Rng,
    optimizer: Adam,
    rates: Mapping[str, float | Tensor],
    kl_weight: float | Tensor,
) -> None:
    """The plain step for latents and point estimates: everything to the right of the random weights."""
    random, width = model.layout.random, model.layout.latent
    mean_gradient = gradient * (-1.0 / batch.rows)
    rho = state.rho[:, random:]
    rho_gradient = torch.zeros_like(rho)
    std, slope = scales(rho)
    if noise is not None:
        score = prior_score(model, theta[:, None, :width], skip_weights=True)[:, 0, random:]
        weight = kl_weight.to(std).reshape(-1, 1) if isinstance(kl_weight, Tensor) else kl_weight
        data = mean_gradient[:, : width - random].clone()
        mean_gradient[:, : width - random] -= weight / batch.num_data * score
        rho_gradient = data * noise + weight / batch.num_data * (-score * noise - 1.0 / std)
    views = {"mean": state.mean[:, random:], "rho": rho}
    moments = {n: t[:, random:] for n, t in state.moments.items()}
    by_name = {"mean": mean_gradient, "rho": rho_gradient * slope}
    optimizer.step(views, by_name, moments, rates, rng.step)
