"""What the inspectors look at: every Python file, read and parsed once."""

import ast
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Source:
    """One Python file; `name` is its path from the root of the repository."""

    path: Path
    name: str
    text: str = field(repr=False)
    tree: ast.Module = field(repr=False)

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


def read(folder: str) -> list[Source]:
    """All Python files below a folder, in order."""
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(Source(path, path.relative_to(ROOT).as_posix(), text, ast.parse(text, str(path))))
    return found


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def sources() -> list[Source]:
    """The library."""
    found = read("src")
    assert len(found) > 20
    return found


@pytest.fixture(scope="session")
def tests() -> list[Source]:
    """The tests, these included."""
    found = read("tests")
    assert any(test.path == Path(__file__) for test in found)
    return found


@pytest.fixture(scope="session")
def files(sources, tests) -> list[Source]:
    """Everything: library, tests, benchmarks and documents."""
    return sources + tests + read("benchmarks") + read("docs")
