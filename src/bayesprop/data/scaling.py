"""Standardised data, and the way back to the user's own units.

    inputs' = (inputs - input_mean) / input_std          targets' = (targets - target_mean) / target_std          (1)

Mean and standard deviation are those of the rows at hand (divided by N, not N - 1), for each feature on its own. A
constant feature gets standard deviation 1: it becomes 0 and stays finite. What is not standardised has mean 0 and
standard deviation 1 as single numbers, so that (1) holds for everybody.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from bayesprop.data.tensors import Inputs
from bayesprop.errors import DataError

__all__ = ["Scaling", "Standardize"]

Standardize = bool | Literal["inputs", "targets"]


@dataclass(frozen=True)
class Scaling:
    """Means and standard deviations; inputs' have the shape of one row of inputs, targets' that of one target.

    A predictive mean m and standard deviation s of the standardised targets are m * target_std + target_mean and
    s * target_std in the user's units, and a log-density there is smaller by the sum of log(target_std).
    """

    input_mean: Tensor
    input_std: Tensor
    target_mean: Tensor
    target_std: Tensor

    @classmethod
    def of(cls, inputs: Inputs, targets: Tensor, standardize: Standardize) -> Scaling:
        """Measure the rows. Targets are standardised if they are floating point: labels and counts stay as they are."""
        input_mean, input_std = torch.zeros(()), torch.ones(())
        target_mean, target_std = torch.zeros(()), torch.ones(())
        if standardize in (True, "inputs"):
            if not isinstance(inputs, Tensor):
                raise DataError(
                    "standardize works on one input tensor",
                    received=f"a {type(inputs).__name__} of {len(inputs)} tensors",
                    expected="inputs that you have scaled yourself",
                    write='Data(inputs, targets, standardize="targets")',
                )
            input_mean, input_std = _moments(inputs)
        if standardize == "targets" and not targets.is_floating_point():
            raise DataError(
                "only targets with a unit can be standardised",
                received=f"targets of {targets.dtype}",
                expected="floating-point targets; labels and counts stay as they are",
                write="Data(inputs, targets.float(), standardize='targets')",
            )
        if standardize in (True, "targets") and targets.is_floating_point():
            finite = torch.isfinite(targets)
            if not bool(finite.all()):
                place = torch.nonzero(~finite)[0].tolist()
                raise DataError(
                    "targets that are not finite cannot be standardised",
                    received=f"{targets[tuple(place)].item()} at row {place[0]}",
                    expected="finite targets",
                    write='Data(inputs, targets, standardize="inputs")',
                )
            target_mean, target_std = _moments(targets)
        return cls(input_mean, input_std, target_mean, target_std)

    @cached_property
    def scales_inputs(self) -> bool:
        """Whether inputs change at all; remembered, because looking at a number on a GPU makes the CPU wait for it."""
        return not _is_identity(self.input_mean, self.input_std)

    @cached_property
    def scales_targets(self) -> bool:
        """Whether targets change at all."""
        return not _is_identity(self.target_mean, self.target_std)

    def scale_inputs(self, inputs: Inputs) -> Inputs:
        """Inputs in the user's units to what the network sees."""
        if not isinstance(inputs, Tensor) or not self.scales_inputs:
            return inputs
        return _scale(inputs, self.input_mean, self.input_std)

    def unscale_inputs(self, inputs: Inputs) -> Inputs:
        """The inverse of `scale_inputs`."""
        if not isinstance(inputs, Tensor) or not self.scales_inputs:
            return inputs
        return _unscale(inputs, self.input_mean, self.input_std)

    def scale_targets(self, targets: Tensor) -> Tensor:
        """Targets in the user's units to what the likelihood sees."""
        return _scale(targets, self.target_mean, self.target_std) if self.scales_targets else targets

    def unscale_targets(self, targets: Tensor) -> Tensor:
        """The inverse of `scale_targets`; any number of leading dimensions, such as draws, is fine."""
        return _unscale(targets, self.target_mean, self.target_std) if self.scales_targets else targets

    def to(self, device: torch.device | str) -> Scaling:
        """The same numbers on another device."""
        return Scaling(
            self.input_mean.to(device),
            self.input_std.to(device),
            self.target_mean.to(device),
            self.target_std.to(device),
        )


def _moments(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation over the rows, measured in float64 and stored in the tensor's own dtype."""
    dtype = tensor.dtype if tensor.is_floating_point() else torch.get_default_dtype()
    wide = tensor.double()
    std = wide.std(0, correction=0)
    # Exactly constant, not "nearly": rounding makes the deviation of a constant column tiny instead of zero, and a
    # deviation that underflows would divide by zero.
    constant = (wide.amin(0) == wide.amax(0)) | (std.to(dtype) == 0)
    return wide.mean(0).to(dtype), torch.where(constant, torch.ones_like(std), std).to(dtype)


def _is_identity(mean: Tensor, std: Tensor) -> bool:
    return mean.dim() == 0 and std.dim() == 0 and bool(mean == 0) and bool(std == 1)


def _scale(tensor: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    # In float64: a year such as 2015.25 loses its fraction when float32 subtracts the mean.
    dtype = tensor.dtype if tensor.is_floating_point() else mean.dtype
    return ((tensor.double() - mean.double()) / std.double()).to(dtype)


def _unscale(tensor: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return (tensor.double() * std.double() + mean.double()).to(tensor.dtype)
