"""Figures of weights: their densities, their signal to noise, and what pruning costs.

As in `figures`, each is one function from numbers to a matplotlib Figure. A histogram is a pair (edges, counts), so
that pages can be made from records that hold no weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprop.errors import DataError
from bayesprop.report.drawing import PALETTE, canvas, legend, percent, style, thousands

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Histogram", "decibel_histogram", "density_ridges", "histogram", "pruning_figure", "weight_densities"]

Histogram = tuple[Any, Any]  # edges (n + 1,) and counts (n,)

INK, MUTED, RULE, FIRST, SECOND, THIRD = (light for light, _dark in PALETTE.values())
LINES = ((FIRST, "-"), (SECOND, "--"), (THIRD, "-."), (MUTED, ":"), (INK, (0, (1, 1))))


def histogram(values: Any, edges: Any) -> Histogram:
    """Counts of the values between the edges; values beyond them are counted in the outermost bins."""
    places = np.asarray(edges, dtype=np.float64)
    found = np.asarray(values, dtype=np.float64).reshape(-1)
    # The next smaller number, because the last bin of a clipped value at its edge depends on rounding otherwise.
    inside = np.clip(found, places[0], np.nextafter(places[-1], places[0]))
    return places, np.histogram(inside, places)[0]


def weight_densities(groups: Mapping[str, Histogram], *, counts: bool = False) -> Figure:
    """One line for each group, scaled to an area of one, so that groups of different sizes can be compared.

    With `counts` they stay numbers of weights, on a logarithmic axis: for groups of which one is a part of the other.
    """
    if not groups:
        raise DataError("densities need at least one group of weights", received="none")
    with style():
        figure, (axes,) = canvas()
        for (name, (edges, found)), (colour, dashes) in zip(groups.items(), LINES * len(groups), strict=False):
            # Half a weight is below the axis, and has a logarithm.
            heights = np.maximum(np.asarray(found, dtype=np.float64), 0.5) if counts else _density(edges, found)
            axes.stairs(heights, edges, baseline=None, color=colour, linestyle=dashes, label=name)
        axes.set_xlim(min(edges[0] for edges, _ in groups.values()), max(edges[-1] for edges, _ in groups.values()))
        if counts:
            axes.set_yscale("log")
            axes.yaxis.set_minor_formatter(lambda _value, _position: "")
        axes.set_ylim(bottom=0.8 if counts else 0)
        thousands(axes.xaxis)
        thousands(axes.yaxis)
        axes.set_xlabel("weight")
        axes.set_ylabel("weights" if counts else "density")
        legend(axes)
    return figure


def density_ridges(rows: Sequence[tuple[str, Histogram]], *, label: str = "weight") -> Figure:
    """Densities above one another, the first at the top, each as high as the room that it has."""
    if not rows:
        raise DataError("ridges need at least one histogram", received="none")
    with style():
        figure, (axes,) = canvas(height=1.2 + 0.42 * len(rows))
        for position, (_, (edges, counts)) in enumerate(rows):
            ground, heights = len(rows) - 1.0 - position, _density(edges, counts)
            heights = ground + 1.4 * heights / max(heights.max(), 1e-30)
            axes.stairs(heights, edges, baseline=ground, fill=True, color=FIRST, alpha=0.35, zorder=2 + position)
            axes.stairs(heights, edges, baseline=None, color=FIRST, linewidth=1.2, zorder=2 + position)
        axes.set_yticks(range(len(rows)), [name for name, _ in reversed(rows)])
        axes.set_xlim(min(edges[0] for _, (edges, _) in rows), max(edges[-1] for _, (edges, _) in rows))
        axes.set_ylim(-0.1, len(rows) + 0.5)
        thousands(axes.xaxis)
        axes.set_xlabel(label)
    return figure


def decibel_histogram(ratios: Histogram, cuts: Mapping[str, float] | None = None) -> Figure:
    """Density of the signal to noise in decibels, and below it the share of weights up to each value.

    `cuts` are thresholds by what they remove, such as {"75 %": -3.2}, drawn through both panels.
    """
    edges, counts = (np.asarray(values, dtype=np.float64) for values in ratios)
    with style():
        figure, (upper, lower) = canvas((1.4, 1.0), height=4.2)
        upper.stairs(_density(edges, counts), edges, fill=True, color=FIRST, alpha=0.6, linewidth=0)
        upper.set_ylabel("density")
        upper.set_ylim(bottom=0)
        reached = np.concatenate(([0.0], counts.cumsum() / counts.sum()))
        lower.plot(edges, reached, color=FIRST)
        lower.set_ylim(0, 1)
        lower.set_xlim(edges[0], edges[-1])
        lower.set_xlabel("signal to noise, 20 log₁₀ |mean| / std, in dB")
        lower.set_ylabel("share below")
        percent(lower.yaxis)
        thousands(upper.yaxis)
        thousands(lower.xaxis)
        for (name, place), (colour, dashes) in zip((cuts or {}).items(), LINES[1:] * 9, strict=False):
            for axes in (upper, lower):
                axes.axvline(place, color=colour, linestyle=dashes, linewidth=1.2, label=name)
        if cuts:
            legend(upper)
        figure.align_ylabels()
    return figure


def pruning_figure(
    curves: Mapping[str, Sequence[tuple[float, float]]], *, score: str = "error", shares: bool = True
) -> Figure:
    """A score against the share of weights that is left, on a logarithmic axis: the end is what matters.

    `curves` have points (share removed, score); everything removed has no place on such an axis. `shares` says that
    the scores are shares, and have labels in percent.
    """
    drawn = {
        name: sorted((1.0 - share, value) for share, value in points if share < 1) for name, points in curves.items()
    }
    drawn = {name: np.asarray(points, dtype=np.float64) for name, points in drawn.items() if points}
    if not drawn:
        raise DataError("a pruning curve needs points", received="none with a share below 1", expected="(share, score)")
    places = sorted({place for points in drawn.values() for place in points[:, 0]}, reverse=True)
    scores = np.concatenate([points[:, 1] for points in drawn.values()])
    with style():
        figure, (axes,) = canvas()
        for (name, points), (colour, dashes) in zip(drawn.items(), LINES * len(drawn), strict=False):
            axes.plot(
                points[:, 0], points[:, 1], color=colour, linestyle=dashes, marker="o", markersize=3.5, label=name
            )
        axes.set_xscale("log")
        axes.set_xlim(max(places) * 1.05, min(places) / 1.15)
        axes.set_xticks(_apart(places), [f"{100 * (1 - place):.3g}\N{NO-BREAK SPACE}%" for place in _apart(places)])
        axes.xaxis.set_minor_formatter(lambda _value, _position: "")
        if scores.min() > 0 and scores.max() > 10 * scores.min():
            axes.set_yscale("log")
            axes.yaxis.set_minor_formatter(lambda _value, _position: "")
        (percent if shares else thousands)(axes.yaxis)
        axes.set_xlabel("weights removed")
        axes.set_ylabel(score)
        legend(axes)
    return figure


def _density(edges: Any, counts: Any) -> np.ndarray:
    """Counts as heights of an area of one; nothing counted is flat."""
    given = np.asarray(counts, dtype=np.float64)
    return given / (max(given.sum(), 1e-30) * np.diff(np.asarray(edges, dtype=np.float64)))


def _apart(places: Sequence[float]) -> list[float]:
    """Of places in falling order the first, the last, and those between whose labels do not run into others."""
    first, last = places[0], places[-1]
    found = [last]
    for place in reversed(places[1:-1]):
        if place > 1.6 * found[0] and first > 1.6 * place:
            found.insert(0, place)
    return found if first == last else [first, *found]
