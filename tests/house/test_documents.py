"""Documents are true: their Python runs, and the commands they name exist."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# ```python at the beginning of a line, up to the closing fence.
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

DOCUMENTS = [path for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if path.is_file()]


def blocks(text):
    """(first line, code) of every block of Python."""
    return [(text[: match.start(1)].count("\n") + 1, match[1]) for match in BLOCK.finditer(text)]


def program(text):
    """One program of all blocks: same namespace, and the lines of the document in every traceback."""
    lines = [""] * text.count("\n")
    for first, code in blocks(text):
        for offset, line in enumerate(code.splitlines()):
            lines[first - 1 + offset] = line
    return "\n".join(lines) + "\n"


def run(path, folder):
    """Run a document's blocks in a fresh interpreter, in an empty folder."""
    text = path.read_text(encoding="utf-8")
    script = folder / f"{path.stem}.py"
    script.write_text(program(text), encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_blocks_of_python_run(path, tmp_path):
    """Each document by itself."""
    if blocks(path.read_text(encoding="utf-8")):
        done = run(path, tmp_path)
        assert done.returncode == 0, done.stderr[-3000:]
    assert len(DOCUMENTS) > 2


def test_every_fence_is_counted():
    """An opened fence that the pattern does not take would be code that nobody runs."""
    counts, fences = {}, {}
    for path in DOCUMENTS:
        text, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
        counts[name] = len(blocks(text))
        fences[name] = len(re.findall(r"^ *```+ *(?:python|py)\b.*$", text, re.MULTILINE | re.IGNORECASE))
    assert counts == fences, "write ```python alone on its line without spaces before it, and close it with ```"
    assert counts.get("README.md", 1) > 0, "README.md has no example that runs"


def test_blocks_share_a_namespace_and_keep_their_lines(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("# Page\n\n```python\nx = 1\n```\n\n\n\n```text\nnot run\n```\n\n```python\nassert x == 2\n```\n")
    assert [line for line, _ in blocks(path.read_text())] == [4, 14]
    done = run(path, tmp_path)
    assert done.returncode == 1
    assert 'page.py", line 14' in done.stderr


def targets(text):
    return set(re.findall(r"^([a-z]+):", text, re.MULTILINE))


def commands(text):
    """`make x` at the beginning of a line or of code in a line: prose makes other things."""
    return set(re.findall(r"(?:^|`)make ([a-z]+)\b", text, re.MULTILINE))


def test_the_commands_of_contributing_exist(root):
    makefile = (root / "Makefile").read_text()
    named = commands((root / "CONTRIBUTING.md").read_text())
    assert {"demo", "test", "lint", "types", "clean"} <= named
    assert named <= targets(makefile)
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    assert set(phony[1].split()) == targets(makefile)


@pytest.mark.parametrize("target", ["help", "demo", "test", "lint", "types", "clean"])
def test_make_understands_its_file(root, target):
    """A dry run: a Makefile with a fault stops before the first command."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--dry-run", target]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_what_is_run_before_a_change_is_taken(root):
    script = root / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert commands(script.read_text()) == {"test", "lint", "types"}
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_versions_are_pinned(root):
    pins = [line for line in (root / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert "torch==2.13.0" in pins
    loose = [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9A-Za-z.]*", pin)]
    assert len(pins) > 40
    assert not loose, "name==version, without paths or local builds:\n" + "\n".join(loose)
