"""The scale of observation noise: a number that is known, or a hyperprior under which it is learnt.

A learnt scale is the latent "likelihood.scale": one more column of theta, with a posterior like the weights. It is a
scale of the targets as the model sees them, so of standardised targets if the data were standardised.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from bayesprop.distributions.elementwise import Number
from bayesprop.distributions.hyperpriors import HalfNormal, Hyperprior
from bayesprop.errors import ConfigurationError
from bayesprop.latents import Latent

__all__ = ["LEARNT", "NAME", "Scale", "check_scale", "scale_latents", "scale_value"]

NAME = "likelihood.scale"
# Standardised targets have a noise between 0 and 1; the half-normal allows more without asking for it.
LEARNT = HalfNormal(1.0)

Scale = float | Hyperprior


def check_scale(scale: Any, owner: str) -> None:
    """Refuse what is neither a positive number nor a hyperprior of one scale."""
    if isinstance(scale, Hyperprior):
        if scale.shared in ("unit", "weight"):
            raise ConfigurationError(
                f"{owner} has one noise scale for all targets",
                received=f"a hyperprior with shared={scale.shared!r}, which is about weights",
                write=f"likelihoods.{owner}(scale={type(scale).__name__}(...))  # without shared=, "
                "or likelihoods.HeteroscedasticGaussian() for noise that differs",
            )
        return
    number = isinstance(scale, int | float) and not isinstance(scale, bool)
    if not number or not math.isfinite(scale) or scale <= 0:
        raise ConfigurationError(
            f"{owner} needs a positive scale of the noise (its standard deviation, not its variance)",
            received=f"scale={scale!r}",
            expected="a positive number, or a hyperprior to learn it: HalfNormal, HalfCauchy, InverseGamma, Gamma",
            write=f"likelihoods.{owner}(scale=0.1)  # or {owner}() to learn it",
        )


def scale_latents(scale: Scale) -> tuple[Latent, ...]:
    """The latent of a learnt scale; nothing for a known one."""
    if isinstance(scale, int | float):
        return ()
    return (Latent(NAME, (), scale.log_density_of_scale, float(scale.initial), scale.score_of_log_scale),)


def scale_value(scale: Scale, latents: Mapping[str, Tensor], outputs: Tensor) -> Number:
    """The scale of this draw: a number, or a tensor of no dimensions in the dtype of `outputs`."""
    if isinstance(scale, int | float):
        return float(scale)
    return latents[NAME].to(outputs.dtype)
