"""Figures of quantities: intervals, bands and residuals. As in `figures`, from numbers to a matplotlib Figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprop.errors import DataError
from bayesprop.report.drawing import PALETTE, canvas, legend, percent, style, thousands

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "coverage_curve",
    "prediction_band",
    "rank_histogram",
    "residual_plot",
    "target_plot",
    "thinned",
]

INK, MUTED, RULE, FIRST, SECOND, THIRD = (light for light, _dark in PALETTE.values())
POINTS = 600  # of a scatter plot: more are a blot, and a heavy page


def coverage_curve(levels: Sequence[float], shares: Sequence[float], rows: int) -> Figure:
    """The share of targets inside their interval against the probability that the interval claims.

    The band around the diagonal is p -+ 1.96 sqrt(p (1 - p) / rows): honest intervals lie in it in 95 % of cases.
    """
    claimed = np.asarray(levels, dtype=np.float64)
    fine = np.linspace(0, 1, 101)
    spread = 1.96 * np.sqrt(fine * (1 - fine) / rows)
    with style():
        figure, (axes,) = canvas()
        axes.fill_between(fine, fine - spread, fine + spread, color=MUTED, alpha=0.25, linewidth=0, label="chance")
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)), label="honest")
        axes.plot(claimed, shares, "-o", color=FIRST, markersize=3.5, label="these intervals", clip_on=False)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        percent(axes.xaxis)
        percent(axes.yaxis)
        axes.set_xlabel("probability that the interval claims")
        axes.set_ylabel("share of targets inside")
        legend(axes)
    return figure


def rank_histogram(ranks: Any, *, bins: int = 10) -> Figure:
    """Histogram of P(Y <= y), which is uniform if predictions are honest; the band is that of chance, 95 % per bar."""
    values = np.asarray(ranks, dtype=np.float64).reshape(-1)
    if values.size == 0:
        raise DataError("a histogram of ranks needs rows", received="none", expected="at least one")
    counts, edges = np.histogram(values, bins=bins, range=(0, 1))
    spread = 1.96 * np.sqrt((1 - 1 / bins) / bins / values.size)
    with style():
        figure, (axes,) = canvas()
        axes.bar(edges[:-1], counts / values.size, np.diff(edges) * 0.94, align="edge", color=FIRST, linewidth=0)
        axes.axhspan(max(0.0, 1 / bins - spread), 1 / bins + spread, color=MUTED, alpha=0.25, linewidth=0, zorder=0)
        axes.axhline(1 / bins, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=3)
        axes.set_xlim(0, 1)
        axes.set_ylim(bottom=0)
        percent(axes.xaxis)
        percent(axes.yaxis)
        axes.set_xlabel("rank of the target in its prediction, P(Y ≤ y)")
        axes.set_ylabel("share of targets")
    return figure


def prediction_band(
    inputs: Any,
    mean: Any,
    noisy: tuple[Any, Any],
    sure: tuple[Any, Any],
    points: tuple[Any, Any],
    *,
    names: tuple[str, str] = ("90 % of targets", "90 % of functions"),
    against: tuple[str, Any, Any] | None = None,
) -> Figure:
    """The mean over one input, two bands around it, and data.

    Args:
        inputs, mean: (g,) in increasing order of the inputs.
        noisy: low and high end of where a target is expected.
        sure: low and high end of where the function is expected, the inner band.
        points: inputs and targets of the data, at most 600 of which are drawn.
        names: what the wide and the narrow band hold.
        against: name, low and high end of another band to compare with, drawn as lines.
    """
    x, y = (thinned(values) for values in points)
    with style():
        figure, (axes,) = canvas()
        axes.fill_between(inputs, *noisy, color=FIRST, alpha=0.18, linewidth=0, label=names[0])
        axes.fill_between(inputs, *sure, color=FIRST, alpha=0.45, linewidth=0, label=names[1])
        axes.plot(inputs, mean, color=FIRST)
        if against is not None:
            axes.plot(inputs, against[1], color=INK, linewidth=1.0, linestyle=(0, (4, 3)), label=against[0])
            axes.plot(inputs, against[2], color=INK, linewidth=1.0, linestyle=(0, (4, 3)))
        axes.plot(x, y, "o", color=SECOND, markersize=3.2, markeredgewidth=0, label="data")
        axes.set_xlim(inputs[0], inputs[-1])
        thousands(axes.xaxis)
        thousands(axes.yaxis)
        axes.set_xlabel("input")
        axes.set_ylabel("target")
        legend(axes)
    return figure


def target_plot(mean: Any, targets: Any, std: Any) -> Figure:
    """Targets against their predicted means, each mean with a bar of -+ one standard deviation."""
    m, y, s = (thinned(values) for values in (mean, targets, std))
    ends = np.array([min(m.min(), y.min()), max(m.max(), y.max())])
    with style():
        figure, (axes,) = canvas()
        axes.hlines(y, m - s, m + s, color=FIRST, linewidth=0.8, alpha=0.35)
        axes.plot(m, y, "o", color=FIRST, markersize=2.6, markeredgewidth=0)
        axes.plot(ends, ends, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
        thousands(axes.xaxis)
        thousands(axes.yaxis)
        axes.set_xlabel("predicted mean ∓ standard deviation")
        axes.set_ylabel("target")
    return figure


def residual_plot(std: Any, residuals: Any) -> Figure:
    """Target - mean against the predicted standard deviation; the lines are at -+ 1.96 of it."""
    s, r = (thinned(values) for values in (std, residuals))
    low, high = float(s.min()), float(s.max())
    margin = 0.05 * (high - low) if high > low else 0.05 * max(high, 1e-12)
    ends = np.array([max(0.0, low - margin), high + margin])
    with style():
        figure, (axes,) = canvas()
        axes.plot(s, r, "o", color=FIRST, markersize=2.6, markeredgewidth=0)
        for sign in (-1, 1):
            axes.plot(ends, sign * 1.96 * ends, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.axhline(0, color=MUTED, linewidth=0.8)
        axes.set_xlim(*ends)
        axes.locator_params(axis="x", nbins=6)
        thousands(axes.xaxis)
        thousands(axes.yaxis)
        axes.set_xlabel("predicted standard deviation")
        axes.set_ylabel("target − predicted mean")
    return figure


def thinned(values: Any) -> np.ndarray:
    """At most 600 values, evenly spaced over the rows: the same rows whatever is asked for."""
    flat = np.asarray(values, dtype=np.float64).reshape(-1)
    if flat.size <= POINTS:
        return flat
    return flat[np.linspace(0, flat.size - 1, POINTS).round().astype(np.int64)]
