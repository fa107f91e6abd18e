"""All methods in one table: what each approximates, what it costs, when to choose it.

The table is made from what `bayesprop.inference` exports and from what each method says of itself (`about`), so that
it cannot forget one.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bayesprop.errors import ConfigurationError, did_you_mean
from bayesprop.inference.method import About, Method

__all__ = ["Entry", "Methods", "methods"]

HEADER = ("method", "family", "approximates", "cost", "choose it for")


@dataclass(frozen=True)
class Entry:
    """One method; `family` is its folder in `bayesprop.inference`."""

    name: str
    family: str
    about: About
    cls: type[Method]

    @property
    def page(self) -> str:
        """Where its page is, in the repository."""
        return f"docs/methods/{self.name}.md"

    @property
    def cells(self) -> tuple[str, ...]:
        return self.name, self.family, self.about.approximates, self.about.cost, self.about.choose


@dataclass(frozen=True)
class Methods:
    """Entries in the order of their families; prints as a table."""

    entries: tuple[Entry, ...]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, name: str) -> Entry:
        for entry in self.entries:
            if entry.name == name:
                return entry
        names = [entry.name for entry in self.entries]
        raise ConfigurationError(
            f"no method is called {name!r}.{did_you_mean(name, names)}", expected=", ".join(names), write="bp.methods()"
        )

    def markdown(self, folder: str = "") -> str:
        """The table for a document; names lead to pages, below `folder`."""
        rows = [(f"[{e.name}]({folder}{e.name}.md)", *e.cells[1:]) for e in self.entries]
        lines = (HEADER, ("---",) * len(HEADER), *rows)
        return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)

    def __str__(self) -> str:
        table = Table(box=None, header_style="", padding=(0, 2, 0, 0))
        for heading in HEADER:
            table.add_column(heading, overflow="fold")
        for entry in self.entries:
            table.add_row(*entry.cells)
        console = Console(file=io.StringIO(), width=140, color_system=None)
        with console.capture() as captured:
            console.print(table)
        return captured.get().rstrip() + "\n\nCosts are relative to MAP by Adam."

    __repr__ = __str__


def methods() -> Methods:
    """All methods of this library: `print(bp.methods())`.

    >>> methods()["SGLD"].family
    'sgmcmc'
    """
    from bayesprop import inference  # which imports this module

    found = []
    for name in inference.__all__:
        cls = getattr(inference, name)
        if isinstance(cls, type) and Method in cls.__mro__[1:]:  # a protocol with fields takes no issubclass
            about = cls.about
            assert about is not None, f"{name} says nothing about itself"
            found.append(Entry(name, cls.__module__.split(".")[2], about, cls))
    families = ("point", "variational", "dropout", "sgmcmc", "mcmc", "laplace", "averaging", "ensembles")
    order = {family: number for number, family in enumerate(families)}
    return Methods(tuple(sorted(found, key=lambda e: (order.get(e.family, len(order)), e.family, e.name))))
