import subprocess
import sys

import pytest

import bayesprop
from bayesprop.cli import main


def test_main_takes_arguments_and_leaves_with_an_exit_code(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"bayesprop {bayesprop.__version__}\n"


def test_without_typer_the_line_that_installs_it_is_printed(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 1
    assert capsys.readouterr().err.splitlines() == [
        "bayesprop: the command line needs typer, which is not installed",
        '  expected: the extra "cli"',
        '  write: pip install "bayesprop[cli]"',
    ]


def test_the_way_in_needs_no_extra():
    """`bayesprop.cli` is what the installed script imports, with or without typer."""
    program = "import sys, bayesprop.cli; print({'typer', 'matplotlib', 'jinja2', 'sklearn'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "set()\n"
