"""Checks of what a user passes as a parameter of a density: numbers become floats, tensors lose their graph.

Every refusal names the class, the argument, what came, what can be used, and a line that works.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bayesprop.distributions.elementwise import Number
from bayesprop.errors import ConfigurationError, did_you_mean

__all__ = ["choice", "finite", "number", "positive"]


def _shown(value: Any) -> str:
    return f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else repr(value)


def number(value: Any, *, asked: str, expected: str, write: str, tensors: bool = True) -> Number:
    """A finite float, or a floating-point tensor without a graph and with finite entries only."""
    if isinstance(value, Tensor) and tensors and not value.is_complex() and value.dtype != torch.bool:
        value = value.detach() if value.is_floating_point() else value.detach().to(torch.get_default_dtype())
        if bool(torch.isfinite(value).all()):
            return value
        raise ConfigurationError(
            asked, received=f"{_shown(value)} with NaN or infinite entries", expected=expected, write=write
        )
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise ConfigurationError(asked, received=_shown(value), expected=expected, write=write)


def finite(owner: str, name: str, value: Any, *, write: str) -> Number:
    """A finite number or tensor."""
    return number(value, asked=f"{owner}({name}=...)", expected="a finite number or tensor", write=write)


def positive(owner: str, name: str, value: Any, *, write: str, tensors: bool = False) -> Number:
    """A finite number (or tensor, where `tensors`) above zero."""
    expected = "a finite number or tensor above 0" if tensors else "a finite number above 0"
    asked = f"{owner}({name}=...) must be positive"
    found = number(value, asked=asked, expected=expected, write=write, tensors=tensors)
    if isinstance(found, Tensor):
        if not bool((found > 0).all()):
            smallest = f"{_shown(found)} whose smallest entry is {found.min().item():g}"
            raise ConfigurationError(asked, received=smallest, expected=expected, write=write)
    elif found <= 0.0:
        raise ConfigurationError(asked, received=f"{name}={found:g}", expected=expected, write=write)
    return found


def choice(owner: str, name: str, value: Any, known: Sequence[str]) -> None:
    """One of a few words."""
    if value not in known:
        raise ConfigurationError(
            f"{owner}({name}=...) is one of a few words.{did_you_mean(str(value), known)}",
            received=f"{name}={value!r}",
            expected=", ".join(repr(word) for word in known),
            write=f'{owner}({name}="{known[0]}")',
        )
