"""The gradient of the ELBO of a mean-field Gaussian, as arithmetic on columns.

For an estimator that samples whole weights, the network is differentiated with respect to the sampled weights only,
and the rest is the chain rule of w = mean + std * eps on flat columns. For estimators whose noise lives in
activations, the network is differentiated with respect to mean and std, which it sees as random weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import softplus

from bayesprop.inference.oracle import prior_score
from bayesprop.model import Batch, Model
from bayesprop.random_weights import Estimator, NoiseSource, SharedWeights, randomize
from bayesprop.rng import Rng, Stream

if TYPE_CHECKING:
    from bayesprop.inference.variational.bayes_by_backprop import MeanFieldState

__all__ = [
    "Gradients",
    "Sampling",
    "divergence_gradients",
    "elbo_gradients",
    "has_closed_form",
    "moment_gradients",
    "prior_score",
    "scales",
]

LOWEST = -80.0  # of rho: float32 holds std = 1.8e-35 and its inverse, which below -88 it would not


class Sampling(Protocol):
    """What a method says of how the ELBO is estimated; see `BayesByBackprop`."""

    @property
    def estimator(self) -> Estimator: ...

    @property
    def kl(self) -> str: ...

    @property
    def stick_the_landing(self) -> bool: ...


@dataclass(frozen=True)
class _Closed:
    """The divergence in closed form where there is one."""

    estimator: Estimator = SharedWeights()
    kl: str = "auto"
    stick_the_landing: bool = False


CLOSED = _Closed()


@dataclass(frozen=True)
class Gradients:
    """Gradients of the loss (1) by mean and rho (or std); the log-likelihood estimate for the full data."""

    by_name: dict[str, Tensor]
    log_likelihood: Tensor


def has_closed_form(model: Model) -> bool:
    """Whether KL(q || prior) of the random weights is known without sampling."""
    return model.bound_prior.has_kl


def scales(rho: Tensor) -> tuple[Tensor, Tensor]:
    """std = log(1 + exp(rho)) and its slope 1 / (1 + exp(-rho)).

    Both are those of `LOWEST` where rho is below it: a std that is nothing either way, and a gradient that is not nan
    and still leads back (slope / std tends to 1).
    """
    rho = rho.clamp_min(LOWEST)
    return softplus(rho), torch.sigmoid(rho)


def _draw_noise(method: Sampling, rng: Rng, width: int, dtype: torch.dtype) -> Tensor:
    """eps (particles, samples, columns); antithetic pairs are eps and -eps."""
    samples = method.estimator.samples
    if isinstance(method.estimator, SharedWeights) and method.estimator.antithetic:
        half = rng.normal(width, Stream.WEIGHTS, samples // 2, dtype)
        return torch.cat((half, -half), dim=1)
    return rng.normal(width, Stream.WEIGHTS, samples, dtype)


def elbo_gradients(
    method: Sampling, model: Model, state: MeanFieldState, batch: Batch, rng: Rng, kl_weight: float | Tensor
) -> Gradients:
    """Equations (1), (3) and (4) of `bayes_by_backprop`, for all particles and samples at once."""
    std, slope = scales(state.rho)
    found = moment_gradients(method, model, state.mean, std, state.buffers, batch, rng, kl_weight)
    return Gradients({"mean": found.by_name["mean"], "rho": found.by_name["std"] * slope}, found.log_likelihood)


def moment_gradients(
    method: Sampling,
    model: Model,
    mean: Tensor,
    std: Tensor,
    buffers: dict[str, Tensor],
    batch: Batch,
    rng: Rng,
    kl_weight: float | Tensor,
) -> Gradients:
    """The same by mean (particles, columns) and by std (particles, columns with a distribution) themselves."""
    width = std.shape[1]
    noise = _draw_noise(method, rng, width, mean.dtype)
    random = mean[:, None, :width] + std[:, None] * noise
    theta = torch.cat((random, mean[:, None, width:].expand(-1, noise.shape[1], -1)), dim=-1)
    if isinstance(method.estimator, SharedWeights):
        value, mean_gradient, std_gradient = _through_weights(model, buffers, theta, noise, batch)
    else:
        value, mean_gradient, std_gradient = _through_activations(method, model, mean, buffers, std, noise, batch, rng)
    share = -1.0 / batch.rows  # of (1): -(N / n) / N
    mean_gradient, std_gradient = mean_gradient * share, std_gradient * share
    weight = kl_weight.to(std).reshape(-1, 1) if isinstance(kl_weight, Tensor) else kl_weight
    kl_mean, kl_std = _kl_gradients(method, model, mean[:, :width], std, random, noise)
    mean_gradient[:, :width] += weight / batch.num_data * kl_mean
    std_gradient += weight / batch.num_data * kl_std
    return Gradients({"mean": mean_gradient, "std": std_gradient}, value * (batch.num_data / batch.rows))


def _through_weights(
    model: Model, buffers: dict[str, Tensor], theta: Tensor, noise: Tensor, batch: Batch
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean over the samples of log p(batch | w) and its gradients with respect to mean and std."""
    theta = theta.detach().requires_grad_(True)
    with torch.enable_grad():
        value = model.log_likelihood(theta, buffers, batch)
        (gradient,) = torch.autograd.grad(value.sum(), theta)
    samples = theta.shape[1]
    if samples == 1:
        return value.detach()[:, 0], gradient[:, 0], gradient[:, 0, : noise.shape[2]] * noise[:, 0]
    return value.detach().mean(1), gradient.mean(1), (gradient[..., : noise.shape[2]] * noise).mean(1)


