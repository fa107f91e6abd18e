"""The tests themselves: each asserts, none throws a comparison away, and each module has its own file."""

import ast
import re

import pytest

COMPARISONS = {"all", "allclose", "any", "array_equal", "equal", "isclose"}

# Modules without a test file of their own, each with the reason. The list is exact.
WITHOUT_TESTS: dict[str, str] = {
    "src/bayesprop/kernels/device_columns.py": "bodies of kernels/columns.py, which is what its tests launch",
    "src/bayesprop/kernels/device_dense.py": "bodies of kernels/dense.py, which is what its tests launch",
    "src/bayesprop/kernels/device_math.py": "pieces of the bodies of kernels/columns.py",
    "src/bayesprop/kernels/device_steps.py": "bodies of kernels/steps.py, which is what its tests launch",
}

# Tests that may be left out on some machines: file -> reason. The list is exact.
MAY_SKIP: dict[str, str] = {
    "tests/parity/test_laplace_torch.py": "compares with laplace-torch, which is installed by hand",
    "tests/report/test_browser.py": "looks at pages with Chromium, which not every machine has",
}

SKIPS = {"skip", "skipif", "xfail", "importorskip", "skipTest"}


def called(node):
    """The last word of what a call calls: torch.testing.assert_close -> assert_close."""
    return ast.unparse(node.func).split(".")[-1].split("(")[0]


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def asserts(function, names):
    """Whether a function asserts itself, or calls one of `names`, which do."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            name = called(node)
            if name.startswith("assert") or name in names or name in {"raises", "warns"}:
                return True
    return False


def that_assert(trees, known=frozenset()):
    """Names of functions that assert, or call those that do: whoever calls one of these asserts too."""
    found: set[str] = set(known)
    while True:
        more = {f.name for tree in trees for f in functions(tree) if f.name not in found and asserts(f, found)}
        if not more:
            return found
        found |= more


def thrown_away(tree):
    """Lines with a comparison that nobody looks at."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and called(node.value) in COMPARISONS
    ]


def skips(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name) and name_of(node) in SKIPS]


def name_of(node):
    return node.attr if isinstance(node, ast.Attribute) else node.id


def test_no_comparison_is_thrown_away(tests):
    found = [f"{test.name}:{line}" for test in tests for line in thrown_away(test.tree)]
    assert not found, "computed, but nothing is asserted:\n" + "\n".join(found)


def test_every_test_asserts(tests, sources):
    suites = [source.tree for source in sources if source.name.startswith("src/bayesprop/testing/")]
    shared = [test.tree for test in tests if test.path.name == "conftest.py"] + suites
    faults, count, known = [], 0, that_assert(shared)
    for test in tests:
        names = that_assert([test.tree], known)
        found = [f for f in functions(test.tree) if f.name.startswith("test_")]
        faults += [f"{test.name}:{f.lineno}: {f.name}" for f in found if not asserts(f, names)]
        count += len(found)
    # Counted a second time without the parser, so that this test cannot pass by finding nothing.
    assert count == sum(len(re.findall(r"^ *(?:async )?def test_", test.text, re.MULTILINE)) for test in tests)
    assert not faults, "these assert nothing:\n" + "\n".join(faults)


def test_no_test_is_left_out_without_a_reason(tests):
    found = {test.name for test in tests if skips(test.tree)}
    new, old = sorted(found - MAY_SKIP.keys()), sorted(MAY_SKIP.keys() - found)
    assert not new, "these may skip; write the reason into MAY_SKIP, or let them run everywhere:\n" + "\n".join(new)
    assert not old, "these do not skip any more; take them out of MAY_SKIP:\n" + "\n".join(old)


def test_every_module_has_its_test_file(sources, root):
    modules = [source for source in sources if not source.is_package]
    assert len(modules) > 20
    missing = {}
    for source in modules:
        *rooms, module = source.name.removeprefix("src/bayesprop/").removesuffix(".py").split("/")
        expected = "/".join(["tests", *rooms, f"test_{module.strip('_')}.py"])
        if not (root / expected).is_file():
            missing[source.name] = expected
    new = [f"{name}: expected {expected}" for name, expected in missing.items() if name not in WITHOUT_TESTS]
    old = sorted(WITHOUT_TESTS.keys() - missing.keys())
    assert not new, f"{len(new)} modules without tests of their own:\n" + "\n".join(new)
    assert not old, "these have tests now; take them out of WITHOUT_TESTS:\n" + "\n".join(old)


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("torch.allclose(a, b)", [1]),
        ("x = 1\n(a == b).all()", [2]),
        ("assert torch.equal(a, b)", []),
        ("same = torch.equal(a, b)", []),
    ],
)
def test_thrown_away_comparisons_are_seen(body, lines):
    assert thrown_away(ast.parse(body)) == lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def test_a():\n    assert x", True),
        ("def test_a():\n    x == 1", False),
        ("def test_a():\n    with pytest.raises(ValueError):\n        f()", True),
        ("def test_a():\n    assert_close(a, b)", True),
        ("def test_a():\n    verify(a)\ndef verify(a):\n    look(a)\ndef look(a):\n    assert a", True),
        ("def test_a():\n    verify(a)\ndef verify(a):\n    print(a)", False),
    ],
)
def test_assertions_are_seen_through_functions(text, expected):
    tree = ast.parse(text)
    assert asserts(functions(tree)[0], that_assert([tree])) is expected


def test_skips_are_seen():
    marked = "@pytest.mark." + "skipif(True)\ndef test_a(): ..."
    assert len(skips(ast.parse(marked))) == 1
