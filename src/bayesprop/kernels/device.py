"""Whether the GPU bodies can run, and why not where they cannot.

They are written in Triton, which torch brings where it brings CUDA. `TRITON_INTERPRET=1`, set before they are first
used, runs them on the CPU, slowly, for tests.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

__all__ = ["available", "interpreted", "launch", "status", "tf32_products"]


def interpreted() -> bool:
    """Whether Triton runs its programs in its interpreter, on tensors of the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@functools.cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None


def available(device: torch.device) -> bool:
    """Whether bodies in Triton can run on tensors of this device."""
    return _installed() and (device.type == "cuda" or (device.type == "cpu" and interpreted()))


def status(device: torch.device) -> str:
    """One sentence: which bodies serve this device, and why."""
    if available(device):
        return f"Triton on {torch.cuda.get_device_name(device)}" if device.type == "cuda" else "Triton's interpreter"
    if device.type == "cuda":
        return "plain torch: triton is not installed"
    return f"plain torch: there are no GPU bodies for {device.type}"


def launch(kernel: Any, grid: tuple[int, ...], first: Tensor, *arguments: Any, **options: Any) -> None:
    """Run a kernel on the device of its first argument, whichever is the current one."""
    if first.device.type == "cuda" and first.device.index != torch.cuda.current_device():
        with torch.cuda.device(first.device):
            kernel[grid](first, *arguments, **options)
    else:
        kernel[grid](first, *arguments, **options)


@contextlib.contextmanager
def tf32_products(device: torch.device, wanted: bool = True) -> Iterator[None]:
    """Multiply matrices of float32 in TF32 where the device has it. Torch's own setting is put back behind the block;
    one that allows shorter numbers anyway is left alone."""
    before = torch.get_float32_matmul_precision()
    change = wanted and device.type == "cuda" and before == "highest"
    if change:
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        if change:
            torch.set_float32_matmul_precision(before)