def _through_activations(
    method: Sampling,
    model: Model,
    mean: Tensor,
    buffers: dict[str, Tensor],
    std: Tensor,
    noise: Tensor,
    batch: Batch,
    rng: Rng,
) -> tuple[Tensor, Tensor, Tensor]:
    """The same for an estimator whose noise is drawn where the weights are used. Latents are sampled as columns."""
    particles, samples, width = noise.shape
    plan = model.plan(method.estimator)
    mean, std = mean.detach().requires_grad_(True), std.detach().requires_grad_(True)
    layout, bound = model.layout, model.bound_prior
    with torch.enable_grad():
        centre = mean[:, None].expand(-1, samples, -1)
        latents = mean[:, None, layout.random : width] + std[:, None, layout.random :] * noise[..., layout.random :]
        columns = torch.cat((centre[..., : layout.random], latents), dim=-1)
        spread = std[:, None, : layout.random].expand(-1, samples, -1)
        if not bound.centred:
            # weight = loc + scale z is linear in z: its mean is that of the mean column, its spread is scale times std.
            shifted = torch.cat((columns[..., : layout.random] + spread, latents), dim=-1)
            location = bound.weights(columns)
            spread = bound.weights(shifted) - location
            columns = torch.cat((location, latents), dim=-1)
        points = centre[..., width:]
        means = model.hold_padding(layout.unflatten(torch.cat((columns, points), dim=-1), ("random", "point")))
        padded = torch.nn.functional.pad(spread, (0, layout.size - layout.random))
        spreads = model.hold_padding(layout.unflatten(padded, ("random",)), spread=True)
        noises = layout.unflatten(torch.nn.functional.pad(noise, (0, layout.size - width)), ("random",))
        values = model.latent_values(torch.cat((columns, points), dim=-1))

        def lane(m: Any, s: Any, e: Any, latent: Any, held: Any, key: Tensor, inputs: Any, targets: Tensor) -> Tensor:
            source = NoiseSource(key, rng.step)
            randomized = randomize(plan, method.estimator, {n: m[n] for n in s}, s, e, source)
            weights = {**{n: t for n, t in m.items() if n not in s}, **randomized}
            return model.batch_log_likelihood(weights, latent, held, inputs, targets)

        copies = model.spread_buffers(buffers, samples)
        arguments = (means, spreads, noises, values, copies, rng.keys(samples), batch.inputs, batch.targets)
        tags = ("PS", "PS", "PS", "PS", "PS", "PS", "P", "P")
        value = model.over_lanes(lane, arguments, tags, particles, samples)
        model.gather_buffers(buffers, copies)
        mean_gradient, std_gradient = torch.autograd.grad(value.sum(), (mean, std), allow_unused=True)
    zero = torch.zeros_like
    mean_gradient = zero(mean) if mean_gradient is None else mean_gradient
    std_gradient = zero(std) if std_gradient is None else std_gradient
    return value.detach().mean(1), mean_gradient / samples, std_gradient / samples


def divergence_gradients(model: Model, mean: Tensor, std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of KL(q || prior) by mean and std (particles, columns with a distribution): closed form where there is
    one, at draws with `noise` (particles, samples, columns) elsewhere."""
    theta = mean[:, None] + std[:, None] * noise
    return _kl_gradients(CLOSED, model, mean, std, theta, noise)


def _kl_gradients(
    method: Sampling, model: Model, mean: Tensor, std: Tensor, theta: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of KL(q || prior) with respect to mean and std, for the columns that have a distribution."""
    random = model.layout.random
    closed = method.kl != "monte_carlo" and not method.stick_the_landing and has_closed_form(model)
    score = prior_score(model, theta, skip_weights=closed)
    mean_gradient, std_gradient = -score.mean(1), -(score * noise).mean(1)
    if method.stick_the_landing:
        # d log q(w) / dw = -(w - mean) / std^2 along the path; the score term is left out.
        mean_gradient = mean_gradient - noise.mean(1) / std
        std_gradient = std_gradient - noise.square().mean(1) / std
    else:
        std_gradient = std_gradient - 1.0 / std
    if closed:
        pair = model.bound_prior.kl_gradients(mean[:, :random], std[:, :random])
        assert pair is not None
        mean_gradient[:, :random], std_gradient[:, :random] = pair
    return mean_gradient, std_gradient
