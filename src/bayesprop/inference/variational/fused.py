"""Bayes by Backprop's step in two native passes over the columns, where the settings allow it.

`explain` says whether they do, and why not if not; the choice is never silent. Columns that are not random weights
(latents, point estimates) are few and take the plain path in the same step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bayesprop.inference.method import Info
from bayesprop.inference.optimizers import Adam, as_optimizer
from bayesprop.inference.variational.gradients import prior_score, scales
from bayesprop.kernels import mean_field, native
from bayesprop.model import Batch, Model
from bayesprop.random_weights import SharedWeights
from bayesprop.rng import Rng, Stream

if TYPE_CHECKING:
    from bayesprop.inference.variational.bayes_by_backprop import BayesByBackprop, MeanFieldState

__all__ = ["Choice", "explain", "run", "update"]

KEPT = 1 << 22  # weights up to which noise is kept: beyond, memory is as slow as drawing it again, and scarcer


@dataclass(frozen=True)
class Choice:
    """Which body runs a step, and why."""

    native: bool
    reason: str


def explain(method: BayesByBackprop, model: Model) -> Choice:
    """The body that `update` will use for this method on this model."""
    obstacle = _obstacle(method, model)
    if obstacle:
        return Choice(False, f"plain torch: {obstacle}")
    return Choice(native.library().handle is not None, native.status())


def _obstacle(method: BayesByBackprop, model: Model) -> str:
    """What keeps the native passes from this method on this model; "" if nothing does. Asked in every step."""
    families, estimator = model.bound_prior.families, method.estimator
    if model.device.type != "cpu":
        return f"weights live on {model.device.type}, native code is for the CPU"
    if model.dtype != torch.float32:
        return "theta is float64"
    if estimator != SharedWeights():
        return f"{type(estimator).__name__} with {estimator.samples} samples"
    if not families or families[0].name not in mean_field.FAMILIES:
        return f"the prior is not one of the families {', '.join(mean_field.FAMILIES)} with numbers as parameters"
    if not isinstance(as_optimizer(method.optimizer), Adam):
        return "the optimiser is not Adam or AdamW"
    if method.clip_norm is not None:
        return "gradients are clipped"
    if method.stick_the_landing:
        return "stick_the_landing"
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
) -> Info:
    """One step, in place. `kept` are theta and the noise of its weights at this step; both become those of the next."""
    assert isinstance(rng.step, int)
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
    weights = _per_particle(kl_weight, rng.particles)
    first, second = optimizer.corrections(rng.step)
    shared = (optimizer.beta1, optimizer.beta2, optimizer.epsilon, first, second)
    mean_rates, rho_rates = (_per_particle(rates[name], rng.particles) for name in ("mean", "rho"))
    names = ("mean.first", "mean.second", "rho.first", "rho.second")
    mean_field.adam_update(
        (state.mean, state.rho, *(state.moments[name] for name in names)),
        pieces[:-1],
        keys,
        rng.step,
        stream,
        family=families[0].name,
        parameters=families[0].parameters if len(families) == 1 else [family.parameters for family in families],
        closed_form=method.kl != "monte_carlo",
        adam=[(m, r, *shared, 1.0 - m * optimizer.weight_decay) for m, r in zip(mean_rates, rho_rates, strict=True)],
        likelihood_weight=-1.0 / batch.rows,
        kl_weights=[w / batch.num_data for w in weights],
        ahead=kept,
    )
    if model.layout.size > random:
        _update_rest(model, state, theta, pieces[-1], noise, batch, rng, optimizer, rates, kl_weight)
    return Info(value * (batch.num_data / batch.rows))


def run(
    method: BayesByBackprop, model: Model, state: MeanFieldState, places: Iterable[tuple[Batch, Rng]]
) -> Iterator[tuple[MeanFieldState, Info]]:
    """Steps in a row: each draws the next one's sample, unless there are too many weights to keep their noise."""
    kept, random = None, model.layout.random
    few = random * state.mean.shape[0] <= KEPT
    for batch, rng in places:
        assert isinstance(rng.step, int)
        if kept is None and few:
            kept = torch.empty_like(state.mean), state.mean.new_empty(state.mean.shape[0], random)
            keys, stream = rng.keys()[:, 0], int(Stream.WEIGHTS)
            mean_field.sample(state.mean, state.rho, keys, rng.step, stream, random, out=kept[0], kept=kept[1])
        mean_rate, rho_rate, kl_weight, *_ = method.numbers(batch, rng.step)
        rates = {"mean": mean_rate, "rho": rho_rate}
        yield state, update(method, model, state, batch, rng, rates, kl_weight, kept=kept)


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
