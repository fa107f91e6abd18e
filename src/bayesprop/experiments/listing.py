"""All experiments. A new one is a folder beside this file, and one line here."""

from __future__ import annotations

import importlib

from rich.table import Table

from bayesprop.errors import ConfigurationError, did_you_mean
from bayesprop.experiments.experiment import Experiment

__all__ = ["FOLDERS", "experiments", "find", "table"]

# In the order of the list; each has an EXPERIMENT.
FOLDERS = (
    "table_1",
    "units",
    "choices",
    "grid",
    "cost",
    "pruning",
    "densities",
    "regression",
)


def experiments() -> dict[str, Experiment]:
    """Every experiment by its name."""
    found = [importlib.import_module(f"bayesprop.experiments.{folder}").EXPERIMENT for folder in FOLDERS]
    return {experiment.name: experiment for experiment in found}


def find(name: str) -> Experiment:
    """An experiment by its name."""
    found = experiments()
    if name not in found:
        raise ConfigurationError(
            f"there is no experiment {name!r}.{did_you_mean(name, found)}",
            expected=", ".join(found),
            write=f"bayesprop reproduce {next(iter(found))} --scale smoke",
        )
    return found[name]


def table() -> Table:
    """For `rich`: what each experiment shows, whom it is compared with, and what it costs."""
    made = Table(title="bayesprop reproduce NAME --scale smoke|laptop|paper", box=None, padding=(0, 2, 1, 0))
    made.add_column("name", style="bold", no_wrap=True)
    for title in ("shows", "compared with", "costs"):
        made.add_column(title, overflow="fold")
    for experiment in experiments().values():
        cost = "\n".join(f"{scale}: {words}" for scale, words in experiment.cost.items())
        made.add_row(experiment.name, experiment.shows, "\n".join(experiment.sources), cost)
    return made
