"""E log p(y | f) for outputs f of known mean and covariance: what a deterministic ELBO is made of.

    Gaussian                 -[(y - m)^2 + v] E[scale^-2] / 2 - E log scale - log(2 pi) / 2, exact for any f         (1)
    HeteroscedasticGaussian  (1) given the raw scale r, whose mean of f is m + (c / v_r)(r - m_r) and whose variance
                             is v - c^2 / v_r; then Gauss-Hermite quadrature over r                               (2)
    Categorical              m_y - a^T C a / 2 - log sum_k exp(m_k + C_kk / 2 - (C a)_k)                            (3)
    others with one output for each target   Gauss-Hermite quadrature over f, and over a learnt scale             (4)

(2) and (4) take f as Gaussian. So does (3), which then is a lower bound for every a, the tilted bound (Knowles and
Minka 2011): Jensen's inequality after f is shifted by a^T f. It is best where a = softmax(m + diag C / 2 - C a), which
some damped iterations come near. For small C it is right to second order, as the expansion of Wu et al. (2019) is;
where C is large that expansion rewards outputs that are confident and uncertain at once, and the bound does not. A
learnt scale has a Gaussian logarithm, of which (1) has the moments in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import softplus

from bayesprop import likelihoods
from bayesprop.errors import ConfigurationError
from bayesprop.inference.variational.moments import nodes
from bayesprop.likelihoods.heteroscedastic_gaussian import SCALE_FLOOR
from bayesprop.likelihoods.likelihood import Likelihood

__all__ = ["check_likelihood", "expected_log_likelihood"]

SEPARATE = (likelihoods.Bernoulli, likelihoods.Poisson, likelihoods.StudentT)  # targets that see one output each
SCALE_NODES = 12
ITERATIONS = 8  # of the tilt; any number gives a bound


def check_likelihood(likelihood: Likelihood, outputs: int) -> None:
    """Refuse what has no expectation here."""
    known = (likelihoods.Gaussian, likelihoods.HeteroscedasticGaussian, likelihoods.Categorical, *SEPARATE)
    if not isinstance(likelihood, known) and outputs > 1:
        raise ConfigurationError(
            "DVI knows the expected log-likelihood of the library's own likelihoods, and of any with one output",
            received=f"{likelihood!r} with {outputs} outputs",
            expected=", ".join(kind.__name__ for kind in known),
            write="BayesByBackprop()  # samples, for any likelihood",
        )


def expected_log_likelihood(
    likelihood: Likelihood,
    mean: Tensor,
    covariance: Tensor,
    targets: Tensor,
    scales: Mapping[str, tuple[Tensor, Tensor]],
) -> Tensor:
    """Sum over rows (particles,) of E log p(y | f), f of mean (particles, rows, K) and covariance (particles, rows, K,
    K); `scales` holds mean and deviation of the columns (particles, size) of the likelihood's latents."""
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    if isinstance(likelihood, likelihoods.Categorical):
        labels = targets.reshape(*mean.shape[:2], 1)
        return (mean.gather(-1, labels)[..., 0] - _log_sum_exp(mean, covariance, variance)).sum(1)
    if isinstance(likelihood, likelihoods.HeteroscedasticGaussian):
        return _heteroscedastic(mean, covariance, targets.reshape(*mean.shape[:2], -1).to(mean))
    if isinstance(likelihood, likelihoods.Gaussian):
        values = targets.reshape(*mean.shape[:2], -1).to(mean)
        inverse, log_scale = _inverse_square(likelihood, scales, mean)
        each = ((values - mean).square() + variance) * inverse
        return (-0.5 * each - log_scale - 0.5 * math.log(2.0 * math.pi)).sum((1, 2))
    return _quadrature(likelihood, mean, variance, targets, scales)


def _log_sum_exp(mean: Tensor, covariance: Tensor, variance: Tensor) -> Tensor:
    """The upper bound of E log sum exp f in (3), (particles, rows)."""
    raised = mean + 0.5 * variance
    with torch.no_grad():
        tilt = torch.softmax(mean, dim=-1)
        damping = 1.0 / (1.0 + 0.5 * variance.amax(-1, keepdim=True))  # a full step overshoots where C is large
        for _ in range(ITERATIONS):
            tilt += damping * (torch.softmax(raised - _times(covariance, tilt), dim=-1) - tilt)
    pulled = _times(covariance, tilt)
    return 0.5 * (tilt * pulled).sum(-1) + torch.logsumexp(raised - pulled, dim=-1)


def _times(covariance: Tensor, vector: Tensor) -> Tensor:
    return (covariance @ vector[..., None])[..., 0]


def _inverse_square(
    likelihood: likelihoods.Gaussian, scales: Mapping[str, tuple[Tensor, Tensor]], like: Tensor
) -> tuple[Tensor, Tensor]:
    """E scale^-2 and E log scale, which broadcast against (particles, rows, targets)."""
    for centre, spread in scales.values():
        return torch.exp(2.0 * spread.square() - 2.0 * centre)[:, None], centre[:, None]
    fixed = torch.as_tensor(likelihood.scale, dtype=like.dtype, device=like.device)
    return fixed**-2, fixed.log()


def _heteroscedastic(mean: Tensor, covariance: Tensor, values: Tensor) -> Tensor:
    """(2): the outputs are the means of the targets, then their raw scales."""
    count = mean.shape[-1] // 2
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    mixed = covariance[..., :count, count:].diagonal(dim1=-2, dim2=-1)
    centre, raw = mean[..., :count], mean[..., count:]
    raw_variance = variance[..., count:].clamp_min(1e-20)
    places, weights = nodes(mean)
    std = raw_variance.sqrt()
    scale = softplus(raw[..., None] + std[..., None] * places) + SCALE_FLOOR
    given = centre[..., None] + (mixed / std)[..., None] * places
    left = (variance[..., :count] - mixed.square() / raw_variance).clamp_min(0.0)
    each = -0.5 * ((values[..., None] - given).square() + left[..., None]) / scale.square() - scale.log()
    return ((each @ weights) - 0.5 * math.log(2.0 * math.pi)).sum((1, 2))


def _quadrature(
    likelihood: Likelihood,
    mean: Tensor,
    variance: Tensor,
    targets: Tensor,
    scales: Mapping[str, tuple[Tensor, Tensor]],
) -> Tensor:
    """(4). The same node stands for all outputs at once: their terms are added, and each is an integral of its own."""
    places, weights = nodes(mean)
    outer, outer_weights = nodes(mean, SCALE_NODES) if scales else (mean.new_zeros(1), mean.new_ones(1))
    particles = mean.shape[0]
    outputs = mean[None] + variance.clamp_min(1e-20).sqrt()[None] * places[:, None, None, None]
    total = mean.new_zeros(particles)
    latents = {latent.name: latent for latent in likelihood.latents}
    for place, weight in zip(outer, outer_weights, strict=True):
        lanes = {}
        for name, (centre, spread) in scales.items():
            value = latents[name].constrain(centre + spread * place)  # (particles, ...)
            lanes[name] = value.repeat(len(places), *[1] * (value.dim() - 1))
        wide = targets.repeat(len(places), *[1] * (targets.dim() - 1))
        each = torch.func.vmap(likelihood.log_prob)(outputs.flatten(0, 1), wide, lanes)
        total = total + weight * (weights @ each.sum(1).reshape(len(places), particles))
    return total
