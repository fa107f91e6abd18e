"""What a user may ask of a prediction, checked: levels, rows, and how much memory the answer takes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError, DataError, MemoryBudgetError

__all__ = ["interval_levels", "quantile_levels", "refuse_if_large", "row_numbers"]


def quantile_levels(q: Any) -> tuple[tuple[float, ...], bool]:
    """Levels as a tuple, and whether a single one was asked for."""
    asked = torch.as_tensor(q, dtype=torch.float64)
    levels = tuple(asked.reshape(-1).tolist())
    for level in levels:
        if not 0 < level < 1:
            raise ConfigurationError(
                "a quantile has a level between 0 and 1",
                received=f"{level:g}",
                expected="a number above 0 and below 1, or a sequence of them",
                write=f"prediction.quantile({level / 100:g})" if 1 < level < 100 else "prediction.quantile(0.5)",
            )
    if not levels:
        raise ConfigurationError("quantile needs a level", received="none", write="prediction.quantile([0.05, 0.95])")
    return levels, asked.dim() == 0


def interval_levels(level: float) -> tuple[float, float]:
    """The levels of the two ends of an interval that holds `level`, with equal tails."""
    if not 0 < level < 1:
        raise ConfigurationError(
            "an interval has a probability between 0 and 1",
            received=f"{level:g}",
            expected="a number above 0 and below 1",
            write=f"prediction.interval({level / 100:g})" if 1 < level < 100 else "prediction.interval(0.9)",
        )
    return 0.5 - level / 2, 0.5 + level / 2


def row_numbers(rows: Any, total: int) -> Tensor:
    """A slice, a mask or row numbers as increasing row numbers."""
    chosen = torch.arange(total)[rows if isinstance(rows, int | slice) else torch.as_tensor(rows).cpu()].reshape(-1)
    if chosen.numel() == 0 or bool((chosen.diff() <= 0).any()):
        raise DataError(
            "rows of a prediction stay in their order",
            received="no rows" if chosen.numel() == 0 else "row numbers that repeat or go back",
            expected="a slice, a mask, or increasing row numbers; at least one row",
            write="prediction[rows.sort().values]" if chosen.numel() else "prediction[:10]",
        )
    return chosen


def refuse_if_large(name: str, piece: Tensor, total: int, budget: int) -> None:
    """Refuse an answer of `total` rows of which `piece` (copies, some rows, ...) is a part."""
    copies, per_row, size = piece.shape[0], piece.numel() // piece.shape[1], piece.element_size()
    if per_row * total <= budget:
        return
    raise MemoryBudgetError(
        f"{name} would hold {copies} x {total} rows x {per_row // copies} numbers",
        received=f"{per_row * total * size / 1e9:.3g} GB",
        expected=f"at most {budget * size / 1e9:.3g} GB (a budget of {budget} numbers)",
        write="prediction.mean, .std, .quantile(q) or .interval(level), which need no draws in memory; "
        f"or prediction[:{max(1, budget // per_row)}] for some of the rows",
    )
