"""One HTML file that needs nothing else: no script, no network, light and dark, for a phone and for paper.

    report.save(sections, "report.html", title="Digits")

The template is `page.html.jinja`. It escapes all text; what it inserts as it is are the drawings of this room. The page
is also well-formed XML, so any XML parser reads it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from bayesprop.errors import ConfigurationError
from bayesprop.report.blocks import Plot, Section
from bayesprop.report.drawing import PALETTE, printable, to_svg
from bayesprop.report.extras import require

__all__ = ["render", "save"]


def render(sections: Sequence[Section], *, title: str, subtitle: str = "") -> str:
    """The page as text."""
    if not sections:
        raise ConfigurationError("a report needs at least one section", received="none", write="report.Section(...)")
    (jinja2,) = require("a report", "jinja2", extra="report")
    # StrictUndefined: a misspelt name in the template is an error and not a hole in the page.
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(_template())
    numbers = _numbered(sections)

    def svg(plot: Plot) -> Any:
        return jinja2.utils.markupsafe.Markup(to_svg(plot.figure, f"plot-{numbers[id(plot)]}", plot.title))

    return template.render(
        title=printable(title),
        subtitle=printable(subtitle),
        sections=sections,
        svg=svg,
        palette=[{name: pair[shade] for name, pair in PALETTE.items()} for shade in (0, 1)],
        printable=printable,
    )


def save(sections: Sequence[Section], path: str | os.PathLike[str], *, title: str, subtitle: str = "") -> Path:
    """Write the page to `path`, folders included, and return the path."""
    target = Path(path)
    text = render(sections, title=title, subtitle=subtitle)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return target


def _template() -> str:
    return resources.files("bayesprop.report").joinpath("page.html.jinja").read_text(encoding="utf-8")


def _numbered(sections: Sequence[Section]) -> dict[int, int]:
    """A number for each plot of the page: the same page has the same ids every time."""
    plots = [block for section in sections for block in section.blocks if isinstance(block, Plot)]
    return {id(plot): number for number, plot in enumerate(plots, 1)}
