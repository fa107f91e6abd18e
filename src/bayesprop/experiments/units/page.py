"""The page: the source's table beside ours with its settings and with chosen ones, and learning curves."""

from __future__ import annotations

from bayesprop.experiments.plots import curve_line, lines_figure
from bayesprop.experiments.record import Record
from bayesprop.experiments.rows import measured, number
from bayesprop.experiments.units.parts import DATA, POINTS
from bayesprop.experiments.units.published import BASELINES, LONG, ORIGINAL, TABLE
from bayesprop.experiments.values import Comparison, comparison_table, difference_table
from bayesprop.report import Plot, Section, Table

__all__ = ["page"]

NAMES = ("data", "units", "settings")
TEST_ROWS = 10_000
KINDS = {"source": "settings of the source", "chosen": "chosen on validation rows"}


def page(record: Record) -> list[Section]:
    """All sections."""
    found = [_table(record), _differences(record), _baselines(record), _curves(record), _choices(record)]
    return [section for section in found if section is not None]


def _table(record: Record) -> Section:
    lines = _lines(record)
    table = comparison_table("Test error", NAMES, lines, unit="%", caption="Difference: to the first value.")
    text = (
        f"Bayes by Backprop with a Gaussian prior, {record.settings['epochs']} epochs. With the source's settings "
        "(prior N(0, 1), plain gradient steps, full KL) the network of the posterior means predicts, as there; it was "
        "trained on 60,000 rows there and on 50,000 here. What is chosen on validation rows has a narrower prior and "
        "another optimiser, and predicts by draws."
    )
    return Section("Units of each hidden layer", [table], text)


def _differences(record: Record) -> Section | None:
    """Where we are elsewhere than the source by more than chance explains."""
    table, compared = difference_table(NAMES, _lines(record), rows=TEST_ROWS)
    if not compared:
        return None
    why = (
        "The source does not say how it chose its settings, and trained one network of each kind, without a validation "
        "set: its order of widths (best at 800, worst at 1200) is that of single networks. Ours are trained on fewer "
        "rows. Chosen settings differ in rate, prior and start on purpose."
    )
    said = "" if table else f"None of {compared} cells differs from the source's by more than two deviations. "
    return Section("Where we differ", [table] if table else [], said + why)


def _lines(record: Record) -> list[Comparison]:
    """Every cell, trained in both ways."""
    lines = []
    for data, title in DATA.items():
        for width in record.settings[f"{data}_widths"]:
            for kind, words in KINDS.items():
                result = record.result(f"{kind}-{data.replace('_', '-')}-{width}")
                published = [TABLE[data, width]] if (data, width) in TABLE else []
                published += [ORIGINAL[width]] if data == "mnist" and width in ORIGINAL else []
                # The source predicts with the means of the weights.
                ours = measured(result, of="test_of_the_means" if kind == "source" else "test")
                lines.append(Comparison((title, f"{width}", words), published, ours))
    for kind, words in KINDS.items():
        ours = measured(record.result(f"{kind}-long"), of="test_of_the_means" if kind == "source" else "test")
        labels = ("MNIST", f"{record.settings['long_width']}", f"{words}, {record.settings['long_epochs']} epochs")
        lines.append(Comparison(labels, [LONG], ours))
    return lines


def _baselines(record: Record) -> Section:
    width = f"{record.settings['long_width']}"
    lines = [
        Comparison((title, width), [BASELINES[kind]], measured(record.result(kind))) for kind, title in POINTS.items()
    ]
    table = comparison_table("Test error on MNIST", ("method", "units"), lines, unit="%")
    text = (
        f"{record.settings['point_epochs']} epochs of Adam with a rate of 1e-3. The source's last layer is a softplus "
        "where ours gives logits."
    )
    return Section("Points beside it", [table], text)


def _curves(record: Record) -> Section | None:
    blocks = []
    long = record.settings["long_epochs"]
    for kind, words in KINDS.items():
        result = record.result(f"{kind}-long")
        if result is not None:
            error = curve_line("error", result["curves"])
            divergence = curve_line("KL", result["curves"], "kl")
            if error is not None:
                figure = lines_figure([error], xlabel="epoch", ylabel="validation error", shares=True)
                blocks.append(Plot(f"Error, {words}", figure, f"{long} epochs; band: one standard error."))
            if divergence is not None:
                figure = lines_figure([divergence], xlabel="epoch", ylabel="KL to the prior, nats")
                blocks.append(Plot(f"KL, {words}", figure))
    return Section("The long training", blocks) if blocks else None


def _choices(record: Record) -> Section | None:
    rows = []
    for data, title in DATA.items():
        result = record.result(f"choose-{data.replace('_', '-')}")
        if result is None:
            continue
        for candidate, error in zip(result["candidates"], result["errors"], strict=True):
            shown = "diverged" if error is None else f"{100.0 * error:.2f}"
            words = ", ".join(f"{key} {number(value)}" for key, value in candidate.items())
            rows.append((title, words, shown, "chosen" if candidate == result["chosen"] else ""))
    if not rows:
        return None
    text = f"{record.settings['choice_width']} units, {record.settings['choice_seeds']} seeds each."
    return Section(
        "What was chosen", [Table(("data", "candidate", "validation error, %", ""), rows, numeric=(2,))], text
    )
