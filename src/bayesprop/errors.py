"""Every error and warning that bayesprop raises.

    BayespropError
    ├── ConfigurationError   a hyper-parameter, a pattern or a combination that cannot work (also a ValueError)
    ├── DataError            inputs or targets that the model cannot take (also a ValueError)
    ├── CapabilityError      a posterior or a method was asked for what it cannot do (also a TypeError)
    ├── DivergenceError      training produced a NaN or an infinity (also an ArithmeticError)
    ├── CheckpointError      a file that is missing, damaged or of another network (also an OSError)
    └── MemoryBudgetError    more memory is needed than there is (also a MemoryError)

    BayespropWarning         something that was done, but that a user would want to know

A message has up to four parts, always in this order: what was asked, what was received, what was expected, and the line
to write instead. They are arguments here so that no message forgets one by accident.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "BayespropError",
    "BayespropWarning",
    "CapabilityError",
    "CheckpointError",
    "ConfigurationError",
    "DataError",
    "DivergenceError",
    "MemoryBudgetError",
    "did_you_mean",
]


class BayespropError(Exception):
    """The root of all errors of this library: catch it to catch them all."""

    def __init__(self, asked: str, *, received: str = "", expected: str = "", write: str = "") -> None:
        parts = [asked]
        for label, text in (("received", received), ("expected", expected), ("write", write)):
            if text:
                parts.append(f"  {label}: {text}")
        super().__init__("\n".join(parts))


class ConfigurationError(BayespropError, ValueError):
    """A hyper-parameter, a pattern or a combination that cannot work."""


class DataError(BayespropError, ValueError):
    """Inputs or targets that the model cannot take."""


class CapabilityError(BayespropError, TypeError):
    """A posterior or a method was asked for what it cannot do."""


class DivergenceError(BayespropError, ArithmeticError):
    """Training produced a NaN or an infinity; the last good checkpoint, if there is one, was kept."""


class CheckpointError(BayespropError, OSError):
    """A file that is missing, damaged, or that belongs to another network."""

    def __str__(self) -> str:  # OSError would print its argument tuple
        return str(self.args[0])


class MemoryBudgetError(BayespropError, MemoryError):
    """More memory is needed than there is."""


class BayespropWarning(UserWarning):
    """Something that was done, but that a user would want to know."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ' Did you mean ...?' for the closest known name, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
