"""What a model is made of, before anything is trained: a table of every parameter and the memory that is needed."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from bayesprop.errors import ConfigurationError, did_you_mean

if TYPE_CHECKING:
    from bayesprop.model import Model
    from bayesprop.random_weights import Evaluation

__all__ = ["Description", "Row", "describe"]

NOT_SEEN = "give inputs=X[:8] to know"


@dataclass(frozen=True)
class Row:
    """One parameter: "random" (has a distribution), "latent" (a learnt scale), "point" (an estimate) or "fixed".

    `tied` are the further names of a tied parameter.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    prior: str
    evaluation: str
    tied: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Description:
    """Rows by parameter, remarks, and bytes; prints as a table."""

    rows: tuple[Row, ...]
    remarks: tuple[str, ...]
    memory: int | None = None

    def count(self, kind: str) -> int:
        """Numbers of one kind, tied ones once."""
        return sum(row.size for row in self.rows if row.kind == kind)

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if name == row.name or name in row.tied:
                return row
        known = [name for row in self.rows for name in (row.name, *row.tied)]
        raise ConfigurationError(
            f"no parameter is called {name!r}.{did_you_mean(name, known)}",
            expected="one of " + ", ".join(known[:20]),
        )

    def __str__(self) -> str:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in ("parameter", "shape", "kind", "prior", "evaluated by"):
            table.add_column(title, overflow="fold")
        for row in self.rows:
            name = f"{row.name} (tied: {', '.join(row.tied)})" if row.tied else row.name
            table.add_row(name, "x".join(map(str, row.shape)) or "1", row.kind, row.prior, row.evaluation)
        out = io.StringIO()
        # Plain text wherever it is printed, and "prior.scale[head]" is a name, not a mark for bold type.
        Console(file=out, width=140, color_system=None, markup=False, emoji=False).print(table)
        kinds = ", ".join(
            f"{self.count(kind):,} {kind}" for kind in ("random", "latent", "point", "fixed") if self.count(kind)
        )
        lines = [out.getvalue().rstrip(), kinds, *self.remarks]
        if self.memory is not None:
            lines.append(f"training will hold {_bytes(self.memory)} beside the data and the network's own activations")
        return "\n".join(lines)


def _bytes(count: int) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1024  # type: ignore[assignment]
    raise AssertionError("unreachable: GiB is the last unit")


def _how(name: str, plan: Mapping[str, Evaluation] | None) -> str:
    if plan is None:
        return NOT_SEEN
    found = plan[name]
    used = f"{found.rule} in {found.operation}" if found.operation else found.rule
    return f"{used}: {found.reason}"


def describe(model: Model, plan: Mapping[str, Evaluation] | None, memory: int | None) -> Description:
    """The description of `model` under a plan of evaluation."""
    parameters = dict(model.network.named_parameters())
    rows = []
    for block in model.layout.blocks:
        if block.kind == "random":
            prior = model.bound_prior.describe(block)
            rows.append(Row(block.name, block.shape, "random", prior, _how(block.name, plan), block.aliases))
        elif block.kind == "latent":
            rows.append(Row(block.name, block.shape, "latent", "hyperprior", "a column like any other"))
        else:
            rows.append(Row(block.name, block.shape, "point", "none", "the value itself", block.aliases))
    rows += [Row(n, tuple(parameters[n].shape), "fixed", "none", "the network's own value") for n in model.fixed_names]
    remarks: list[Any] = []
    if not model.vectorised:
        remarks.append(f"draws run in a loop, because vmap cannot batch this network ({model.vmap_failure})")
    if model.draws_globally:
        remarks.append("the network draws random numbers itself (dropout): in training, from a generator that is ours")
    if model.buffers:
        remarks.append(f"buffers are kept per particle: {', '.join(model.buffers)}")
    return Description(tuple(rows), tuple(remarks), memory)
