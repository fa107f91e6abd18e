"""What all figures share: size, colours for light and dark, and the way into a page.

A figure is a `matplotlib.figure.Figure` in the colours of a light page, useful by itself (`figure.savefig`). On its way
into a page each colour of the palette becomes a CSS variable with that name, so the page decides between light and dark
while it is shown. Text stays text: it takes the page's font, can be selected and is read aloud.

Figures are 5 x 3.5 inches, 360 x 252 units of an SVG: one unit is about one pixel on a phone, so text of 10 units can
be read there without zooming.
"""

from __future__ import annotations

import base64
import html
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprop.errors import DataError
from bayesprop.report.extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PALETTE", "canvas", "legend", "percent", "printable", "style", "thousands", "to_png", "to_svg"]

# Name of a CSS variable -> (light, dark). Light values must differ: they are how `to_svg` recognises them.
# Blue, orange and green are told apart under the usual colour deficiencies, and curves differ in their dashes, too.
PALETTE: dict[str, tuple[str, str]] = {
    "ink": ("#1f2328", "#e4e3df"),
    "muted": ("#626973", "#9ba1a9"),
    "rule": ("#d8dbdf", "#3a3e44"),
    "first": ("#2160a6", "#82b4ee"),
    "second": ("#c0560b", "#f0a35c"),
    "third": ("#3f7d53", "#84c79b"),
}

_STYLE: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.size": 10.5,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10.5,
    "xtick.labelsize": 10.0,
    "ytick.labelsize": 10.0,
    "legend.fontsize": 10.0,
    "legend.handlelength": 1.7,
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 1.2,
    "svg.fonttype": "none",
    "text.usetex": False,
    "lines.linewidth": 1.6,
}


# What neither XML nor HTML can carry, escaped or not: control characters, halves of surrogate pairs, non-characters.
_UNPRINTABLE = re.compile("[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def printable(text: str) -> str:
    """The text without characters that no page may hold."""
    return _UNPRINTABLE.sub("", text)


@contextmanager
def style() -> Iterator[None]:
    """matplotlib as this room needs it, whatever the user's own settings are; they come back afterwards."""
    (matplotlib,) = require("a figure", "matplotlib", extra="report")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def canvas(heights: Sequence[float] = (1.0,), *, height: float = 3.5) -> tuple[Figure, list[Axes]]:
    """A figure with panels on top of one another that share their horizontal axis; call it inside of `style()`."""
    (module,) = require("a figure", "matplotlib.figure", extra="report")
    figure: Figure = module.Figure(figsize=(5.0, height), dpi=72, layout="constrained")
    figure.patch.set_visible(False)
    panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=list(heights))[:, 0]
    for axes in panels:
        axes.patch.set_visible(False)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(PALETTE["muted"][0])
        axes.tick_params(which="both", color=PALETTE["muted"][0], labelcolor=PALETTE["muted"][0], length=3, width=0.8)
        axes.tick_params(which="minor", length=0)
        axes.grid(axis="y", color=PALETTE["rule"][0], linewidth=0.6)
        axes.xaxis.label.set_color(PALETTE["ink"][0])
        axes.yaxis.label.set_color(PALETTE["ink"][0])
    return figure, list(panels)


def legend(axes: Axes) -> None:
    """Above the axes, where it covers nothing; text as it is, without formulas."""
    columns = _columns([str(name) for name in axes.get_legend_handles_labels()[1]])
    made = axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=columns, frameon=False, borderpad=0.2)
    for text in made.get_texts():
        text.set_parse_math(False)
        text.set_color(PALETTE["ink"][0])


def _columns(labels: Sequence[str]) -> int:
    """As many columns as a figure has room for: about 58 characters in a line, six of them for each handle."""
    for columns in (3, 2):
        widths = [max(map(len, part)) for part in np.array_split(labels, columns) if len(part)]
        if sum(widths) + 6 * len(widths) <= 58:
            return columns
    return 1


def thousands(axis: Any) -> None:
    """Labels such as 12,000 and −0.5."""

    def label(value: float, _position: int) -> str:
        return (f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}").replace("-", "−")

    axis.set_major_formatter(label)


def percent(axis: Any) -> None:
    """Labels such as 25 % for 0.25."""
    axis.set_major_formatter(lambda value, _position: f"{100 * value:.3g}\N{NO-BREAK SPACE}%")


def to_svg(figure: Figure, name: str, description: str) -> str:
    """The figure as an <svg> element for inside of a page: no XML header, no metadata, no size of its own.

    Args:
        name: put before every id, because the ids of all figures of a page share one namespace.
        description: what a screen reader says.
    """
    (matplotlib,) = require("a figure", "matplotlib", extra="report")
    text = io.StringIO()
    with style(), matplotlib.rc_context({"svg.hashsalt": name}), warnings.catch_warnings():
        # matplotlib measures names of classes with its own font, but the page draws them with the reader's.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        # Without the four there is no metadata block, which would carry a date and addresses.
        nothing = {"Creator": None, "Date": None, "Format": None, "Type": None}
        figure.savefig(text, format="svg", metadata=nothing, transparent=True)
    svg = printable(text.getvalue())
    svg = svg[svg.index("<svg") :].strip()
    # A <style> inside of a drawing would hold for the whole page, which says the same for its drawings only.
    inside = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg[svg.index(">") + 1 :], flags=re.DOTALL)
    box = re.search(r'viewBox="([^"]*)"', svg)
    assert box is not None
    inside = re.sub(r'\bid="', f'id="{name}-', inside)
    inside = re.sub(r'\bxlink:href="#', f'href="#{name}-', inside)
    inside = inside.replace("url(#", f"url(#{name}-").replace("xlink:href=", "href=")
    for variable, (light, _dark) in PALETTE.items():
        inside = inside.replace(light, f"var(--{variable})")
    label = html.escape(printable(description), quote=True)
    return f'<svg class="plot" viewBox="{box[1]}" role="img" aria-label="{label}">{inside}'


def to_png(pixels: Any, low: float, high: float) -> str:
    """A picture (height, width) or (height, width, 3) as a data: address; `low` is black, `high` is white."""
    (module,) = require("a picture", "matplotlib.image", extra="report")
    array = np.asarray(pixels, dtype=np.float64)
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] != 3):
        raise DataError(
            "a picture is grey or has three colours",
            received=f"shape {array.shape}",
            expected="(height, width) or (height, width, 3)",
        )
    level = np.clip((array - low) / max(high - low, 1e-30), 0.0, 1.0)
    colours = np.repeat(level[:, :, None], 3, axis=2) if level.ndim == 2 else level
    buffer = io.BytesIO()
    module.imsave(buffer, np.round(colours * 255).astype(np.uint8), format="png", metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
