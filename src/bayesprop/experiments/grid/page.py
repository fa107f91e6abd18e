"""The page: error against each hyper-parameter, the best ten settings, what it cost, and the winner."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from bayesprop.experiments.grid.published import EPOCHS_PER_HOUR, SETTINGS
from bayesprop.experiments.plots import curve_line, lines_figure, strip_figure
from bayesprop.experiments.record import Record
from bayesprop.experiments.rows import measured, number
from bayesprop.experiments.values import Comparison, Published, comparison_table
from bayesprop.report import Headline, Number, Plot, Section, Table

__all__ = ["page"]

TITLES = {
    "samples": "weight samples a step",
    "prior.pi": "share of the broad part, pi",
    "prior.scale1": "scale of the broad part",
    "prior.scale2": "scale of the narrow part",
    "learning_rate": "learning rate",
}
BEST = 10
TABLE_1 = Published(1.36, "Blundell et al. 2015, table 1, the best of their grid at 400 units", "P")


def page(record: Record) -> list[Section]:
    """All sections for which there are parts."""
    found = record.result("sweep")
    made = [] if found is None else [_cost(record, found), _axes(record, found), _best(found)]
    return [*made, _winner(record)]


def _cost(record: Record, found: Mapping[str, Any]) -> Section:
    rows, seconds = found["rows"], found["training_seconds"]
    epochs = found["member_steps"] / found["steps_per_epoch"]
    finished = sum(row["fate"].startswith("finished") for row in rows)
    diverged = sum(row["fate"].startswith("diverged") for row in rows)
    rate = epochs / seconds * 3600.0
    theirs = EPOCHS_PER_HOUR
    numbers = [
        Number("settings", f"{len(rows)}", f"{finished} trained to the end, {diverged} diverged"),
        Number("time", f"{seconds / 60.0:.1f} min", record.parts["sweep"]["device"]),
        Number("epochs an hour", f"{rate:,.0f}", f"of single settings; {theirs.value:.0f} in {theirs.source} [S]"),
        Number("steps", f"{found['member_steps']:,}", "of single settings"),
    ]
    text = (
        f"The paper's grid has {SETTINGS.value:.0f} settings ({SETTINGS.source} [{SETTINGS.mark}]). "
        f"{_sentence(found['plan'])} {_sentence(found['engine'])}"
    )
    return Section("What it cost", [Headline(numbers)], text)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _axes(record: Record, found: Mapping[str, Any]) -> Section:
    """At the first rung, which all settings have reached that did not diverge."""
    first = [(row["values"], row["scores"][0]) for row in found["rows"] if row["scores"]]
    epoch = first[0][1]["epoch"]
    blocks: list[Any] = []
    table = []
    for key, values in record.settings["grid"].items():
        of_sgd = record.settings["optimizer"] == "sgd" and key == "learning_rate"
        scale = record.settings["batch_size"] if of_sgd else 1
        groups: dict[str, list[float]] = {}
        for value in values:
            errors = [
                score["error"] for own, score in first if abs(own[key] - value * scale) < 1e-9 * abs(value * scale)
            ]
            if not errors:
                continue
            groups[number(value)] = errors
            spread = f"{100 * min(errors):.2f} to {100 * max(errors):.2f}"
            table.append(
                (TITLES[key], number(value), f"{len(errors)}", f"{100 * statistics.median(errors):.2f}", spread)
            )
        if len(groups) > 1:
            top = 3.0 * statistics.median(error for group in groups.values() for error in group)
            figure = strip_figure(groups, xlabel=TITLES[key], ylabel="validation error", top=top)
            blocks.append(Plot(TITLES[key][0].upper() + TITLES[key][1:], figure))
    header = ("hyper-parameter", "value", "settings", "median error, %", "best to worst, %")
    blocks.append(Table(header, table, "Validation error", numeric=(2, 3)))
    text = (
        f"Validation error after {epoch} epochs. A dot is one setting, with one seed; the line is the median over "
        "all values of the other hyper-parameters. Dots above the axis stand at its upper end."
    )
    return Section("Error against each hyper-parameter", blocks, text)


def _best(found: Mapping[str, Any]) -> Section:
    rows = [row for row in found["rows"] if row["scores"]][:BEST]
    keys: list[str] = list(rows[0]["values"])
    body = [
        (
            *(number(row["values"][key]) for key in keys),
            f"{row['scores'][-1]['epoch']}",
            f"{100 * row['scores'][-1]['error']:.2f}",
        )
        for row in rows
    ]
    header = [TITLES.get(key) or key for key in keys] + ["epochs", "validation error, %"]
    table = Table(header, body, "One seed each", numeric=tuple(range(1, len(header))))
    text = "Neighbours in this table differ by less than one network differs from the next: see the winner's spread."
    return Section(f"The best {len(rows)}", [table], text)


def _winner(record: Record) -> Section:
    result = record.result("winner")
    label = f"{record.settings['width']} units"
    blocks: list[Any] = [
        comparison_table("Test error", ("network",), [Comparison((label,), [TABLE_1], measured(result))], unit="%")
    ]
    line = curve_line("validation error", result["curves"]) if result else None
    if line is not None:
        figure = lines_figure([line], xlabel="epoch", ylabel="error", shares=True)
        blocks.append(Plot("Learning curve of the winner", figure, "Mean over the seeds, one standard error."))
    text = "The winner of the sweep, from new starts. Table-1 has the same network with other choices."
    return Section("The winner", blocks, text)
