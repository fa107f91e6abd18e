"""The page: which choices change the error by more than one network differs from the next."""

from __future__ import annotations

import math

from bayesprop.experiments.choices.published import DIFFERENCES, ERRORS, NOISE
from bayesprop.experiments.choices.settings import VARIANTS
from bayesprop.experiments.plots import curve_line, lines_figure
from bayesprop.experiments.record import Record
from bayesprop.experiments.rows import measured
from bayesprop.experiments.values import MARKS, Comparison, Measured, Published, comparison_table
from bayesprop.report import Plot, Section, Table

__all__ = ["difference", "page"]


def page(record: Record) -> list[Section]:
    """All sections."""
    found = [_verdicts(record), _errors(record), _curves(record)]
    return [section for section in found if section is not None]


def difference(ours: Measured, base: Measured) -> tuple[float, float | None]:
    """Difference of two means and its standard error, None where one of them has a single seed."""
    errors = (ours.standard_error, base.standard_error)
    spread = None if errors[0] is None or errors[1] is None else math.hypot(errors[0], errors[1])
    return ours.mean - base.mean, spread


def _verdicts(record: Record) -> Section | None:
    base = measured(record.result("base"))
    if base is None:
        return None
    rows = []
    for name in record.settings["variants"]:
        ours = measured(record.result(name))
        if ours is None or name == "base":
            continue
        question, answer, _ = VARIANTS[name]
        gap, spread = difference(ours, base)
        shown = f"{gap:+.2f}" + ("" if spread is None else f" ± {spread:.2f}")
        verdict = "one seed" if spread is None else "yes" if abs(gap) > 2.0 * spread else "no"
        theirs = DIFFERENCES.get(name)
        words = f"{theirs.note or f'{theirs.value:+.2f}'} [{theirs.mark}]" if theirs else "–"
        shown, words = (text.replace("-", "−") for text in (shown, words))
        rows.append(
            (question, answer, ours.shown(), str(ours.seeds), shown, words, verdict, _agrees(theirs, gap, verdict))
        )
    header = (
        "choice",
        "value",
        "error, %",
        "seeds",
        "difference to the base, points",
        "published",
        "beyond noise",
        "as published",
    )
    sources = dict.fromkeys(value.source for value in DIFFERENCES.values())
    caption = (
        f"The base has {base.shown()} %, {base.seeds} seeds. Beyond noise: more than two standard errors of the "
        f"difference. Published: {'; '.join(sources)}. [S] {MARKS['S']}."
    )
    settings = record.settings
    text = (
        f"Source 000 changed one choice at a time, with one network each, and saw networks differ by {NOISE.value:g} "
        f"points when nothing was changed. Here each has its seeds: {settings['width']} units, {settings['epochs']} "
        f"epochs, minibatches of {settings['batch_size']}, {settings['draws']} draws predict."
    )
    table = Table(header, rows, "One choice at a time", caption, numeric=(2, 3, 4))
    return Section("Which arbitrary choices matter", [table], text)


def _agrees(theirs: Published | None, gap: float, verdict: str) -> str:
    """Whether we find what the source found: the same sign, beyond noise."""
    if theirs is None or verdict == "one seed":
        return ""
    if gap * theirs.value < 0.0:
        return "no: the other way"
    return "yes" if verdict == "yes" else "no: within noise"


def _errors(record: Record) -> Section:
    lines = [
        Comparison((f"{VARIANTS[name][0]}, {VARIANTS[name][1]}",), [value], measured(record.result(name)))
        for name, value in ERRORS.items()
    ]
    table = comparison_table("Test error", ("network",), lines, unit="%")
    text = (
        "The source chose the best epoch on validation rows and we take the last one; it does not say where its means "
        "and its rho start."
    )
    return Section("Beside source 000", [table], text)


def _curves(record: Record) -> Section | None:
    base = record.result("base")
    blocks = []
    for question, names in _questions(record).items():
        results = {"the base": base} | {VARIANTS[name][1]: record.result(name) for name in names}
        lines = [curve_line(label, result["curves"]) for label, result in results.items() if result is not None]
        drawn = [line for line in lines if line is not None]
        if len(drawn) > 1:
            top = min(max(max(line.y) for line in drawn), 2.5 * max(line.y[-1] for line in drawn))
            figure = lines_figure(drawn, xlabel="epoch", ylabel="validation error", shares=True, top=top)
            blocks.append(Plot(question[0].upper() + question[1:], figure))
    text = "Means over the seeds; bands are one standard error."
    return Section("Learning curves", blocks, text) if blocks else None


def _questions(record: Record) -> dict[str, list[str]]:
    """Variants by the question that they answer."""
    found: dict[str, list[str]] = {}
    for name in record.settings["variants"]:
        if name != "base":
            found.setdefault(VARIANTS[name][0], []).append(name)
    return found
