"""The page: densities beside one another, their heights beside figure 3's, and over the epochs for both priors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesprop.experiments.densities.parts import TITLES
from bayesprop.experiments.densities.published import PEAKS
from bayesprop.experiments.record import Record
from bayesprop.experiments.values import Comparison, Measured, comparison_table
from bayesprop.report import Plot, Section, Table
from bayesprop.report.weight_figures import density_ridges, weight_densities

__all__ = ["page", "peak"]

FIGURE = ("sgd", "dropout", "mixture", "gaussian")
EARLY = 50  # epochs after which source 004 looked


def page(record: Record) -> list[Section]:
    """All sections for which there are parts."""
    made = [_figure_3(record), _early(record), _epochs(record)]
    return [section for section in made if section is not None]


def peak(edges: Any, counts: Any) -> float:
    """The largest height of a density of area one."""
    found = np.asarray(counts, dtype=np.float64)
    inner = found[1:-1] / (found.sum() * np.diff(edges)[1:-1])  # the outermost bins hold what lies beyond them
    return float(inner.max())


def _counts(look: Mapping[str, Any]) -> Any:
    """Of a draw, as the paper shows for Bayes by Backprop, and of the weights of the others."""
    return look.get("draw", look["means"])


def _figure_3(record: Record) -> Section | None:
    results = {name: record.result(name) for name in FIGURE}
    groups, lines, rows = {}, [], []
    for name, result in results.items():
        if result is None:
            continue
        last = result["looks"][-1]
        groups[TITLES[name].replace("Bayes by Backprop", "BBB")] = (result["edges"], _counts(last))
        width = record.settings["networks"][name]["width"]
        published = [PEAKS[name]] if name in PEAKS and width == 1200 else []
        ours = Measured((peak(result["edges"], _counts(last)),))
        lines.append(Comparison((TITLES[name],), published, ours, f"{100 * result['test_error']:.2f} %"))
        spread = f"{last['draw_deviation']:.3f}" if "draw_deviation" in last else "–"
        rows.append((TITLES[name], f"{last['means_deviation']:.3f}", spread, f"{result['weights']:,}"))
    if not groups:
        return None
    made = comparison_table("Height at the peak", ("network",), lines, unit="per unit of weight", digits=1)
    heights = Table((*made.header[:-1], "test error"), made.rows, made.title, made.caption, (*made.numeric, 5))
    spreads = Table(
        ("network", "of the weights or means", "of one draw", "weights"),
        rows,
        "Standard deviations",
        numeric=(1, 2, 3),
        beside=True,
    )
    plot = Plot(
        "After the training",
        weight_densities(groups),
        "Entries of the weight matrices; for Bayes by Backprop those of one draw. Weights beyond the axis are counted "
        "at its ends. Dropout scales while it trains, so its weights are those of the test already.",
    )
    return Section("Densities of the weights (figure 3)", [plot, spreads, heights], _words(results))


def _words(results: Mapping[str, Mapping[str, Any] | None]) -> str:
    """Whether the order of the heights is the paper's: SGD above dropout above Bayes by Backprop."""
    known = {name: peak(r["edges"], _counts(r["looks"][-1])) for name, r in results.items() if r is not None}
    if not {"sgd", "dropout", "mixture"} <= set(known):
        return ""
    paper = ["sgd", "dropout", "mixture"]
    ours = sorted(paper, key=lambda name: -known[name])
    names = ", ".join(TITLES[name] for name in ours)
    said = "the same order as" if ours == paper else "another order than"
    return (
        f"From the highest peak to the lowest: {names}; {said} in the paper, where SGD is highest and Bayes by "
        "Backprop widest. The paper does not say under which prior. Under a mixture with a narrow component the "
        "peak is as narrow as that component and the posterior's own deviations."
    )


def _early(record: Record) -> Section | None:
    """Source 004's plot: after 50 epochs, or the last look before."""
    groups = {}
    for name in FIGURE[:3]:
        result = record.result(name)
        looks = [] if result is None else [look for look in result["looks"] if look["epoch"] <= EARLY]
        if result is not None and looks:
            title = TITLES[name].replace("Bayes by Backprop", "BBB")
            groups[f"{title}, epoch {looks[-1]['epoch']}"] = (result["edges"], _counts(looks[-1]))
    if len(groups) < 3:
        return None
    text = (
        "Source 004 trained for 50 epochs, found the three alike, and asked whether more epochs would tell them apart. "
        "These are the networks above at that time."
    )
    return Section("Early in the training (source 004)", [Plot("Densities", weight_densities(groups))], text)


def _epochs(record: Record) -> Section | None:
    blocks = []
    for name in ("source-gaussian", "source-mixture", "gaussian", "mixture"):
        result = record.result(name)
        if result is None:
            continue
        network = record.settings["networks"][name]
        rows = [(f"{look['epoch']}", (result["edges"], look["means"])) for look in result["looks"]]
        scales = ", ".join(
            f"{network[key]:.2g}" for key in ("prior.scale", "prior.scale1", "prior.scale2") if key in network
        )
        caption = (
            f"Means after so many epochs; prior of scale {scales}, {network['width']} units, KL weight "
            f"{network['temperature']:g}. Test error {100 * result['test_error']:.2f} %."
        )
        blocks.append(Plot(TITLES[name], density_ridges(rows, label="mean of a weight"), caption))
    text = (
        "Source 000 found one spike for each network with a mixture prior, and a wide density, like the paper's, for a "
        "Gaussian prior."
    )
    return Section("Over the epochs (source 000, figure 1)", blocks, text) if blocks else None
