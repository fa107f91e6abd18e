"""Records of real runs: what was measured, with the seed, versions, device and commit to measure it again."""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import torch

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.rstrip()


def processor() -> str:
    """The processor's name as the machine gives it."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def provenance() -> dict[str, Any]:
    """Where and with what this process runs."""
    # A folder of this machine says nothing to anybody else.
    words = ["FOLDER" if Path(word).is_absolute() else word for word in sys.argv[1:]]
    changed = [line[3:] for line in _git("status", "--porcelain", "--", "src", "benchmarks").splitlines()]
    return {
        "command": "python " + " ".join([str(Path(sys.argv[0]).resolve().relative_to(ROOT)), *words]),
        "date": datetime.date.today().isoformat(),
        "commit": os.environ.get("COMMIT") or _git("rev-parse", "HEAD"),  # a copy without history is told
        "uncommitted": changed,
        "device": processor(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }


def write(name: str, settings: dict[str, Any], results: dict[str, Any]) -> Path:
    """Write results/<name>.json."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    document = {"name": name, **provenance(), "settings": settings, "results": results}
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Mean, standard error and the values themselves."""
    spread = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "standard_error": spread, "values": list(values)}
