"""Successive halving: when settings are compared, and which of them go on.

A rung is a share of the training. There, of the settings that are still in the race, the best go on, and the others
are dropped: most of the work goes to the settings that deserve it (Jamieson and Talwalkar 2016). All settings of one
sweep are compared at the same share of their own training, because schedules are measured by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bayesprop.errors import ConfigurationError
from bayesprop.training.sweeping.members import Member

__all__ = ["check_keep", "check_rungs", "cut", "ranked", "stops"]


def check_rungs(rungs: Any) -> tuple[float, ...]:
    """Shares of the training in (0, 1), in ascending order."""
    found = tuple(rungs) if isinstance(rungs, list | tuple) else None
    numbers = found is not None and all(isinstance(r, int | float) and not isinstance(r, bool) for r in found)
    if found is None or not numbers or any(not 0.0 < r < 1.0 for r in found) or list(found) != sorted(set(found)):
        raise ConfigurationError(
            "sweep: rungs are the shares of the training at which settings are dropped",
            received=repr(rungs),
            expected="ascending numbers between 0 and 1; () to drop none",
            write="rungs=(1/6, 1/2)",
        )
    return tuple(float(r) for r in found)


def check_keep(keep: Any) -> float:
    """The share of settings that goes on from a rung."""
    if isinstance(keep, bool) or not isinstance(keep, int | float) or not 0.0 < keep <= 1.0:
        raise ConfigurationError(
            "sweep: keep is the share of the settings that goes on from a rung",
            received=repr(keep),
            expected="a number above 0 and up to 1",
            write="keep=1/3",
        )
    return float(keep)


def stops(rungs: Sequence[float], epochs: int) -> list[int]:
    """The epochs at which a training of so many is looked at, its end included; at least one epoch is trained."""
    return [max(1, round(share * epochs)) for share in rungs] + [epochs]


def ranked(members: Sequence[Member], by: str) -> list[Member]:
    """The best first, by the newest score; equal ones in the order of the grid."""
    return sorted(members, key=lambda member: (member.last(by), member.number))


def cut(members: Sequence[Member], keep: float, least: int, by: str) -> None:
    """Drop all members of a race but the best share `keep` of them, and at least `least`."""
    count = max(least, math.ceil(keep * len(members) - 1e-9))
    for place, member in enumerate(ranked(members, by)):
        if place >= count:
            member.drop(
                f"dropped at epoch {member.scores[-1].epoch}: place {place + 1} of {len(members)}, {count} go on"
            )
