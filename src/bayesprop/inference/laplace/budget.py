"""The memory that the matrices of a Laplace approximation take, told before a step is taken."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from bayesprop.errors import MemoryBudgetError
from bayesprop.model import Model
from bayesprop.posteriors.kronecker_gaussian import as_matrix

if TYPE_CHECKING:
    from bayesprop.inference.laplace.laplace import Laplace

__all__ = ["check_budget", "matrix_bytes"]

GIBIBYTE = 2**30


def matrix_bytes(method: Laplace, model: Model, particles: int) -> int:
    """A float64 precision and a factor for each particle, and three matrices while one is factorised; for Kronecker
    factors the same of two small matrices for each parameter."""
    if method.hessian == "diagonal":
        return 0
    size = torch.finfo(model.dtype).bits // 8
    if method.hessian == "kron":
        shapes = [as_matrix(block) for block in model.layout.of_kind("random")]
        numbers = sum(n**2 + (m**2 if m > 1 else 0) for n, m in shapes)
        return numbers * particles * (16 + size) + 24 * max(max(n, m) ** 2 for n, m in shapes)
    return len(method.columns(model)) ** 2 * (particles * (8 + size) + 24)


def check_budget(method: Laplace, model: Model, particles: int) -> None:
    """Refuse matrices that would take more than the budget, and name the forms that fit into it."""
    needed, allowed = matrix_bytes(method, model, particles), method.memory_budget * GIBIBYTE
    if needed <= allowed:
        return
    others = [replace(method, hessian=form) for form in ("kron", "last_layer") if form != method.hessian]
    fits = [other for other in others if matrix_bytes(other, model, particles) <= allowed]
    told = []
    for other in fits:
        count = len(other.columns(model))
        told.append(
            f'hessian="{other.hessian}" ' + (f"has {count} columns" if other.hessian == "last_layer" else "fits")
        )
    width = len(method.columns(model))
    what = f"{width:,} x {width:,} numbers" if method.hessian != "kron" else "two matrices for each parameter"
    raise MemoryBudgetError(
        f'Laplace(hessian="{method.hessian}"): the matrices do not fit into their memory budget',
        received=what
        + (f" for each of {particles} particles" if particles > 1 else "")
        + f": {needed / GIBIBYTE:.2f} GiB",
        expected=f"at most memory_budget={method.memory_budget:g} GiB" + "".join(f"; {line}" for line in told),
        write="".join(f'Laplace(MAP(), hessian="{other.hessian}")  # or ' for other in fits)
        + f'Laplace(MAP(), hessian="diagonal")  # or memory_budget={math.ceil(needed / GIBIBYTE)}',
    )
