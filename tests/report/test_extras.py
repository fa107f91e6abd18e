import sys

import pytest

from bayesprop.errors import ConfigurationError
from bayesprop.report.extras import require


def test_what_is_there_comes_back_in_order():
    json, path = require("a test", "json", "os.path", extra="report")
    assert json is sys.modules["json"]
    assert path is sys.modules["os.path"]


@pytest.mark.parametrize(
    ("missing", "line"),
    [
        (["sklearn"], "a demo needs scikit-learn, which is not installed"),
        (["matplotlib.figure"], "a demo needs matplotlib, which is not installed"),
        (["sklearn", "jinja2"], "a demo needs scikit-learn and jinja2, which are not installed"),
        (["matplotlib.figure", "matplotlib.image"], "a demo needs matplotlib, which is not installed"),
    ],
)
def test_what_is_missing_is_named_together_with_the_line_that_installs_it(monkeypatch, missing, line):
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)  # an import of it then fails as if it were not installed
    with pytest.raises(ConfigurationError) as caught:
        require("a demo", "json", *missing, extra="cli")
    assert str(caught.value).splitlines() == [
        line,
        '  expected: the extra "cli"',
        '  write: pip install "bayesprop[cli]"',
    ]


def test_a_library_that_is_broken_is_not_called_missing(tmp_path, monkeypatch):
    """It is installed, but something that it imports is not: the extra would not help."""
    (tmp_path / "half_installed.py").write_text("import a_library_that_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="No module named 'a_library_that_nobody_has'"):
        require("a test", "half_installed", extra="report")
