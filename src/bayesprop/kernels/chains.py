"""Trajectories of Hamiltonian chains as native code: small stacks of dense layers, all leapfrog steps in one call.

`trajectory` does what `inference.mcmc.leapfrog` does with the log joint of `inference.mcmc.target`: that is its
definition, and tests hold the two together.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bayesprop.kernels import native
from bayesprop.kernels.small_stack import Joint, at, whole

__all__ = ["BLOCK", "in_blocks", "library", "trajectory"]

SOURCE = Path(__file__).with_name("chains.cpp")
BLOCK = 256  # rows that go through the network together, as small_stack.hpp has it


@functools.cache
def library() -> native.Library:
    """Build the library if needed and load it, once a process."""
    return native.built(SOURCE, ("trajectory",))


def in_blocks(rows: Tensor) -> Tensor:
    """(particles, n, F) to (particles, blocks, F, 256) in float32, zeros behind the last row; one copy where all
    particles have the same rows in memory."""
    shared = rows.shape[0] > 1 and rows.stride(0) == 0
    own = rows[:1] if shared else rows
    missing = -own.shape[1] % BLOCK
    wide = torch.nn.functional.pad(own.float(), (0, 0, 0, missing))
    return wide.unflatten(1, (-1, BLOCK)).transpose(2, 3).contiguous()


def trajectory(
    joint: Joint,
    inputs: Tensor,
    targets: Tensor,
    rows: int,
    theta: Tensor,
    gradient: Tensor,
    momentum: Tensor,
    scale: Tensor,
    step_size: float,
    steps: int,
) -> tuple[Tensor, Tensor]:
    """Move theta, its gradient and the momentum, contiguous float32 (chains, columns), in place by so many leapfrog
    steps (0: evaluate where they stand). Returns the log joint and its data term, float64 (chains,).

    `inputs` and `targets` are `in_blocks`; labels are numbers.
    """
    handle = library().handle
    assert handle is not None
    chains = len(theta)
    strides = np.array([t.stride(0) if len(t) > 1 else 0 for t in (inputs, targets)], dtype=np.int64)
    values = torch.empty(2, chains, dtype=torch.float64)
    handle.bayesprop_trajectory(
        *joint.layers,
        whole(rows),
        whole(joint.columns),
        whole(joint.random),
        *joint.prior,
        ctypes.c_double(joint.constant),
        *joint.hyperpriors,
        *joint.outcome,
        *(at(t) for t in (inputs, targets)),
        whole(targets.shape[2]),
        *(at(t) for t in (strides, theta, gradient, momentum, scale, values[0], values[1])),
        whole(chains),
        whole(steps),
        ctypes.c_float(step_size),
        whole(min(torch.get_num_threads(), chains)),
    )
    return values[0], values[1]
