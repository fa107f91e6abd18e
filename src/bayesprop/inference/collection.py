"""Weights kept along a run: which steps are kept, where they lie, and how much memory that takes.

A run of T steps has a collecting part, told by a function share(progress) that grows from 0 to 1 over it and stands
still elsewhere. With S places, step k is kept when floor(S share) grows from k / T to (k + 1) / T, so that the kept
steps are spread evenly over the collecting part, whatever T is. Places are made before the first step: collecting never
allocates, and what it needs is known, and refused if it is too much, before it is spent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesprop.errors import MemoryBudgetError
from bayesprop.model import Model, Place

__all__ = ["Kept", "check_budget", "keep", "kept_bytes", "kept_samples", "make_kept", "place_of"]

GIBIBYTE = 2**30


@dataclass
class Kept:
    """theta (particles, S + 1, columns) and the buffers that belong to each row; `filled` (particles, S + 1).

    The last place takes what is not kept, where a step must not ask whether it is.
    """

    theta: Tensor
    filled: Tensor
    buffers: dict[str, Tensor]


def kept_bytes(model: Model, particles: int, samples: int) -> int:
    """Bytes that the places will take, and the copy of them that a posterior is."""
    buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers.values())
    row = model.layout.size * torch.finfo(model.dtype).bits // 8 + buffers + 1
    return particles * (2 * samples + 1) * row


def check_budget(model: Model, particles: int, samples: int, budget: float, method: str) -> None:
    """Refuse samples that would take more than `budget` GiB."""
    needed, allowed = kept_bytes(model, particles, samples), budget * GIBIBYTE
    if needed <= allowed:
        return
    fitting = (int(allowed // kept_bytes(model, particles, 0)) - 1) // 2
    chains = f" for each of {particles} particles" if particles > 1 else ""
    raise MemoryBudgetError(
        f"{method}: the samples to keep do not fit into their memory budget",
        received=f"{samples} samples of {model.layout.size:,} columns{chains}, twice (the run's and the posterior's): "
        f"{needed / GIBIBYTE:.2f} GiB",
        expected=f"at most memory_budget={budget:g} GiB"
        + (f", which holds {fitting} samples" if fitting > 0 else ", which does not hold a single one"),
        write=f"{method}(samples={fitting})  # or memory_budget={math.ceil(needed / GIBIBYTE)}"
        if fitting > 0
        else f"{method}(memory_budget={math.ceil(needed / GIBIBYTE)})  # or SWAG, which keeps a few rows",
    )


def make_kept(model: Model, particles: int, samples: int) -> Kept:
    """Empty places."""
    device = model.device
    theta = torch.zeros(particles, samples + 1, model.layout.size, dtype=model.dtype, device=device)
    filled = torch.zeros(particles, samples + 1, dtype=torch.bool, device=device)
    buffers = {name: buffer.new_zeros(particles, samples + 1, *buffer.shape) for name, buffer in model.buffers.items()}
    return Kept(theta, filled, buffers)


def place_of(
    place: Place, share: Callable[[float], float], samples: int, *, portion: float = 1.0, thinning: int | None = None
) -> int:
    """Where the weights after this step are kept; -1 if they are not.

    `portion` is the length of the collecting part as a share of the run. With `thinning` kept steps are at least so
    many steps apart; where they are more than there are places, the newest take those of the oldest.
    """
    steps = max(1, place.count * place.epochs)
    step = place.epoch * place.count + place.index
    wanted = samples if thinning is None else max(1, int(portion * steps) // thinning)
    # A share is a quotient of floats: what should be a whole number may lie just below it.
    before, after = (math.floor(wanted * share(min(1.0, k / steps)) + 1e-9) for k in (step, step + 1))
    return (after - 1) % samples if after > before else -1


def keep(kept: Kept, slot: int | float | Tensor, theta: Tensor, buffers: Mapping[str, Tensor]) -> None:
    """Put the weights and buffers of all particles into a place, or nowhere. Never waits for the device."""
    last = kept.filled.shape[1] - 1
    if isinstance(slot, Tensor):
        index = torch.where(slot < 0, last, slot).long().reshape(-1)[:1]
        kept.theta.index_copy_(1, index, theta[:, None])
        kept.filled.index_fill_(1, index, True)
        for name, stack in kept.buffers.items():
            stack.index_copy_(1, index, buffers[name][:, None])
    elif slot >= 0:
        kept.theta[:, int(slot)] = theta
        kept.filled[:, int(slot)] = True
        for name, stack in kept.buffers.items():
            stack[:, int(slot)] = buffers[name]


def kept_samples(kept: Kept, theta: Tensor, buffers: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """What has been kept so far, (particles, samples, columns) with its buffers; the weights as they are now where
    nothing has been."""
    filled = kept.filled[0, :-1]
    if not bool(filled.any()):
        return theta[:, None].clone(), {name: buffer[:, None].clone() for name, buffer in buffers.items()}
    return kept.theta[:, :-1][:, filled], {name: stack[:, :-1][:, filled] for name, stack in kept.buffers.items()}
