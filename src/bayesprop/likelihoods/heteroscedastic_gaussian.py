"""Gaussian noise whose scale the network predicts, too.

    (m, r) = f(x),   scale = softplus(r) + 1e-4,   y = m + scale * e,   e ~ N(0, 1)                         (1)

The floor of 1e-4 keeps the density finite where the network fits a target exactly. It is on the scale of the targets as
the model sees them: standardise targets that vary by less than a hundredth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from bayesprop.distributions import normal
from bayesprop.errors import DataError
from bayesprop.likelihoods.gaussian import standard_normal_cdf
from bayesprop.likelihoods.likelihood import Likelihood, Task, compact, same_rows, sum_targets, widen
from bayesprop.likelihoods.regression import check_shapes, finite_targets

__all__ = ["HeteroscedasticGaussian"]

SCALE_FLOOR = 1e-4


@dataclass(frozen=True)
class HeteroscedasticGaussian(Likelihood):
    """Regression with noise that differs from input to input.

    Outputs (n, 2 T) for targets (n, T), the first T columns being the means, the last T the raw scales; (n, 2) for
    targets (n,). More dimensions behind, such as pixels, stay as they are: (n, 2 T, ...) for (n, T, ...).
    """

    task: ClassVar[Task] = "regression"

    @property
    def has_cdf(self) -> bool:
        return True

    def encode(self, targets: Any) -> Tensor:
        return finite_targets(targets, self)

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        same_rows(self, outputs, targets)
        if outputs.dim() < 2 or outputs.shape[1] % 2:
            columns = compact(targets).shape[1] if compact(targets).dim() > 1 else 1
            raise DataError(
                "HeteroscedasticGaussian() needs two outputs for each target, a mean and a raw scale",
                received=f"outputs {tuple(outputs.shape)} for targets {tuple(targets.shape)}",
                expected=f"outputs ({outputs.shape[0]}, {2 * columns})",
                write=f"a last layer with {2 * columns} outputs, or likelihoods.Gaussian() for noise of one scale",
            )
        check_shapes(self, outputs[:, : outputs.shape[1] // 2], targets)

    def _moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        mean, raw = widen(outputs).chunk(2, dim=1)
        return compact(mean), softplus(compact(raw)) + SCALE_FLOOR

    def log_prob(self, outputs: Tensor, targets: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        mean, scale = self._moments(outputs)
        return sum_targets(normal.log_density(compact(targets).to(mean.dtype), mean, scale))

    def mean(self, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        return self._moments(outputs)[0]

    def variance(self, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        return self._moments(outputs)[1].square()

    def cdf(self, outputs: Tensor, values: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        mean, scale = self._moments(outputs)
        return standard_normal_cdf((values - mean) / scale)

    def sample(self, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        mean, scale = self._moments(outputs)
        return mean + scale * torch.randn_like(mean)
