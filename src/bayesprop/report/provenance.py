"""How a run was made, as a table: what somebody needs to make it again."""

from __future__ import annotations

import dataclasses
import importlib
import platform
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesprop.posteriors import Posterior
from bayesprop.report.blocks import Table

__all__ = ["run_table"]


def run_table(posterior: Posterior, further: Mapping[str, Any] | None = None) -> Table:
    """Model, method with all its settings, seed, N and versions; `further` rows come first, in their order."""
    model, context, layout = posterior.model, posterior.context, posterior.model.layout
    rows = [(name, shown(value)) for name, value in (further or {}).items()]
    rows += [
        ("network", _network(model.network)),
        ("random weights", f"{layout.random:,}"),
        ("prior", shown(model.prior)),
        ("likelihood", shown(model.likelihood)),
        ("posterior", type(posterior).__name__),
        ("training rows", f"{context.num_data:,}"),
        ("seed", shown(context.seed)),
    ]
    if context.history:
        last = context.history[-1]
        rows += [(name, f"{last[key]:,}") for key, name in (("epoch", "epochs"), ("step", "steps")) if key in last]
    rows += _method(context.method)
    rows += [
        ("bayesprop", _version("bayesprop")),
        ("torch", torch.__version__),
        ("numpy", np.__version__),
        ("Python", platform.python_version()),
        ("platform", f"{platform.system()} {platform.machine()}, {model.device}, {torch.get_num_threads()} threads"),
    ]
    return Table(("setting", "value"), rows)


def _method(method: Any) -> list[tuple[str, str]]:
    """One row for the name and one for each setting; a method that a file could not carry is shown as it is."""
    if method is None:
        return []
    if not dataclasses.is_dataclass(method):
        return [("method", shown(method))]
    fields = [(field.name, shown(getattr(method, field.name))) for field in dataclasses.fields(method)]
    return [("method", type(method).__name__), *((f"method: {name}", value) for name, value in fields)]


def shown(value: Any) -> str:
    """A setting as text: short, and the same text for the same setting."""
    if isinstance(value, Tensor):
        return f"{value.item():g}" if value.numel() == 1 else f"tensor of shape {tuple(value.shape)}"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, float):
        return f"{value:g}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        inside = ", ".join(f"{f.name}={shown(getattr(value, f.name))}" for f in dataclasses.fields(value) if f.repr)
        return f"{type(value).__name__}({inside})"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {shown(item)}" for name, item in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(shown(item) for item in value) or "none"
    return str(value) if isinstance(value, str | int) else getattr(value, "__qualname__", repr(value))


def _network(network: torch.nn.Module) -> str:
    """The layers in one line; only their number where there are many."""
    layers = [module for module in network.modules() if not list(module.children())]
    if len(layers) > 12:
        return f"{type(network).__name__} of {len(layers)} layers"
    return " – ".join(f"{type(layer).__name__}({layer.extra_repr()})" for layer in layers)


def _version(name: str) -> str:
    """Of the installed distribution; a source tree that is only on the path has none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return importlib.import_module(name).__version__
