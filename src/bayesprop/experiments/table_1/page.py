"""The page: our table beside the published one, learning curves, what tempering costs, what was chosen."""

from __future__ import annotations

from typing import Any

from bayesprop.experiments.plots import curve_line, lines_figure
from bayesprop.experiments.record import Record
from bayesprop.experiments.rows import measured, number
from bayesprop.experiments.table_1.parts import ROWS
from bayesprop.experiments.table_1.published import FIGURE, OTHERS, TABLE
from bayesprop.experiments.values import Comparison, comparison_table, difference_table
from bayesprop.report import Headline, Number, Plot, Section, Table

__all__ = ["page"]

TEST_ROWS = 10_000


def page(record: Record) -> list[Section]:
    """All sections for which there are parts."""
    made = [
        _table(record),
        _differences(record),
        _together(record),
        _curves(record),
        _tempering(record),
        _choices(record),
    ]
    return [section for section in made if section is not None]


def _cells(record: Record) -> list[tuple[str, int, dict[str, Any] | None]]:
    """(row, units, result or None) of every cell that the settings ask for."""
    found = []
    for row in ROWS:
        widths = record.settings["full_widths" if row.endswith("-full") else "widths"]
        found += [(row, width, record.result(f"{row}-{width}")) for width in widths]
    return found


def _table(record: Record) -> Section:
    lines = []
    for row, width, result in _cells(record):
        key = (row.removesuffix("-full"), width)
        published = [TABLE[key], *OTHERS.get(key, ())] if key in TABLE else []
        lines.append(Comparison((ROWS[row], f"{width}"), published, measured(result)))
    caption = "Difference: ours less the first published value, in points."
    table = comparison_table("Test error", ("method", "units"), lines, unit="%", caption=caption)
    text = (
        f"{record.settings['epochs']} epochs, minibatches of {record.settings['batch_size']}, pixels "
        f"{record.settings['pixels']}. Rates, priors and temperatures were chosen on validation rows; test rows were "
        "looked at once, after the training. Published values are single runs, ours are means over seeds."
    )
    return Section("MNIST test error", [*_headline(record), table], text)


def _headline(record: Record) -> list[Headline]:
    """The best row of each kind."""
    numbers = []
    kinds = {"Bayes by Backprop": ("gaussian", "mixture"), "with the full KL": ("gaussian-full", "mixture-full")}
    for label, rows in {**kinds, "dropout": ("dropout",), "SGD": ("sgd",)}.items():
        found = [(measured(result), row, width) for row, width, result in _cells(record) if row in rows]
        known = [(ours.mean, ours, row, width) for ours, row, width in found if ours is not None]
        if known:
            _, ours, row, width = min(known, key=lambda entry: entry[0])
            numbers.append(Number(f"best of {label}", f"{ours.mean:.2f} %", f"{ROWS[row]}, {width} units"))
    return [Headline(numbers)] if numbers else []


def _differences(record: Record) -> Section | None:
    """Where we are elsewhere than the paper by more than chance explains, and why that may be."""
    lines = [
        Comparison((ROWS[row], f"{width}"), [TABLE[row, width]], measured(result))
        for row, width, result in _cells(record)
        if (row, width) in TABLE
    ]
    table, compared = difference_table(("method", "units"), lines, rows=TEST_ROWS)
    if not compared:
        return None
    why = (
        "What the paper does not state, and so may differ: the start of the means and of rho, the number of draws that "
        "predict, the prior of the Gaussian rows, the point of its grid that was chosen. We train the Bayesian rows by "
        "Adam with a rate that falls to zero, the paper by plain gradient steps with a constant one; the rows that are "
        "called tempered weigh the KL by less than one."
    )
    said = "" if table else f"None of {compared} cells differs from the paper's by more than two deviations. "
    return Section("Where we differ", [table] if table else [], said + why)


def _together(record: Record) -> Section | None:
    """All networks of a cell as one mixture: a single number for each cell, without a spread."""
    rows = []
    for row, width, result in _cells(record):
        if result is not None and "together_error" in result["test"]:
            one, test = measured(result), result["test"]
            assert one is not None
            nll = measured(result, "nll")
            assert nll is not None
            shown = (
                one.shown(),
                f"{100.0 * test['together_error'][0]:.2f}",
                nll.shown(4),
                f"{test['together_nll'][0]:.4f}",
            )
            rows.append((ROWS[row], f"{width}", f"{one.seeds}", *shown))
    if not rows:
        return None
    header = ("method", "units", "networks", "error of one, %", "of all, %", "NLL of one", "of all")
    text = "The networks of a cell as one equally weighted mixture, which costs what its members cost. One number each."
    table = Table(header, rows, "Test rows", numeric=tuple(range(1, 7)))
    return Section("All networks of a cell together", [table], text)


