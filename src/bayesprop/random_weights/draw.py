"""One Gaussian tensor, its noise, and its one sample of a forward pass.

    sample = mean + scale * noise                                                                                    (1)

The noise of activations is counted: request k of a forward pass is stream ACTIVATION + k of the pass's key and step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesprop.kernels import noise as counter
from bayesprop.rng import Stream

__all__ = ["Draw", "NoiseSource", "sample"]


def sample(mean: Tensor, scale: Tensor, noise: Tensor) -> Tensor:
    """Equation (1)."""
    return torch.addcmul(mean, scale, noise)


@dataclass
class NoiseSource:
    """The activation noise of one forward pass: request k uses the stream ACTIVATION + k of the key at this step.

    `key` is an int64 tensor (seed, draw) of shape (2,); under vmap it may be batched, and so is the noise then. A
    request that was reserved can be served again with the same numbers (activation checkpointing runs a forward
    pass twice).
    """

    key: Tensor
    step: int | Tensor = 0
    requests: int = 0

    def reserve(self) -> int:
        """The number of a new request."""
        self.requests += 1
        return self.requests - 1

    def normal(self, shape: Sequence[int], dtype: torch.dtype, request: int | None = None) -> Tensor:
        """Standard normal noise; the next request if none is named."""
        number = self.reserve() if request is None else request
        count = math.prod(shape)
        drawn = counter.normal(self.key, self.step, int(Stream.ACTIVATION) + number, max(count, 1))
        return drawn[:count].reshape(*shape).to(dtype)

    def signs(self, shape: Sequence[int], dtype: torch.dtype, request: int | None = None) -> Tensor:
        """Independent fair signs, +1 or -1: those of `normal`."""
        return (self.normal(shape, torch.float32, request) >= 0).to(dtype) * 2 - 1


class Draw:
    """What a RandomWeight and its transposes share: the moments, the noise, and the one sample of this forward pass.

    `noise` may be None: it is then taken from the source when somebody asks for it, which a weight whose noise
    lives in the activations never does.
    """

    def __init__(self, mean: Tensor, scale: Tensor, noise: Tensor | None, source: NoiseSource) -> None:
        self.mean = mean
        self.scale = scale
        self.source = source
        self._noise = noise
        self._sample: Tensor | None = None
        self._requests: dict[str, int] = {}
        self._origin: Draw | None = None
        self._view: Callable[[Tensor], Tensor] = lambda tensor: tensor

    def viewed(self, view: Callable[[Tensor], Tensor]) -> Draw:
        """The same draw seen through `view`: noise and sample are views of the noise and the sample of this one."""
        seen = Draw(view(self.mean), view(self.scale), None, self.source)
        seen._origin, seen._view = self, view
        return seen

    @property
    def noise(self) -> Tensor:
        if self._noise is None:
            if self._origin is not None:
                self._noise = self._view(self._origin.noise)
            else:
                self._noise = self.source.normal(self.mean.shape, self.mean.dtype)
        return self._noise

    @property
    def perturbation(self) -> Tensor:
        """scale * noise: what the sample adds to the mean."""
        return self.scale * self.noise

    @property
    def sample(self) -> Tensor:
        """Equation (1), drawn once."""
        if self._sample is None:
            if self._origin is not None:
                self._sample = self._view(self._origin.sample)
            else:
                self._sample = sample(self.mean, self.scale, self.noise)
        return self._sample

    def request(self, role: str) -> int:
        """The number of this weight's noise request for a role such as "input signs": one number for ever."""
        if self._origin is not None:
            return self._origin.request(role)
        if role not in self._requests:
            self._requests[role] = self.source.reserve()
        return self._requests[role]
