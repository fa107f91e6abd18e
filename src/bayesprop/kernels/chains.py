"""Trajectories of Hamiltonian chains as native code: small stacks of dense layers, all leapfrog steps in one call.

For a network of sixty weights and five hundred rows, a gradient is some ten microseconds of arithmetic, and hundreds of
microseconds of calls into torch. `trajectory` does what `inference.mcmc.leapfrog` does with the log joint of
`inference.mcmc.target`: that is its definition, and tests hold the two together.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bayesprop.kernels import native
from bayesprop.kernels.dense import Stack

__all__ = ["ACTIVATIONS", "BLOCK", "Joint", "in_blocks", "library", "trajectory"]

SOURCE = Path(__file__).with_name("chains.cpp")
BLOCK = 256  # rows that go through the network together, as chains.cpp has it
ACTIVATIONS = {"identity": 0, "relu": 1, "tanh": 2, "sigmoid": 3}
LIKELIHOODS = {"Gaussian": 0, "Bernoulli": 1, "Categorical": 2}


@dataclass(frozen=True)
class Joint:
    """A log joint in numbers.

    Of each random column: where its normal prior lies (`center`) and its `precision`; the weight is the column itself,
    or `loc` + e^t times it with t in `scale_column` (-1: none). Of each latent: its column, its hyperprior (0
    half-normal, 1 half-Cauchy) and that one's scale. The noise scale is a number or in a column.
    """

    stack: Stack
    columns: int
    center: Tensor
    precision: Tensor
    loc: Tensor
    scale_column: Tensor
    latents: tuple[tuple[int, int, float], ...]
    likelihood: str
    noise: float = 1.0
    noise_column: int = -1


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


def _array(values: list[int] | list[float], kind: type) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=kind)


def _at(array: np.ndarray | Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.data_ptr() if isinstance(array, Tensor) else array.ctypes.data)


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
    chains, (layers, latents) = len(theta), (joint.stack.layers, joint.latents)
    parts = [[lay.weight, lay.bias, lay.inputs, lay.outputs, ACTIVATIONS[lay.activation]] for lay in layers]
    table = np.ascontiguousarray(parts, dtype=np.int64)
    columns, kinds = (_array([latent[i] for latent in latents], np.int64) for i in (0, 1))
    sizes = _array([latent[2] for latent in latents], np.float64)
    strides = _array([t.stride(0) if len(t) > 1 else 0 for t in (inputs, targets)], np.int64)
    constant = 0.5 * float((joint.precision.double().log() - float(np.log(2.0 * np.pi))).sum())
    values = torch.empty(2, chains, dtype=torch.float64)
    whole = ctypes.c_int64
    handle.bayesprop_trajectory(
        _at(table),
        whole(len(layers)),
        whole(rows),
        whole(joint.columns),
        whole(len(joint.center)),
        *(_at(t) for t in (joint.center, joint.precision, joint.loc, joint.scale_column)),
        ctypes.c_double(constant),
        *(_at(a) for a in (columns, kinds, sizes)),
        whole(len(latents)),
        whole(LIKELIHOODS[joint.likelihood]),
        whole(joint.noise_column),
        ctypes.c_float(joint.noise),
        *(_at(t) for t in (inputs, targets)),
        whole(targets.shape[2]),
        *(_at(t) for t in (strides, theta, gradient, momentum, scale, values[0], values[1])),
        whole(chains),
        whole(steps),
        ctypes.c_float(step_size),
        whole(min(torch.get_num_threads(), chains)),
    )
    return values[0], values[1]
