"""The page: the paper's curve, source 001's version of it, and every method's answer about the gap beside HMC's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesprop.experiments.record import Record
from bayesprop.experiments.regression.methods import GAP
from bayesprop.experiments.regression.parts import CURVES
from bayesprop.report import Plot, Section, Table
from bayesprop.report.quantity_figures import prediction_band

__all__ = ["page"]

PLACES = (-0.2, 0.0, 0.25, 0.5, 0.6, 0.8, 1.0, 1.2)
ALIKE = 2.0  # a deviation within this factor of HMC's is called alike


def page(record: Record) -> list[Section]:
    """All sections for which there are parts."""
    made = [_paper(record), _source(record), _gap(record)]
    return [section for section in made if section is not None]


def _paper(record: Record) -> Section | None:
    blocks: list[Any] = []
    for name in ("curve", "curve-plain"):
        result = record.result(name)
        if result is None:
            continue
        band = result["band"]
        figure = prediction_band(
            band["inputs"],
            band["median"],
            (band["low"], band["high"]),
            (band["lower_quartile"], band["upper_quartile"]),
            _points(result),
            names=("90 % of functions", "half of functions"),
        )
        title = CURVES[name][0]
        blocks.append(Plot(title[0].upper() + title[1:], figure, _scores(result)))
    if not blocks:
        return None
    text = (
        "y = x + 0.3 sin(2π(x + e)) + 0.3 sin(4π(x + e)) + e with one e ~ N(0, 0.02²) for each row and x in [0, 0.5]. "
        "The line is the median, the inner band the interquartile range that figure 5 of the paper shows. The paper "
        "publishes no number, and does not say how many rows or units it had, nor whether 0.02 is a variance or a "
        "deviation."
    )
    return Section("The paper's curve (figure 5)", blocks, text)


def _source(record: Record) -> Section | None:
    result = record.result("source")
    if result is None:
        return None
    band = result["band"]
    figure = prediction_band(
        band["inputs"],
        band["mean"],
        (band["target_low"], band["target_high"]),
        (band["low"], band["high"]),
        _points(result),
    )
    deviations = np.interp(PLACES, band["inputs"], band["deviation"])
    rows = [
        (f"{x:g}".replace("-", "−"), f"{d:.3f}", "data" if 0 <= x <= 0.5 else "") for x, d in zip(PLACES, deviations)
    ]
    table = Table(("input", "deviation of the function", ""), rows, "Away from the data", numeric=(0, 1), beside=True)
    inside, outside = _at(band, 0.0, 0.5), _at(band, 1.0, 1.2)
    text = (
        f"{result['rows']:,} rows with inputs in [0, 0.5], asked on [−0.2, 1.2]. Source 001 shows that the "
        f"uncertainty grows away from the data; here its mean is {inside:.3f} among them and {outside:.3f} on "
        f"[1, 1.2], {outside / inside:.0f} times as much."
    )
    return Section("Source 001's version", [Plot("Mean and bands", figure, _scores(result)), table], text)


def _gap(record: Record) -> Section | None:
    results = {name: record.result(f"gap-{name}") for name in GAP}
    known = {name: result for name, result in results.items() if result is not None}
    if not known:
        return None
    standard = known.get("hmc")
    plots = [_gap_plot(name, result, standard if name != "hmc" else None) for name, result in known.items()]
    table = _gap_table(known)
    text = (
        "Two clusters with nothing in between. An honest posterior is uncertain in the gap; Foong et al. (2019) show "
        "that mean-field inference is too sure there, for networks of rectifiers. Here units are tanh. The standard is "
        "HMC on the same network, prior and noise. The infinitely wide network and the deep kernel are other models, "
        "and show what theirs say."
    )
    return Section("The gap between two clusters", [table, *plots], text + _verdict(known))


def _verdict(known: Mapping[str, Mapping[str, Any]]) -> str:
    """Who is within a factor of two of HMC in the gap."""
    if "hmc" not in known:
        return ""
    whole = known["hmc"]["gap"]
    near = [
        GAP[name].title for name, r in known.items() if name != "hmc" and whole / ALIKE <= r["gap"] <= whole * ALIKE
    ]
    return f" Within a factor of two of HMC's deviation in the gap: {', '.join(near) or 'none'}."


def _gap_table(known: Mapping[str, Mapping[str, Any]]) -> Table:
    standard, rows = known.get("hmc"), []
    for name, result in known.items():
        apart = ratio = "–"
        if standard is not None and name != "hmc":
            apart = f"{_distance(result, standard):.2f}"
            ratio = f"{result['gap'] / standard['gap']:.2f}"
        scores = (f"{result[region]:.3f}" for region in ("data", "gap", "beyond"))
        likelihood = f"{result['test_log_likelihood']:.2f}".replace("-", "−")
        rows.append(
            (GAP[name].title, *scores, ratio, apart, likelihood, f"{result['r_hat']:.3f}" if "r_hat" in result else "–")
        )
    header = (
        "method",
        "at the data",
        "in the gap",
        "beyond",
        "gap / HMC's",
        "mean − HMC's",
        "test log-likelihood",
        "R-hat",
    )
    caption = (
        "Mean deviation of the function at the data, between −0.5 and 0.3, and beyond ±1.3; how the one in the gap "
        "compares with HMC's; the root mean squared distance of the mean from HMC's over the whole grid; the mean "
        "log-likelihood of 400 further rows in nats; the largest R-hat over nine places, which says above 1.01 that "
        "chains have not met, and their answer is not the posterior's."
    )
    return Table(header, rows, "Deviation of the function", caption, numeric=tuple(range(1, 8)))


def _distance(result: Mapping[str, Any], standard: Mapping[str, Any]) -> float:
    difference = np.asarray(result["band"]["mean"]) - np.asarray(standard["band"]["mean"])
    return float(np.sqrt(np.mean(difference**2)))


def _gap_plot(name: str, result: Mapping[str, Any], standard: Mapping[str, Any] | None) -> Plot:
    band = result["band"]
    against = None if standard is None else ("HMC's 90 %", standard["band"]["low"], standard["band"]["high"])
    figure = prediction_band(
        band["inputs"],
        band["mean"],
        (band["low"], band["high"]),
        (band["lower_quartile"], band["upper_quartile"]),
        _points(result),
        names=("90 % of functions", "half of them"),
        against=against,
    )
    return Plot(GAP[name].title, figure)


def _points(result: Mapping[str, Any]) -> tuple[Any, Any]:
    return result["points"]["inputs"], result["points"]["targets"]


def _at(band: Mapping[str, Any], low: float, high: float) -> float:
    """Mean deviation over a part of the grid."""
    inputs = np.asarray(band["inputs"])
    return float(np.asarray(band["deviation"])[(inputs >= low) & (inputs <= high)].mean())


def _scores(result: Mapping[str, Any]) -> str:
    likelihood = f"{result['test_log_likelihood']:.2f}".replace("-", "−")
    return (
        f"{result['rows']:,} rows. Further rows of the same curve: RMSE {result['test_rmse']:.3f}, mean log-likelihood "
        f"{likelihood} nats; learnt noise {result['noise']:.3f}."
    )
