"""GPU bodies in Triton's interpreter, for machines without a GPU.

Triton decides when a kernel is defined whether it will be compiled or interpreted, so they are all defined here, before
any test asks for them. Only tests that ask for `interpreter` run them; to all others this machine has none.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

import pytest
import torch

if not torch.cuda.is_available() and importlib.util.find_spec("triton") is not None:
    os.environ["TRITON_INTERPRET"] = "1"
    from bayesprop.kernels import device_columns, device_dense, device_math, device_steps  # noqa: F401

    del os.environ["TRITON_INTERPRET"]


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """Where GPU bodies run: the CPU in Triton's interpreter, or the GPU where there is one."""
    if torch.cuda.is_available():
        yield torch.device("cuda")
    else:
        monkeypatch.setenv("TRITON_INTERPRET", "1")
        yield torch.device("cpu")
