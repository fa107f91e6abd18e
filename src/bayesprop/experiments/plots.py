"""Figures that experiments share: lines with bands over a common axis, beside points that somebody published."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bayesprop.errors import DataError
from bayesprop.report.drawing import PALETTE, canvas, legend, percent, style, thousands

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Line", "bars_figure", "curve_line", "lines_figure", "strip_figure"]

_INK, MUTED, _RULE, FIRST, SECOND, THIRD = (light for light, _dark in PALETTE.values())
LOOKS = ((FIRST, "-"), (SECOND, "--"), (THIRD, "-."), (MUTED, ":"), (FIRST, ":"), (SECOND, "-"))


@dataclass(frozen=True)
class Line:
    """A line of ours, a band of one standard error around it where there are several seeds, and published values.

    `published` are pairs of a place, or a range (first, last) of places, and a value.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] | None = None
    published: Sequence[tuple[float | tuple[float, float], float]] = ()


def curve_line(
    label: str, curves: Sequence[Sequence[Mapping[str, float]]], key: str = "error", **more: Any
) -> Line | None:
    """Mean and standard error over the seeds of learning curves as `populations` keeps them; None without a curve."""
    epochs = sorted({int(point["epoch"]) for curve in curves for point in curve if key in point})
    values = {e: [p[key] for curve in curves for p in curve if p["epoch"] == e and key in p] for e in epochs}
    if not epochs:
        return None
    spreads = [statistics.stdev(v) / len(v) ** 0.5 if len(v) > 1 else 0.0 for v in values.values()]
    return Line(label, epochs, [statistics.fmean(v) for v in values.values()], spreads, **more)


def lines_figure(
    lines: Sequence[Line],
    *,
    xlabel: str,
    ylabel: str,
    shares: bool = False,
    log_x: bool = False,
    marks: bool = False,
    top: float | None = None,
) -> Figure:
    """Lines over one axis. `shares` writes 0.01 as 1 %, `marks` puts a dot on each value, `top` cuts the axis."""
    if not 0 < len(lines) <= len(LOOKS):
        raise DataError("a figure shows a few lines", received=f"{len(lines)}", expected=f"1 to {len(LOOKS)}")
    with style():
        figure, (axes,) = canvas()
        for line, (colour, dashes) in zip(lines, LOOKS, strict=False):
            axes.plot(line.x, line.y, dashes, color=colour, label=line.label, marker="o" if marks else "", markersize=4)
            if line.spread is not None and any(line.spread):
                low = [y - s for y, s in zip(line.y, line.spread, strict=True)]
                high = [y + s for y, s in zip(line.y, line.spread, strict=True)]
                axes.fill_between(line.x, low, high, color=colour, alpha=0.18, linewidth=0)
            for place, value in line.published:
                if isinstance(place, tuple):
                    axes.plot(place, (value, value), color=colour, linewidth=4, alpha=0.45, solid_capstyle="butt")
                else:
                    axes.plot([place], [value], "D", color=colour, markersize=5, fillstyle="none")
        if log_x:
            axes.set_xscale("log")
        if top is not None:
            axes.set_ylim(top=top)
        thousands(axes.xaxis)
        (percent if shares else thousands)(axes.yaxis)
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        legend(axes)
    return figure


def strip_figure(
    groups: Mapping[str, Sequence[float]], *, xlabel: str, ylabel: str, top: float | None = None
) -> Figure:
    """A column of dots for each group, beside one another where there are many, and a line through the medians.

    Values above `top` stand at the upper end of the axis.
    """
    if not groups or not all(groups.values()):
        raise DataError("a figure needs values in each group", received=f"{list(groups)}")
    with style():
        figure, (axes,) = canvas()
        for place, values in enumerate(groups.values()):
            shown = sorted(values if top is None else [min(value, top) for value in values])
            aside = [place + 0.24 * ((7 * i) % 11 / 5.0 - 1.0) for i in range(len(shown))]
            axes.plot(aside, shown, "o", color=FIRST, alpha=0.45, markersize=3.5, markeredgewidth=0)
        medians = [statistics.median(values) for values in groups.values()]
        axes.plot(range(len(groups)), medians, "-", color=SECOND, label="median")
        axes.set_xticks(range(len(groups)), list(groups))
        axes.set_xlim(-0.5, len(groups) - 0.5)
        percent(axes.yaxis)
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        legend(axes)
    return figure


def bars_figure(values: Mapping[str, float], *, xlabel: str, published: Mapping[str, float] | None = None) -> Figure:
    """One bar for each of ours on a logarithmic axis, and below them a hollow one for each published value."""
    theirs = dict(published or {})
    if not values or min([*values.values(), *theirs.values()]) <= 0:
        raise DataError("bars on a logarithmic axis need positive values", received=f"{dict(values)} and {theirs}")
    with style():
        figure, (axes,) = canvas(height=1.0 + 0.32 * (len(values) + len(theirs)))
        rows = [*values.items(), *theirs.items()]
        low = min(value for _, value in rows) / 3.0
        for place, (_, value) in enumerate(rows):
            ours = place < len(values)
            inside, edge = (FIRST, FIRST) if ours else ("none", SECOND)
            axes.barh(place, value - low, left=low, height=0.62, facecolor=inside, edgecolor=edge)
            axes.text(
                value * 1.06, place, f"{value:,.3g}" if value < 1000 else f"{value:,.0f}", va="center", color=_INK
            )
        axes.set_xscale("log")
        axes.set_xlim(low, max(value for _, value in rows) * 3.0)
        axes.set_yticks(range(len(rows)), [label for label, _ in rows])
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.locator_params(axis="x", numticks=4)
        thousands(axes.xaxis)
        axes.set_xlabel(xlabel)
    return figure
