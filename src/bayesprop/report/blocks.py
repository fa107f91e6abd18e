"""What a page is made of: sections of headline numbers, plots, tables and pictures.

Blocks hold text and figures and know nothing of HTML. All text is the user's as it is; the page escapes it. A further
kind of report is a function that returns sections, and a further kind of block is a class here with its own `kind` and
one branch in `page.html.jinja`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from bayesprop.errors import ConfigurationError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Block", "Headline", "Number", "Picture", "Pictures", "Plot", "Section", "Table"]


@dataclass(frozen=True)
class Number:
    """One result in large type: what it is, its value as text, and a line that says how to read it."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Headline:
    """A row of numbers."""

    numbers: Sequence[Number]
    kind: ClassVar[str] = "headline"


@dataclass(frozen=True)
class Plot:
    """A figure, its title, and a caption that says what to look for."""

    title: str
    figure: Figure
    caption: str = ""
    kind: ClassVar[str] = "plot"


@dataclass(frozen=True)
class Table:
    """Rows of text below a header; columns in `numeric` (counted from 0) are set flush right.

    A table takes the whole width unless it may stand `beside` a plot.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    caption: str = ""
    numeric: Sequence[int] = ()
    beside: bool = False
    kind: ClassVar[str] = "table"

    def __post_init__(self) -> None:
        wrong = [row for row in self.rows if len(row) != len(self.header)]
        if wrong:
            raise ConfigurationError(
                "each row of a table has one cell for each column",
                received=f"{len(wrong[0])} cells in {list(wrong[0])!r}",
                expected=f"{len(self.header)} cells: {list(self.header)!r}",
            )


@dataclass(frozen=True)
class Picture:
    """A small picture, `address` being that of `drawing.to_png`, with a line or two of text below."""

    address: str
    caption: str
    note: str = ""


@dataclass(frozen=True)
class Pictures:
    """A gallery."""

    title: str
    pictures: Sequence[Picture]
    caption: str = ""
    kind: ClassVar[str] = "pictures"


Block = Headline | Plot | Table | Pictures


@dataclass(frozen=True)
class Section:
    """A part of the page: a title, a paragraph or none, and blocks in their order. Plots stand side by side if there is
    room."""

    title: str
    blocks: Sequence[Block]
    text: str = ""
