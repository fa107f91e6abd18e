"""Where GPU bodies can run, and what is said where they cannot."""

from __future__ import annotations

import torch

from bayesprop.kernels import device

CPU, CUDA, OTHER = torch.device("cpu"), torch.device("cuda"), torch.device("meta")


def test_the_interpreter_serves_the_cpu_where_it_is_asked_for(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert not device.interpreted()
    assert not device.available(CPU)
    assert device.status(CPU) == "plain torch: there are no GPU bodies for cpu"
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert device.interpreted()
    assert device.available(CPU)
    assert not device.available(OTHER)
    assert device.status(CPU) == "Triton's interpreter"


def test_a_gpu_without_triton(monkeypatch):
    monkeypatch.setattr(device, "_installed", lambda: False)
    assert not device.available(CUDA)
    assert device.status(CUDA) == "plain torch: triton is not installed"
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert not device.available(CPU)


def test_a_gpu_is_called_by_its_name(monkeypatch):
    monkeypatch.setattr(device, "_installed", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda where: f"the {where.type}")
    assert device.available(CUDA)
    assert device.status(CUDA) == "Triton on the cuda"


class Recorder:
    """A kernel that remembers its launches, and on which device they were."""

    def __init__(self) -> None:
        self.launches: list[tuple] = []

    def __getitem__(self, grid):
        def run(*arguments, **options):
            self.launches.append((grid, arguments, options))

        return run


def test_a_launch_hands_everything_on():
    kernel, first = Recorder(), torch.zeros(2)
    device.launch(kernel, (3, 2), first, 5, BLOCK=8)
    ((grid, arguments, options),) = kernel.launches
    assert grid == (3, 2)
    assert arguments[0] is first
    assert arguments[1:] == (5,)
    assert options == {"BLOCK": 8}


def test_tf32_is_for_gpus_and_for_a_block():
    """Torch's setting is the user's: it is put back, and one that is already shorter is left alone."""
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        for where, wanted, expected in ((CUDA, True, "high"), (CUDA, False, "highest"), (CPU, True, "highest")):
            with device.tf32_products(where, wanted):
                assert torch.get_float32_matmul_precision() == expected
            assert torch.get_float32_matmul_precision() == "highest"
        torch.set_float32_matmul_precision("medium")
        with device.tf32_products(CUDA):
            assert torch.get_float32_matmul_precision() == "medium"
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
