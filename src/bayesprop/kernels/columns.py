"""The passes over the columns that carry the Bayesian part of any network, on a GPU.

    sample:  theta = mean + std * eps                                                                       (1)
    update:  draw the same eps again, add the prior's and the entropy's gradients to dL/dtheta, take the optimiser's
             step (2)

Nothing is stored between the two but theta. The definition is the plain path of Bayes by Backprop
(`inference.variational.gradients` and `inference.optimizers`); tests hold the two together, element by element. The
step's number is a tensor on the device, so that both can be part of a captured graph. Mean, rho, their moments and
theta lie in rooms (`kernels.rooms`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesprop.kernels.device import launch
from bayesprop.kernels.mean_field import FAMILIES
from bayesprop.kernels.rooms import is_room, pitch, room

__all__ = ["Prior", "Rule", "normal", "prior_constants", "sample", "update"]

BLOCK = 1024  # columns of a program


@dataclass(frozen=True)
class Rule:
    """What an optimiser does with a gradient: "adam" (AdamW with a weight decay), "momentum" or "sgd".

    beta1 is the momentum of "momentum". Learning rates and corrections are numbers of a step and come with it.
    """

    name: str
    beta1: float = 0.0
    beta2: float = 0.0
    epsilon: float = 0.0
    weight_decay: float = 0.0

    def moments(self, moments: Mapping[str, Tensor], which: str, absent: Tensor) -> tuple[Tensor, Tensor]:
        """First and second moment of "mean" or "rho"; `absent` stands in for what this rule does not keep."""
        if self.name == "adam":
            return moments[f"{which}.first"], moments[f"{which}.second"]
        return (moments[f"{which}.velocity"], absent) if self.name == "momentum" else (absent, absent)


@dataclass(frozen=True)
class Prior:
    """What the update knows of the prior.

    `family` is a name of `mean_field.FAMILIES` or "given", where the score of every column with a distribution comes
    from outside. `constants` (particles or 1, columns or 1, 4) are the family's numbers in its kernel's order. With
    `exact`, the KL's closed form takes the place of the score at the sample.
    """

    family: str
    constants: Tensor
    exact: bool


def prior_constants(family: str, *parameters: float | Tensor) -> Tensor:
    """The four numbers of a family's kernel, (..., 4), from the family's own parameters."""
    _, order = FAMILIES[family]
    found = [torch.as_tensor(value, dtype=torch.float64) for value in order(*parameters)]
    found += [torch.zeros((), dtype=torch.float64)] * (4 - len(found))
    return torch.stack(torch.broadcast_tensors(*found), dim=-1).float()


def normal(keys: Tensor, step: Tensor, stream: int, columns: int) -> Tensor:
    """Noise (..., columns) of keys (..., 2) at a step that lies on the device."""
    from bayesprop.kernels.device_columns import normal_kernel

    out = torch.empty(*keys.shape[:-1], columns, dtype=torch.float32, device=keys.device)
    if out.numel():
        rows = keys.reshape(-1, 2).contiguous()
        grid = (-(-columns // BLOCK), rows.shape[0])
        launch(normal_kernel, grid, out, rows, step, stream, columns, BLOCK=BLOCK)
    return out


def sample(
    mean: Tensor,
    rho: Tensor,
    seeds: Tensor,
    step: Tensor,
    stream: int,
    samples: int = 1,
    *,
    antithetic: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Equation (1): theta (particles, samples, columns); columns beyond those of rho are copies of the mean."""
    from bayesprop.kernels.device_columns import sample_kernel

    _check(mean, rho)
    (particles, columns), width = mean.shape, rho.shape[1]
    out = room(particles, samples, columns, dtype=dtype, device=mean.device)
    pairs = samples // 2 if antithetic else 0
    grid = (-(-columns // BLOCK), particles * samples)
    launch(
        sample_kernel, grid,
        out, mean, rho, seeds, step, stream, pitch(columns), pitch(width), width, samples, pairs, BLOCK=BLOCK
    )  # fmt: skip
    return out


def _check(*matrices: Tensor) -> None:
    for matrix in matrices:
        assert is_room(matrix), f"{list(matrix.shape)} with strides {matrix.stride()} is no room: see kernels.rooms"


def update(
    mean: Tensor,
    rho: Tensor,
    moments: Mapping[str, Tensor],
    gradient: Tensor,
    parts: Tensor,
    seeds: Tensor,
    step: Tensor,
    stream: int,
    numbers: Tensor,
    *,
    rule: Rule,
    prior: Prior,
    scores: Tensor | None,
    random: int,
    antithetic: bool,
    likelihood_scale: float,
    kl_scale: float,
    value_scale: float,
    ahead: Tensor | None = None,
) -> Tensor:
    """Equation (2), in place.

    `gradient` (particles, samples, columns) is that of the log-likelihood by theta; it is scaled by
    `likelihood_scale`. `numbers` (5, particles): the step's learning rates of mean and rho, its KL weight (times
    `kl_scale`), and the two corrections of Adam. `scores` are d log p / d theta of the columns with a distribution that
    the family does not cover: of the latents behind the first `random` columns, or of all of them for the family
    "given". `ahead` (particles, samples, columns) receives the sample of step + 1, of means and scales that are at hand
    here.

    Returned is the log-likelihood of each particle: the sum of its `parts` (particles, parts), the mean over its
    samples, times `value_scale`.
    """
    from bayesprop.kernels.device_columns import update_kernel

    (particles, columns), width = mean.shape, rho.shape[1]
    _check(mean, rho, *moments.values(), *(() if ahead is None else (ahead,)))
    whole = is_room(gradient)
    samples = gradient.shape[1]
    lanes = gradient if whole else gradient.contiguous()  # autograd may hand over a part of something larger
    lanes, end = lanes.flatten(0, 1), pitch(columns) if whole else columns
    parts = parts.contiguous()
    constants, count = prior.constants, parts.shape[1]
    value = torch.empty(particles, dtype=torch.float32, device=mean.device)
    many = particles * columns > 1 << 21  # more than caches hold; of fewer columns, many small programs
    block, warps = (512, 4) if many else (128, 1)
    launch(
        update_kernel, (-(-columns // block), particles),
        mean, rho, *rule.moments(moments, "mean", mean), *rule.moments(moments, "rho", rho), lanes,
        mean if scores is None else scores, mean if ahead is None else ahead, parts, value, seeds, step, numbers,
        constants, constants.stride(0) if constants.shape[0] > 1 else 0, stream, pitch(columns), pitch(width),
        lanes.stride(0), end, random, width, particles, count, likelihood_scale, kl_scale,
        value_scale / samples, rule.beta1, rule.beta2, rule.epsilon, rule.weight_decay,
        FAMILY=prior.family, EXACT=prior.exact, RULE=rule.name, REST=columns > random, SAMPLES=samples,
        PAIRS=samples // 2 if antithetic else 0, AHEAD=ahead is not None, EACH=constants.shape[1] > 1,
        PARTS=1 << max(0, count - 1).bit_length(), BLOCK=block, num_warps=warps,
    )  # fmt: skip
    return value
