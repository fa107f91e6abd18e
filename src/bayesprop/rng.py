"""Noise that is a function of (seed, step, particle, stream), never of history.

`Rng` knows the seeds of all particles and the number of the step. Every draw is computed from those numbers by the
counter generator in `kernels.noise`, so that a run resumes bit for bit, noise can be drawn again in a later kernel
instead of being stored, and a member of a population sees the noise that it would see alone.

Code of others (a dropout layer in a user's network, a DataLoader that shuffles) draws from torch's global generator.
`quarantine` lets such code run with a generator state that is ours, and puts the user's state back afterwards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum

import torch
from torch import Tensor

from bayesprop.kernels import noise

__all__ = ["Rng", "Stream", "member_seed", "quarantine"]

_MASK64 = (1 << 64) - 1


class Stream(IntEnum):
    """What a draw is for. Two streams never share a number; activation noise counts upwards from its own stream."""

    WEIGHTS = 1
    INITIAL = 2
    ORDER = 3
    GLOBAL = 4
    PREDICTION = 5
    TARGETS = 6
    SPLIT = 7
    BOOTSTRAP = 8
    PRIOR_FUNCTION = 9
    MEASUREMENT = 10
    ACTIVATION = 1 << 16


def _mix(value: int) -> int:
    """The finaliser of SplitMix64: every bit of the input reaches every bit of the output."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK64
    return value ^ (value >> 31)


def member_seed(seed: int, particle: int) -> int:
    """The seed of one member of a population; particle 0 keeps the seed, so that alone and first are the same run."""
    if particle == 0:
        return seed & (_MASK64 >> 1)
    return _mix(_mix(seed & _MASK64) ^ particle) >> 1


@dataclass(frozen=True)
class Rng:
    """The seeds of all particles (a tensor of int64) and the step.

    Inside a captured graph the step is a tensor on the device, so that a replay draws the noise of its own step.
    """

    seeds: Tensor
    step: int | Tensor = 0

    @classmethod
    def create(cls, seed: int, particles: int = 1, device: torch.device | str = "cpu") -> Rng:
        return cls(torch.tensor([member_seed(seed, p) for p in range(particles)], dtype=torch.int64, device=device))

    @property
    def particles(self) -> int:
        return self.seeds.shape[0]

    def at(self, step: int | Tensor) -> Rng:
        """The same seeds at another step."""
        return replace(self, step=step)

    def keys(self, draws: int = 1, first: int = 0) -> Tensor:
        """One key (seed, draw) for each particle and draw: int64 of shape (particles, draws, 2)."""
        number = torch.arange(first, first + draws, device=self.seeds.device)
        return torch.stack(torch.broadcast_tensors(self.seeds[:, None], number[None, :]), dim=-1)

    def normal(self, columns: int, stream: Stream, draws: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
        """Standard normal noise of shape (particles, draws, columns)."""
        return noise.normal(self.keys(draws), self.step, int(stream), columns).to(dtype)

    def permutation(self, count: int, stream: Stream = Stream.ORDER) -> Tensor:
        """A random order of range(count) for each particle: int64 of shape (particles, count)."""
        bits = noise.bits(self.keys(), self.step, int(stream), count)[:, 0]
        return torch.sort(bits, dim=-1, stable=True).indices

    def rows(self, count: int, stream: Stream) -> Tensor:
        """Whole numbers below `count`, drawn with replacement: int64 of shape (particles, count).

        The integer part of a product: uniform to count / 2^32.
        """
        return (noise.bits(self.keys(), self.step, int(stream), count)[:, 0] * count) >> 32

    def integer(self, stream: Stream) -> int:
        """One 62-bit number from the first particle, to seed somebody else's generator."""
        low, high = noise.bits(self.keys(), self.step, int(stream), 2)[0, 0].tolist()
        return low | ((high & 0x3FFFFFFF) << 32)


@contextlib.contextmanager
def quarantine(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Run a block with torch's global generators seeded by `seed`, and give the user's states back afterwards."""
    device = torch.device(device)
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
