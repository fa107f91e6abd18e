"""`import bayesprop` changes nothing and loads nothing that is an extra."""

import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
import json, logging, os, random, signal, sys, warnings
import numpy, torch
import rich.progress, safetensors.torch, torch.utils.data, torch.func  # what these change is not ours

def state():
    loggers = [logging.getLogger(name) for name in ["root", *loggers_before]]
    return {
        "torch generator": torch.random.get_rng_state().tolist(),
        "numpy generator": str(numpy.random.get_state()),
        "python generator": str(random.getstate()),
        "default dtype": str(torch.get_default_dtype()),
        "default device": str(torch.get_default_device()),
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "gradients": torch.is_grad_enabled(),
        "matmul precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "log levels": [logger.level for logger in loggers],
        "log handlers": [len(logger.handlers) for logger in loggers],
        "warning filters": [str(row) for row in warnings.filters],
        "show warning": str(warnings.showwarning),
        "interrupt": str(signal.getsignal(signal.SIGINT)),
        "exception hook": str(sys.excepthook),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "print options": str(torch._tensor_str.PRINT_OPTS),
        "denormals": float(torch.tensor(1e-40) * 1.0) > 0,
    }

loggers_before = [name for name in logging.root.manager.loggerDict]
before = state()
import bayesprop
after = state()
ours = [name for name in logging.root.manager.loggerDict
        if name.startswith("bayesprop") and logging.getLogger(name).level != logging.NOTSET]
print(json.dumps({
    "count": len(before),
    "changed": [key for key in before if before[key] != after[key]],
    "loggers": ours,
    "modules": sorted({name.split(".")[0] for name in sys.modules}),
}))
"""


@pytest.fixture(scope="module")
def report(root):
    """What a fresh interpreter says before and after."""
    import json
    import os

    environment = os.environ | {"PYTHONPATH": str(root / "src")}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_nothing_is_changed(report):
    assert report["count"] == 19
    assert report["changed"] == []
    assert report["loggers"] == []


def test_no_extra_is_loaded(report):
    extras = {"sklearn", "pooch", "requests", "matplotlib", "jinja2", "typer", "pytest", "triton", "scipy"}
    assert "bayesprop" in report["modules"]
    assert extras & set(report["modules"]) == set()
