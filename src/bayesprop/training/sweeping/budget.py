"""How many settings are trained at once: as many as a memory budget holds, and what that is, said before it is spent.

A setting in training holds its state, what a step needs besides (`Method.memory` tells the least of it), a minibatch,
and what the layers of the network put out for it, twice: for the gradients too. One that waits holds its state in main
memory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bayesprop.errors import MemoryBudgetError
from bayesprop.training.sweeping.groups import Group
from bayesprop.training.sweeping.members import Member

__all__ = ["Plan", "available", "bytes_each", "plan", "size"]

SHARE = 0.6  # of what is free: torch's allocator and the libraries under it want some, too
STEP = 5  # of what a method says of a step: so much holds a plain one, with noise and the parts of the prior's score
# On a CPU a population lives in the cache, or each step reads it from memory: at 30 MiB a member's step of a small
# network took 1.6 times as long as at 4 MiB. Below a few members the overhead of a step would be spent too often.
CACHE, LEAST = 12 << 20, 4
GIVEN = 4 << 30  # where the operating system does not tell


@dataclass(frozen=True)
class Plan:
    """`waves` are the populations of one rung, in the order in which they are trained."""

    waves: tuple[tuple[Group, tuple[Member, ...]], ...]
    budget: int
    needed: int
    waiting: int
    groups: int

    def describe(self) -> str:
        """For people, in one sentence."""
        settings = sum(len(members) for _, members in self.waves)
        largest = max(len(members) for _, members in self.waves)
        kinds = f"{self.groups} structures" if self.groups > 1 else "one structure"
        waiting = f", {size(self.waiting)} for those that wait" if len(self.waves) > 1 else ""
        together = f"in {len(self.waves)} populations" if len(self.waves) > 1 else "in one population"
        return (
            f"{settings} settings of {kinds}, at most {largest} at a time {together}: "
            f"up to {size(self.needed)} of {size(self.budget)}{waiting}"
        )


def size(count: int) -> str:
    """Bytes for people: 1.5 GiB."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"


def available(device: torch.device) -> int:
    """Bytes that are free on a device, or in main memory."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    found = []
    for path, factor in (("/proc/meminfo", 1024), ("/sys/fs/cgroup/memory.max", 1)):
        try:
            words = Path(path).read_text().split()
        except OSError:
            continue
        if "MemAvailable:" in words:
            words = words[words.index("MemAvailable:") + 1 :]
        if words and words[0].isdigit():
            found.append(int(words[0]) * factor)
    if not found and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    return min(found, default=GIVEN)


def outputs_per_row(model: Any, inputs: Any) -> int:
    """Numbers that all layers together put out for one row."""
    sizes: list[int] = []

    def look(_module: nn.Module, _inputs: Any, result: Any) -> None:
        sizes.extend(t.numel() for t in pytree.tree_leaves(result) if isinstance(t, Tensor))

    some = pytree.tree_map(lambda t: t[:2], inputs)
    leaves = [module for module in model.network.modules() if not any(module.children())]
    hooks = [module.register_forward_hook(look) for module in leaves]
    model.set_mode(False)
    try:
        with torch.no_grad():
            model.forward({}, {}, some)
    finally:
        for hook in hooks:
            hook.remove()
    return sum(sizes) // pytree.tree_leaves(some)[0].shape[0]


def bytes_each(group: Group) -> int:
    """What one member of a group holds while it is trained."""
    method, inputs = group.members[0].setup.method, group.held_out[0]
    source = group.source(group.seeds(group.members[:1]))
    data = source.data
    rows = group.rows or data.num_data
    item = torch.finfo(group.model.dtype).bits // 8
    samples = getattr(getattr(method, "estimator", None), "samples", 1)
    width = outputs_per_row(group.model, inputs)
    given = sum(leaf[0].numel() for leaf in pytree.tree_leaves(inputs))
    particles = group.members[0].particles
    activations = item * particles * rows * (given + 2 * samples * width)
    step = method.memory(group.model, particles, rows) - group.state_bytes
    return group.state_bytes + STEP * max(0, step) + activations


def plan(groups: Sequence[Group], alive: Sequence[Member], budget: int) -> Plan:
    """Populations that fit the budget, as equal in size as can be."""
    racing = {member.number for member in alive}
    waiting = sum(sum(member.number in racing for member in group.members) * group.state_bytes for group in groups)
    here = groups[0].model.device.type
    left = budget - waiting if here == "cpu" else budget  # those that wait share the memory with those in training
    waves: list[tuple[Group, tuple[Member, ...]]] = []
    needed = kinds = 0
    for group in groups:
        members = [member for member in group.members if member.number in racing]
        if not members:
            continue
        kinds += 1
        each = bytes_each(group)
        most = left // each
        if most < 1:
            raise MemoryBudgetError(
                "sweep: not even one setting fits the memory budget",
                received=f"{size(each)} for one setting"
                + (f" and {size(waiting)} for the states of {len(racing)}" if here == "cpu" else "")
                + f", a budget of {size(budget)}",
                expected="fewer settings, a smaller minibatch, fewer samples, or a larger budget",
                write=f"bp.sweep(..., memory={waiting + each if here == 'cpu' else each})",
            )
        if here == "cpu":
            most = min(most, max(LEAST, CACHE // each))
        count = -(-len(members) // most)
        for i in range(count):
            part = members[i * len(members) // count : (i + 1) * len(members) // count]
            waves.append((group, tuple(part)))
            needed = max(needed, each * len(part))
    return Plan(tuple(waves), budget, needed, waiting, kinds)
