"""Figures: one function each, from numbers to a `matplotlib.figure.Figure`. None knows of posteriors or of pages.

Nothing is registered with pyplot and no window is opened. Names that come from a user (of classes, of groups) are drawn
as they are: a dollar sign does not begin a formula.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprop.errors import DataError
from bayesprop.metrics import ReliabilityCurve, RiskCoverage
from bayesprop.report.drawing import PALETTE, canvas, legend, percent, style, thousands

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "learning_curve",
    "reliability_diagram",
    "risk_coverage_curve",
    "signal_to_noise_histogram",
    "uncertainty_histogram",
    "validation_curve",
    "wilson_interval",
]

INK, MUTED, RULE, FIRST, SECOND, THIRD = (light for light, _dark in PALETTE.values())
SMALLEST = 1e-3  # signal to noise that is told from nothing
CURVES = ((FIRST, "-"), (SECOND, "--"), (THIRD, "-."), (MUTED, ":"))


def learning_curve(history: Sequence[Mapping[str, Any]]) -> Figure:
    """-ELBO and its two parts over the epochs, in nats for the full data; -ELBO = data misfit + KL.

    `history` has entries with "epoch", "log_likelihood" and, where the method knows them, "kl" and "elbo". The axis is
    logarithmic if all numbers are positive (densities can be above 1, and their misfit below 0).
    """
    lines = {"−ELBO": ("elbo", -1.0), "data misfit": ("log_likelihood", -1.0), "KL": ("kl", 1.0)}
    drawn = {}
    for label, (key, sign) in lines.items():
        points = [(entry["epoch"], sign * entry[key]) for entry in history if key in entry]
        if points:
            drawn[label] = np.asarray(points, dtype=np.float64)
    if not drawn:
        raise DataError(
            "a learning curve needs the history of a training",
            received=f"{len(history)} entries without a log-likelihood",
            expected="posterior.context.history",
        )
    with style():
        figure, (axes,) = canvas()
        for (label, points), (colour, dashes) in zip(drawn.items(), CURVES, strict=False):
            # The last value stands in the legend: it can hardly be read off a logarithmic axis.
            last = f"{points[-1, 1]:,.0f}".replace("-", "−")
            axes.plot(points[:, 0], points[:, 1], dashes, color=colour, label=f"{label} {last}")
        values = np.concatenate([points[:, 1] for points in drawn.values()])
        if (values > 0).all() and values.max() > 20 * values.min():
            axes.set_yscale("log")
            _plain_numbers(axes)
        thousands(axes.xaxis)
        thousands(axes.yaxis)
        axes.set_xlabel("epoch")
        axes.set_ylabel("nats")
        legend(axes)
    return figure


def validation_curve(history: Sequence[Mapping[str, Any]]) -> Figure:
    """Scores of the validation rows over the epochs: NLL for each row, and below it the error or the RMSE."""
    entries = [entry for entry in history if "validation_nll" in entry]
    if not entries:
        raise DataError(
            "a validation curve needs scores of validation rows",
            received=f"{len(history)} entries without any",
            expected="the history of a training with validation rows",
            write="bp.fit(model, data, validation=0.1)",
        )
    epochs = [entry["epoch"] for entry in entries]
    second = next((key for key in ("validation_error", "validation_rmse") if key in entries[0]), None)
    with style():
        figure, panels = canvas((1.0,) if second is None else (1.0, 1.0))
        scores = [entry["validation_nll"] for entry in entries]
        panels[0].plot(epochs, scores, color=FIRST)
        if min(scores) > 0:
            panels[0].set_ylim(bottom=0)  # a long training wobbles; its end is not to look like its beginning
        panels[0].set_ylabel("nats per row")
        thousands(panels[0].yaxis)
        if second is not None:
            panels[1].plot(epochs, [entry[second] for entry in entries], color=SECOND)
            panels[1].set_ylabel("error" if second == "validation_error" else "RMSE")
            panels[1].set_ylim(bottom=0)
            (percent if second == "validation_error" else thousands)(panels[1].yaxis)
        thousands(panels[-1].xaxis)
        panels[-1].set_xlabel("epoch")
        figure.align_ylabels()
    return figure


def reliability_diagram(curve: ReliabilityCurve) -> Figure:
    """Accuracy against confidence, bin by bin, with 95 % intervals (Wilson's); below, how many rows a bin holds."""
    rows = curve.rows.cpu().numpy()
    full = rows > 0
    confidence, accuracy = curve.confidence.cpu().numpy()[full], curve.accuracy.cpu().numpy()[full]
    low, high = wilson_interval(accuracy, rows[full])
    edges = curve.edges.double().cpu().numpy()
    with style():
        figure, (upper, lower) = canvas((3.0, 1.0))
        upper.plot([0, 1], [0, 1], color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)))
        upper.vlines(confidence, low, high, color=FIRST, linewidth=1.2)
        upper.plot(confidence, accuracy, "o", color=FIRST, markersize=4.5)
        upper.set_ylim(-0.03, 1.03)
        upper.set_ylabel("accuracy")
        lower.stairs(rows, edges, fill=True, color=FIRST, linewidth=0)
        lower.set_xlim(0, 1)
        lower.set_xlabel("confidence")
        lower.set_ylabel("rows")
        lower.locator_params(axis="y", nbins=3, integer=True)
        thousands(lower.yaxis)
        figure.align_ylabels()
    return figure


