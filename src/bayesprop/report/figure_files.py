"""The figures of a page as files of their own, for a talk or a paper: in the colours of a light page, on white.

report.save_figures(sections, "figures")     # figures/01-learning-curve.svg, figures/01-learning-curve.png, ...
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesprop.errors import ConfigurationError
from bayesprop.report.blocks import Plot, Section
from bayesprop.report.drawing import style
from bayesprop.report.extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "save_figures"]

FORMATS = ("svg", "png")
DOTS = 240  # per inch, of PNG files: a figure of 5 inches has 1200 pixels

# Without these a file has no date, so that the same figure is the same file.
_NOTHING: dict[str, dict[str, Any]] = {
    "svg": {"Creator": None, "Date": None, "Format": None, "Type": None},
    "png": {"Software": None},
}


def save_figures(
    sections: Sequence[Section], folder: str | os.PathLike[str], formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Write each plot of the sections into `folder`, once for each format, and return the paths in their order.

    Names begin with the number of the plot and go on with its title.
    """
    unknown = [name for name in formats if name not in FORMATS]
    if unknown:
        raise ConfigurationError(
            "figures are written as drawings or as pictures",
            received=f"formats={list(formats)!r}",
            expected=" or ".join(f'"{name}"' for name in FORMATS),
        )
    plots = [block for section in sections for block in section.blocks if isinstance(block, Plot)]
    target, paths = Path(folder), []
    target.mkdir(parents=True, exist_ok=True)
    for number, plot in enumerate(plots, 1):
        name = f"{number:02d}-{file_name(plot.title)}"
        for kind in formats:
            paths.append(target / f"{name}.{kind}")
            _write(plot.figure, paths[-1], kind, name)
    return paths


def file_name(title: str) -> str:
    """Small letters, digits and dashes; "figure" if none of the title's characters is one."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower())[:60].strip("-") or "figure"


def _write(figure: Figure, path: Path, kind: str, name: str) -> None:
    (matplotlib,) = require("a figure", "matplotlib", extra="report")
    shown, colour = figure.patch.get_visible(), figure.get_facecolor()
    with style(), matplotlib.rc_context({"svg.hashsalt": name}), warnings.catch_warnings():
        # matplotlib has no letters for some names of classes and draws boxes for them in a PNG; an SVG keeps the text.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        figure.patch.set_visible(True)
        figure.patch.set_facecolor("white")
        try:
            figure.savefig(path, format=kind, dpi=DOTS if kind == "png" else 72, metadata=_NOTHING[kind])
        finally:
            figure.patch.set_facecolor(colour)
            figure.patch.set_visible(shown)
