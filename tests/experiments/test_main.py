import json
import os
import signal
import subprocess
import sys
import time

import pytest

from bayesprop.experiments.__main__ import main, parser


def test_options():
    assert vars(parser().parse_args([]))["name"] is None
    found = parser().parse_args(["table-1", "--scale", "paper", "--no-page", "--minutes", "9.5", "--parts", "sgd-*"])
    assert (found.scale, found.page, found.minutes, found.parts) == ("paper", False, 9.5, "sgd-*")


def test_without_a_name_experiments_are_listed(capsys):
    assert main([]) == 0
    assert "table-1" in capsys.readouterr().out


def test_refusals_are_messages(capsys, tmp_path):
    assert main(["tabel-1"]) == 1
    assert capsys.readouterr().err.startswith("bayesprop: there is no experiment 'tabel-1'. Did you mean 'table-1'?")
    assert main(["table-1", "--show", "--folder", str(tmp_path)]) == 1
    with pytest.raises(SystemExit):
        main(["table-1", "--scale", "huge"])


def test_no_extra_is_needed():
    """The command line of a machine that has torch, numpy, rich and safetensors only."""
    program = "import sys, bayesprop.experiments.__main__ as m; m.main([]); "
    program += "print({'typer', 'matplotlib', 'jinja2', 'sklearn', 'pooch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "set()"


PROGRAM = """
import sys, pathlib
from bayesprop.data import images
from bayesprop.experiments.__main__ import main
import hashlib, os
for name, constant in (("mnist", "_MNIST_SHA256"), ("fashion_mnist", "_FASHION_SHA256")):
    folder = pathlib.Path(os.environ["BAYESPROP_DATA"]) / name
    setattr(images, constant, tuple(hashlib.sha256((folder / f).read_bytes()).hexdigest() for f in images._FILES))
sys.exit(main(sys.argv[1:]))
"""


def test_a_run_that_is_killed_goes_on(data, tmp_path):
    """SIGKILL in the middle of a training; the same command then finds the parts that are done."""
    folder = tmp_path / "run"
    command = [sys.executable, "-c", PROGRAM, "table-1", "--folder", str(folder), "--no-page", "--device", "cpu"]
    command += ["--parts", "choose-sgd,choose-mixture,mixture-20"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120.0
    while not (folder / "choose-sgd.json").exists() and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert json.loads((folder / "choose-sgd.json").read_text())["result"]["chosen"]
    assert not (folder / "mixture-20.json").exists()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "choose-sgd: done before" in done.stderr
    assert json.loads((folder / "mixture-20.json").read_text())["result"]["test"]["error"]
