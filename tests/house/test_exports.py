"""The public names: `__all__` is sorted, complete and true."""

import ast
import importlib

# Modules that are run, not imported.
COMMANDS = {"src/bayesprop/__main__.py"}


def module_name(source):
    parts = source.name.removeprefix("src/").removesuffix(".py").split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def exported(tree):
    """The list that is assigned to __all__, or None."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    return None


def in_order(name):
    """Constants, then classes, then functions and modules: the order in which ruff sorts __all__."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2
    return kind, name


def imported(tree):
    """Public names that an `__init__` imports from this library."""
    return {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "bayesprop"
        for alias in node.names
        if not (alias.asname or alias.name).startswith("_")
    }


def test_every_module_says_what_is_public(sources):
    """Files without code, such as an empty __init__, export nothing and need not say so."""
    silent = [
        source.name
        for source in sources
        if source.name not in COMMANDS
        and any(not isinstance(node, ast.Expr) for node in source.tree.body)
        and exported(source.tree) is None
    ]
    assert not silent, "these have no __all__:\n" + "\n".join(silent)


def test_all_is_sorted_without_repetition(sources):
    faults = []
    for source in sources:
        names = exported(source.tree) or []
        if names != sorted(set(names), key=in_order):
            faults.append(f"{source.name}: {sorted(set(names), key=in_order)}")
    assert not faults, "write these in order:\n" + "\n".join(faults)


def test_all_of_a_package_is_what_it_imports(sources):
    faults = []
    packages = [source for source in sources if source.is_package]
    assert len(packages) > 5
    for source in packages:
        names, found = set(exported(source.tree) or []), imported(source.tree)
        if found - names:
            faults.append(f"{source.name}: imported but not in __all__: {sorted(found - names)}")
    assert not faults, "\n".join(faults)


def test_every_exported_name_exists(sources):
    faults, count = [], 0
    for source in sources:
        names = exported(source.tree)
        if not names:
            continue
        module = importlib.import_module(module_name(source))
        faults += [f"{source.name}: {name}" for name in names if not hasattr(module, name)]
        count += len(names)
    assert count > 100
    assert not faults, "in __all__, but not there:\n" + "\n".join(faults)


def test_the_order_is_that_of_ruff():
    assert sorted(["as_data", "Data", "LARGEST", "Images"], key=in_order) == ["LARGEST", "Data", "Images", "as_data"]
