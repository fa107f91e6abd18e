"""Where training starts: means at the scale of the fan-in, drawn from the particle's own seed.

Every default start of mean-field inference that sets means to zero, or to the prior's own draw, fails for networks:
either all units of a layer stay equal or the outputs explode. A weight matrix starts at N(0, gain^2 / fan_in) instead
(He et al. 2015 for layers that feed a rectifier). The draw depends on the seed of the particle only, so that a member
of a population starts where it would start alone.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from bayesprop.errors import ConfigurationError
from bayesprop.latents import Latent
from bayesprop.layout import Block
from bayesprop.model import Model
from bayesprop.priors.transfer import relative_size
from bayesprop.rng import Rng, Stream

__all__ = ["Start", "fan_in_spread", "rho_of", "starting_means", "starting_rho", "starting_scales"]

Start = str | float | tuple[float, float]

_RECTIFIED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_RECURRENT = (nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)
_NORMALISING = (nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase, nn.RMSNorm)


def fan_in_spread(block: Block, module: nn.Module, value: Tensor) -> float:
    """Standard deviation of the starting means of one parameter; 0 means "start at the network's own value"."""
    shape = block.shape
    if len(shape) < 2 or isinstance(module, _NORMALISING):
        return 0.0
    if isinstance(module, _TRANSPOSED):
        return math.sqrt(2.0 * module.groups / (shape[0] * math.prod(shape[2:])))
    if isinstance(module, _RECTIFIED):
        return math.sqrt(2.0 / math.prod(shape[1:]))
    if isinstance(module, _RECURRENT):
        return math.sqrt(1.0 / shape[-1])
    # Embeddings and parameters of the user's own: the mean and the scale that the network gave them.
    return float(value.detach().double().std()) if value.numel() > 1 else 0.0


def starting_means(model: Model, rng: Rng, start: Start = "fan_in") -> Tensor:
    """theta (particles, columns) to start from.

    "fan_in": as the module's docstring says; biases of layers start at 0. "network": the network's own weights, for a
    pre-trained one. A number s: N(0, s^2) for everything; a pair (low, high): uniform between the two.
    """
    layout, network = model.layout, model.network
    modules, parameters = dict(network.named_modules()), dict(network.named_parameters())
    noise = rng.normal(layout.size, Stream.INITIAL, dtype=model.dtype)[:, 0]
    theta = torch.empty_like(noise)
    initial = {latent.name: _initial_columns(latent, rng.particles) for latent in model.latents}
    if not (
        start in ("fan_in", "network")
        or isinstance(start, float | int)
        or (isinstance(start, tuple) and len(start) == 2)
    ):
        raise ConfigurationError(
            "initial_mean says where the means start",
            received=repr(start),
            expected='"fan_in", "network", a standard deviation or a pair (low, high)',
            write='initial_mean="fan_in"',
        )
    for block in layout.blocks:
        columns = block.columns
        if block.kind == "latent":
            theta[:, columns] = initial[block.name].to(theta)
            continue
        value = parameters[block.name].detach().to(model.dtype)
        module = modules[block.module]
        if start == "fan_in" and block.kind == "random":
            spread = fan_in_spread(block, module, value)
            if spread > 0.0:
                # A parameter of the user's own may be far from zero (the lengths that weight_norm splits off).
                centre = 0.0 if isinstance(module, (*_RECTIFIED, *_TRANSPOSED, *_RECURRENT)) else value.mean()
                theta[:, columns] = centre + spread * noise[:, columns]
            elif isinstance(module, (*_RECTIFIED, *_TRANSPOSED)):
                theta[:, columns] = 0.0
            else:
                theta[:, columns] = value.reshape(-1)
        elif isinstance(start, float | int) and block.kind == "random":
            theta[:, columns] = float(start) * noise[:, columns]
        elif isinstance(start, tuple) and block.kind == "random":
            # The normal noise through its own distribution function is uniform.
            uniform = torch.special.ndtr(noise[:, columns].double()).to(model.dtype)
            theta[:, columns] = start[0] + (start[1] - start[0]) * uniform
        else:
            theta[:, columns] = value.reshape(-1)
    random = layout.random
    # A non-centred prior stores z with weight = loc + scale z: the z that give the wanted weights.
    theta[:, :random] = model.bound_prior.columns(theta[:, :random].clone(), theta[:, : layout.latent])
    return theta


def _initial_columns(latent: Latent, particles: int) -> Tensor:
    """Where a latent starts, (particles, 1)."""
    return torch.tensor([[latent.initial_column(p)] for p in range(particles)], dtype=torch.float64)


def _rows(value: float | Tensor, like: Tensor) -> Tensor:
    """A number, or one for each particle, as (particles, 1) of the kind of `like`."""
    return torch.as_tensor(value, dtype=torch.float64).to(like).reshape(-1, 1).expand(like.shape[0], 1)


def starting_scales(
    model: Model, mean: Tensor, scale: float | Tensor, relative_scale: float | Tensor | None = None
) -> Tensor:
    """Standard deviations to start from, for the columns that have a distribution: (particles, columns).

    Each scale is a number or one for each particle. `scale` everywhere; with `relative_scale` d, of random weights
    d |mean|, and at least a tenth of d times the root mean square of the parameter (MOPED, Krishnan et al. 2020). A
    parameter that is all zero keeps `scale`.
    """
    found = _rows(scale, mean).repeat(1, model.layout.latent)
    if relative_scale is None:
        return found
    relative = _rows(relative_scale, mean)[:, 0]
    for block in model.layout.of_kind("random"):
        for row, values, factor in zip(found[:, block.columns], mean[:, block.columns], relative, strict=True):
            if bool(values.any()):
                row.copy_(factor * relative_size(values))
    return found


def starting_rho(model: Model, rng: Rng, rho: float | Tensor | tuple[float, float]) -> Tensor:
    """rho itself, a number (or one for each particle) or drawn uniformly between two: (particles, columns with a
    distribution)."""
    size, width = model.layout.size, model.layout.latent
    if not isinstance(rho, tuple):
        like = torch.empty(rng.particles, 0, dtype=model.dtype, device=model.device)
        return _rows(rho, like).repeat(1, width)
    low, high = rho
    noise = rng.normal(size + width, Stream.INITIAL, dtype=torch.float64)[:, 0, size:]
    return (low + (high - low) * torch.special.ndtr(noise)).to(model.dtype)


def rho_of(std: Tensor) -> Tensor:
    """softplus^-1(s) = s + log(1 - exp(-s)), written so that small s keep their digits."""
    return std + torch.log(-torch.expm1(-std))
