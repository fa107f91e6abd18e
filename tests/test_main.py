import subprocess
import sys

import bayesprop


def python(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=120)


def test_python_m_bayesprop_is_the_command_line():
    done = python("-m", "bayesprop", "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"bayesprop {bayesprop.__version__}\n", "")


def test_it_calls_itself_bayesprop():
    done = python("-m", "bayesprop", "no-such-verb")
    assert done.returncode == 2
    assert "Usage: bayesprop " in done.stderr
    assert "Traceback" not in done.stderr


def test_importing_it_does_nothing():
    done = python("-c", "import bayesprop.__main__; print('still here')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "still here\n", "")
