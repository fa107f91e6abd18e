"""Who may import whom, where import-linter cannot look: method families, and libraries of others."""

import ast
import sys

# What `pip install bayesprop` brings, and so may be imported anywhere.
CORE = {"bayesprop", "numpy", "rich", "safetensors", "torch"}

# Extras at the top of a file: room -> libraries. Elsewhere an extra is imported inside of a function.
EDGE = {
    "cli": {"typer"},
    "report": {"jinja2", "matplotlib"},
    "experiments": {"matplotlib"},
}

# Files at the edge of a room: kernels are defined by Triton's decorators. Only what launches one imports these files,
# inside of a function.
EDGE_FILES = {
    f"src/bayesprop/kernels/device_{name}.py": {"triton"} for name in ("columns", "dense", "math", "steps")
}  # fmt: skip


def imports(nodes):
    """The modules that these statements import, by full name."""
    found = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.append((node.module or "", node.lineno))
    return found


def room(source):
    return source.name.removeprefix("src/bayesprop/").split("/")[0]


def test_extras_are_imported_where_they_are_used(sources):
    faults, count = [], 0
    for source in sources:
        edge = EDGE.get(room(source), set()) | EDGE_FILES.get(source.name, set())
        allowed = CORE | edge | set(sys.stdlib_module_names)
        for name, line in imports(source.tree.body):
            count += 1
            if name.split(".")[0] not in allowed:
                faults.append(f"{source.name}:{line}: {name}")
    assert count > 100
    assert not faults, "import these inside of the function that needs them:\n" + "\n".join(faults)


def test_files_at_the_edge_are_imported_where_they_are_used(sources):
    names = {source.name.removeprefix("src/").removesuffix(".py").replace("/", "."): source for source in sources}
    edge = {name for name, source in names.items() if source.name in EDGE_FILES}
    faults = [
        f"{source.name}:{line}: {name}"
        for source in sources
        for name, line in imports(source.tree.body)
        if name in edge and source.name not in EDGE_FILES
    ]
    assert len(edge) == len(EDGE_FILES)
    assert not faults, "import these inside of the function that needs them:\n" + "\n".join(faults)


def test_imports_are_absolute(sources):
    faults = [
        f"{source.name}:{node.lineno}"
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and node.level > 0
    ]
    assert not faults, "write the whole name of the module:\n" + "\n".join(faults)


def test_families_of_methods_never_import_one_another(sources):
    """Only the collecting `__init__` of `inference` knows all of its folders."""
    prefix = "src/bayesprop/inference/"
    inside = [source for source in sources if source.name.startswith(prefix)]
    families = {source.name.removeprefix(prefix).split("/")[0] for source in inside if source.name.count("/") > 3}
    faults = []
    for source in inside:
        own = source.name.removeprefix(prefix).split("/")[0]
        for name, line in imports(ast.walk(source.tree)):
            parts = name.split(".")
            other = parts[2] if parts[:2] == ["bayesprop", "inference"] and len(parts) > 2 else None
            if own in families and other in families and other != own:
                faults.append(f"{source.name}:{line}: {name}")
    assert "variational" in families
    assert not faults, "what two families share belongs in inference/ itself:\n" + "\n".join(faults)