def _curves(record: Record) -> Section | None:
    """Figure 2, with the rows for choices in the place of the test rows."""
    blocks = []
    for width in reversed(record.settings["widths"]):
        lines = []
        for row, title in ROWS.items():
            result = record.result(f"{row}-{width}")
            published = [(epochs, value.value / 100.0) for epochs, value in FIGURE.get(row, {}).items()]
            known: dict[str, Any] = (
                {"published": published} if width == 1200 and record.settings["epochs"] == 600 else {}
            )
            line = curve_line(_short(title), result["curves"], **known) if result else None
            lines += [line] if line is not None else []
        if lines:
            caption = "Mean over the seeds, with a band of one standard error."
            if any(line.published for line in lines):
                caption += " Bars: figure 2 of the paper, mean test error over these epochs [F]."
            top = min(max(max(line.y) for line in lines), 2.5 * max(line.y[-1] for line in lines))
            figure = lines_figure(lines, xlabel="epoch", ylabel="validation error", shares=True, top=top)
            blocks.append(Plot(f"{width} units", figure, caption))
    text = (
        "Errors of the validation rows, which were not trained on. The paper's figure 2 shows the test rows, at which "
        "we look once, at the end."
    )
    return Section("Learning curves", blocks, text) if blocks else None


def _short(title: str) -> str:
    return title.replace("Bayes by Backprop, ", "").replace(" prior", "").replace("scale mixture", "mixture")


def _tempering(record: Record) -> Section | None:
    """The honest posterior and the tempered one apart: what tempering costs and brings."""
    rows = []
    for row, width, result in _cells(record):
        if result is None or "temperature" not in result["chosen"]:
            continue
        error, means = measured(result), measured(result, of="test_of_the_means")
        nll, calibration = measured(result, "nll"), measured(result, "calibration_error")
        assert error is not None
        assert means is not None
        assert nll is not None
        assert calibration is not None
        kls = [curve[-1]["kl"] for curve in result["curves"] if curve and "kl" in curve[-1]]
        bits = f"{sum(kls) / len(kls):,.0f}" if kls else "–"
        weight = f"{result['chosen']['temperature']:g}"
        values = (error.shown(), means.shown(), nll.shown(4), calibration.shown(), bits, str(error.seeds))
        rows.append((_short(ROWS[row]), f"{width}", weight, *values))
    if not rows:
        return None
    header = (
        "prior",
        "units",
        "KL weight",
        "error, %",
        "of the means, %",
        "NLL",
        "calibration error, %",
        "KL, nats",
        "",
    )
    table = Table((*header[:-1], "seeds"), rows, "Test rows", numeric=tuple(range(1, 9)))
    text = (
        "The full KL is the ELBO: its posterior is the Gaussian nearest to what Bayes' rule gives, and most weights "
        "stay near the prior. A smaller weight counts the data as if there were more of them: the posterior is further "
        "from the prior and narrower than Bayes' rule asks for, and what is maximised bounds nothing any more."
    )
    return Section("The full KL and less of it", [table, *_gains(record)], text)


def _gains(record: Record) -> list[Table]:
    """Tempered less full, where both were run."""
    rows = []
    results = {(row, width): result for row, width, result in _cells(record) if result is not None}
    for (row, width), full in results.items():
        tempered = results.get((row.removesuffix("-full"), width))
        if not row.endswith("-full") or tempered is None:
            continue
        changes = []
        for key, digits in (("error", 2), ("nll", 4), ("calibration_error", 2)):
            ours, theirs = measured(tempered, key), measured(full, key)
            assert ours is not None
            assert theirs is not None
            spread = ((ours.standard_error or 0.0) ** 2 + (theirs.standard_error or 0.0) ** 2) ** 0.5
            changes.append(f"{ours.mean - theirs.mean:+.{digits}f} ± {spread:.{digits}f}".replace("-", "−"))
        rows.append((_short(ROWS[row]).split(",")[0], f"{width}", *changes))
    if not rows:
        return []
    header = ("prior", "units", "error, points", "NLL, nats", "calibration error, points")
    return [Table(header, rows, "What tempering changes: tempered less full", numeric=(1, 2, 3, 4))]


def _choices(record: Record) -> Section | None:
    """Every candidate with its validation error."""
    rows = []
    for row, title in ROWS.items():
        result = record.result(f"choose-{row}")
        if result is None:
            continue
        for candidate, error in zip(result["candidates"], result["errors"], strict=True):
            mark = "chosen" if candidate == result["chosen"] else ""
            shown = "diverged" if error is None else f"{100.0 * error:.2f}"
            rows.append((_short(title), ", ".join(f"{k} {number(v)}" for k, v in candidate.items()), shown, mark))
    if not rows:
        return None
    settings = record.settings
    epochs = f"{settings['choice_epochs']} epochs (SGD and dropout {settings['point_choice_epochs']}"
    long = [_short(ROWS[row]) for row in settings.get("long_choices", ())]
    epochs += f"; {', '.join(long)} {settings['epochs']} with {settings['long_choice_seeds']} seeds)" if long else ")"
    seeds = f"{settings['choice_seeds']} seeds each"
    text = f"{settings['widths'][0]} units, {epochs}, {seeds}; the lowest error is taken, for all widths."
    header = ("row", "candidate", "validation error, %", "")
    return Section("What was chosen", [Table(header, rows, numeric=(2,))], text)