def risk_coverage_curve(curves: Mapping[str, RiskCoverage], *, risk: str = "error among them") -> Figure:
    """The risk of the rows that are answered against their share, one line for each order in which rows are refused.

    Where no curve has any risk yet, most of the axis is left out.
    """
    risky = [curve.coverage[curve.risk > 0] for curve in curves.values()]
    begins = min((float(coverage.min()) for coverage in risky if coverage.numel()), default=0.0)
    with style():
        figure, (axes,) = canvas()
        for (label, curve), (colour, dashes) in zip(curves.items(), CURVES, strict=False):
            axes.plot(curve.coverage.cpu(), curve.risk.cpu(), dashes, color=colour, label=label)
        axes.set_xlim(max(0.0, np.floor(10 * (2 * begins - 1)) / 10), 1)
        axes.locator_params(axis="x", nbins=5)
        axes.set_ylim(bottom=0)
        percent(axes.xaxis)
        percent(axes.yaxis)
        axes.set_xlabel("share of rows answered")
        axes.set_ylabel(risk)
        legend(axes)
    return figure


def uncertainty_histogram(groups: Mapping[str, Any], *, label: str, bins: int = 30) -> Figure:
    """One panel for each group of rows, on the same bins: the share of the group in each bin.

    Shares and not counts, because wrong answers are few; each panel says how many rows there are. Empty groups stay
    out.
    """
    values = {name: np.asarray(rows, dtype=np.float64).reshape(-1) for name, rows in groups.items()}
    values = {name: rows for name, rows in values.items() if rows.size}
    if not values:
        raise DataError("a histogram needs rows", received="only empty groups", expected="at least one row")
    everything = np.concatenate(list(values.values()))
    top = float(everything.max())
    edges = np.linspace(min(0.0, float(everything.min())), top if top > 0 else 1.0, bins + 1)
    with style():
        figure, panels = canvas([1.0] * len(values), height=0.8 + 1.1 * len(values))
        for axes, (name, rows), (colour, _) in zip(panels, values.items(), CURVES * len(values), strict=False):
            counts, _ = np.histogram(rows, edges)
            axes.stairs(counts / rows.size, edges, fill=True, color=colour, linewidth=0)
            axes.set_ylim(bottom=0)
            axes.set_xlim(edges[0], edges[-1])
            axes.locator_params(axis="y", nbins=3)
            percent(axes.yaxis)
            title = axes.set_title(f"{name}: {rows.size:,} rows", loc="left", pad=4, color=INK)
            title.set_parse_math(False)
        panels[-1].set_xlabel(label)
        figure.supylabel("share of the group", fontsize=10.5, color=INK)
    return figure


def signal_to_noise_histogram(ratio: Any, *, bins: int = 40) -> Figure:
    """|mean| / std of all weights on a logarithmic axis; to the left of 1 a weight may well be zero.

    Weights beyond the central 99.8 % are counted in the outermost bins, so that a few of them do not stretch the axis,
    and so are ratios below 1/1000, which are those of weights that the data never touch.
    """
    values = np.asarray(ratio, dtype=np.float64).reshape(-1)
    values = values[np.isfinite(values)]
    if values.size == 0 or not (values > 0).any():
        raise DataError(
            "a signal-to-noise ratio needs weights that have a distribution",
            received=f"{values.size} finite ratios",
            expected="|mean| / std with std > 0",
        )
    low, high = np.quantile(values[values > 0], (0.001, 0.999))
    low, high = float(np.clip(low, SMALLEST, 0.5)), max(float(high), 2.0)
    edges = np.geomspace(low, high, bins + 1)
    counts, _ = np.histogram(np.clip(values, low, high), edges)
    with style():
        figure, (axes,) = canvas()
        axes.stairs(counts, edges, fill=True, color=FIRST, linewidth=0)
        axes.axvline(1.0, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.set_xscale("log")
        axes.set_xlim(low, high)
        axes.xaxis.set_major_formatter(lambda value, _position: f"{'≤ ' if value <= SMALLEST else ''}{value:g}")
        axes.xaxis.set_minor_formatter(lambda _value, _position: "")
        thousands(axes.yaxis)
        axes.set_xlabel("signal to noise, |mean| / std")
        axes.set_ylabel("weights")
    return figure


def wilson_interval(share: Any, rows: Any, z: float = 1.96) -> tuple[np.ndarray, np.ndarray]:
    """The 95 % interval of a share p seen in n rows (Wilson 1927), sensible also at p = 0 and p = 1:

    (p + z^2/2n -+ z sqrt(p (1 - p)/n + z^2/4n^2)) / (1 + z^2/n)                                            (1)
    """
    p, n = np.asarray(share, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    centre, spread = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2)
    # Rounding leaves -1e-17 for p = 0, which would be printed as -0.0 %.
    low, high = (centre - spread) / (1 + z * z / n), (centre + spread) / (1 + z * z / n)
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


def _plain_numbers(axes: Axes) -> None:
    """No labels between powers of ten, and enough of them if there are few powers."""
    axes.yaxis.set_minor_formatter(lambda _value, _position: "")
