"""What all likelihoods of quantities refuse: values that are not finite, and outputs that do not fit the targets."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bayesprop.data.tensors import to_tensor
from bayesprop.errors import DataError
from bayesprop.likelihoods.likelihood import Likelihood, compact, first_row, first_value, same_rows

__all__ = ["check_shapes", "finite_targets"]


def finite_targets(targets: Any, likelihood: Likelihood) -> Tensor:
    """Targets as finite floating-point numbers; integers become torch's default dtype, float64 stays."""
    values = to_tensor(targets, "targets")
    if values.is_complex():
        raise DataError(f"{likelihood!r} needs real targets", received=f"{values.dtype}", write="targets.real")
    if not values.is_floating_point():
        return values.to(torch.get_default_dtype())
    wrong = ~torch.isfinite(values)
    if bool(wrong.any()):
        rows = int(wrong.reshape(wrong.shape[0], -1).any(1).sum())
        count = f"{rows} such row{'s' if rows > 1 else ''} in all"
        raise DataError(
            f"{likelihood!r} received a target that is not finite",
            received=f"{first_value(values, wrong)} in row {first_row(wrong)}; {count}",
            expected="finite numbers",
            write="keep = torch.isfinite(targets); inputs[keep], targets[keep]",
        )
    return values


def check_shapes(likelihood: Likelihood, outputs: Tensor, targets: Tensor) -> None:
    """Refuse outputs whose shape behind the rows is not the targets': they would be broadcast without a word."""
    same_rows(likelihood, outputs, targets)
    ours, theirs = tuple(compact(outputs).shape[1:]), tuple(compact(targets).shape[1:])
    if ours == theirs:
        return
    write = ""
    if len(ours) == 1 and len(theirs) <= 1:
        columns = theirs[0] if theirs else 1
        write = f"a last layer with {columns} output{'s' if columns > 1 else ''}"
        if ours[0] == 2 * columns and type(likelihood).__name__ == "Gaussian":
            write += ", or likelihoods.HeteroscedasticGaussian(), which reads the second half as scales"
    elif not ours and len(theirs) == 1:
        write = f"a last layer with {theirs[0]} outputs"
    raise DataError(
        f"{likelihood!r} needs one output for each target",
        received=f"outputs {tuple(outputs.shape)} for targets {tuple(targets.shape)}",
        expected=f"outputs {(targets.shape[0], *theirs)}",
        write=write,
    )
