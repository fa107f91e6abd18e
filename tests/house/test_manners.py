"""Names that say something, files of one idea, and no unfinished business."""

import ast
import re

BANNED_NAMES = {"utils", "util", "misc", "helpers", "helper", "common"}
BUDGET = 400

# Written in two parts, so that this file does not find itself.
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")


def test_no_file_or_folder_has_a_name_that_says_nothing(files):
    named = [file.name for file in files if BANNED_NAMES & set(file.name.removesuffix(".py").split("/"))]
    assert not named, "call these by what is in them:\n" + "\n".join(named)


def test_no_file_is_over_its_budget(files):
    lines = sorted(((file.text.count("\n"), file.name) for file in files), reverse=True)
    print("the ten largest files:", *(f"{count:5d}  {name}" for count, name in lines[:10]), sep="\n")
    over = [f"{count} lines: {name}" for count, name in lines if count > BUDGET]
    assert not over, f"past {BUDGET} lines a file is two ideas:\n" + "\n".join(over)


def test_nothing_is_left_unfinished(files):
    found = [
        f"{file.name}:{number}: {line.strip()[:100]}"
        for file in files
        for number, line in enumerate(file.text.splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    assert not found, "do it now, or write it down where plans are kept:\n" + "\n".join(found)


def test_no_error_is_swallowed(files):
    found = [
        f"{file.name}:{node.lineno}"
        for file in files
        for node in ast.walk(file.tree)
        if isinstance(node, ast.ExceptHandler) and all(isinstance(line, ast.Pass) for line in node.body)
    ]
    assert not found, "an error that may be ignored is named with contextlib.suppress:\n" + "\n".join(found)


def test_nothing_in_the_library_is_not_implemented(sources):
    found = [
        f"{source.name}:{node.lineno}"
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Raise) and node.exc is not None and "NotImplementedError" in ast.unparse(node.exc)
    ]
    assert not found, "an abstract method, or an error that says what can be done instead:\n" + "\n".join(found)


def test_the_inspectors_find_what_they_look_for():
    assert UNFINISHED.search("# TO" + "DO later")
    assert not UNFINISHED.search("METHODOLOGY")
