"""Libraries that come with an extra: imported when they are needed, and missed with the line that installs them."""

from __future__ import annotations

import importlib
from types import ModuleType

from bayesprop.errors import ConfigurationError

__all__ = ["require"]

# What pip calls a library, where that is not the name it is imported by.
DISTRIBUTIONS = {"sklearn": "scikit-learn"}


def require(purpose: str, *names: str, extra: str) -> tuple[ModuleType, ...]:
    """Import modules by name, or say which libraries are missing for `purpose` and which extra brings them.

    Several at once, so that a long computation can ask for everything before it begins.
    """
    found, missing = [], []
    for name in names:
        try:
            found.append(importlib.import_module(name))
        except ModuleNotFoundError as error:
            root = name.split(".")[0]
            if (error.name or root).split(".")[0] != root:
                raise  # it is there, but something that it needs itself is not
            missing.append(DISTRIBUTIONS.get(root, root))
    if missing:
        libraries = " and ".join(dict.fromkeys(missing))
        raise ConfigurationError(
            f"{purpose} needs {libraries}, which {'is' if len(set(missing)) == 1 else 'are'} not installed",
            expected=f'the extra "{extra}"',
            write=f'pip install "bayesprop[{extra}]"',
        )
    return tuple(found)
