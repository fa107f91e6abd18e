"""Tables for README.md and docs/, made from the records in results/; nobody types a number.

    python benchmarks/tables.py          write them into the documents
    python benchmarks/tables.py --check  fail if a document says anything else

A document has a pair of comments, "<!-- table NAME -->" and "<!-- end -->"; what stands between them is made here.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # also for those who load this file by its path

import speed
import standards
from cells import ROOT, load, made_by, score, table

PLACE = re.compile(r"(<!-- table (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def digits() -> str:
    record = load("digits")
    found, prior = record["results"], record["settings"]["prior"]
    rows = [
        ("test error", score(found["error"], ".2f", 100) + " %"),
        ("negative log-likelihood", score(found["nll"])),
        ("expected calibration error", score(found["calibration_error"])),
        ("AUROC of epistemic uncertainty, classes 8 and 9 never seen", score(found["foreign_auroc"])),
    ]
    title = f"scikit-learn's digits, prior {prior}, else defaults, {len(found['error']['values'])} seeds"
    return table((title, "mean ± standard error"), rows) + made_by("digits")


def uci() -> str:
    found, rows = load("uci")["results"], []
    for name, ours in found.items():
        rows.append(
            (
                name,
                "**bayesprop**",
                score(ours["rmse"]),
                score(ours["log_likelihood"]),
                score(ours["coverage_90"], ".2f"),
            )
        )
        for source, (rmse, log_likelihood) in ours["published"].items():
            rows.append(("", source, *(f"{mean} ± {spread}" for mean, spread in (rmse, log_likelihood)), ""))
    header = (
        "UCI, defaults, 20 published splits",
        "Bayes by Backprop of",
        "RMSE",
        "log-likelihood",
        "coverage of 90 %",
    )
    return table(header, rows) + made_by("uci")


def mnist() -> str:
    found = load("mnist")["results"]
    rows = [
        (
            "Bayes by Backprop",
            score(found["error"], ".2f", 100),
            score(found["nll"], ".4f"),
            score(found["seconds_per_epoch"], ".2f"),
        ),
        (
            "the same network, torch.optim.Adam",
            score(found["deterministic_error"], ".2f", 100),
            score(found["deterministic_nll"], ".4f"),
            score(found["deterministic_seconds_per_epoch"], ".2f"),
        ),
        ("ratio", "", "", score(found["ratio"], ".2f")),
    ]
    header = ("MNIST, 784-400-400-10, 10 epochs", "test error, %", "negative log-likelihood", "seconds an epoch")
    return table(header, rows) + made_by("mnist")


def defaults() -> str:
    found = load("defaults")["results"]
    sets = list(next(iter(found.values())))
    rows = [
        (variant, *(f"{s['rmse']['mean']:.3f} / {s['log_likelihood']['mean']:.3f}" for s in scores.values()))
        for variant, scores in found.items()
    ]
    return table(("what is changed", *(f"{name}: RMSE / log-likelihood" for name in sets)), rows) + made_by("defaults")


def mnist_choices() -> str:
    found = load("mnist_choices")["results"]
    rows = [
        (name, f"{100 * scores['validation_error']:.2f}", f"{scores['validation_nll']:.4f}")
        for name, scores in found.items()
    ]
    header = ("what is changed", "validation error, %", "validation negative log-likelihood")
    return table(header, rows) + made_by("mnist_choices")


def digits_choices() -> str:
    found = load("digits_choices")["results"]
    rows = [
        (name, score(scores["error"], ".2f", 100), score(scores["nll"]), score(scores["calibration_error"]))
        for name, scores in found.items()
    ]
    header = ("prior", "validation error, %", "validation negative log-likelihood", "expected calibration error")
    return table(header, rows) + made_by("digits_choices")


def sweep_rungs() -> str:
    found = load("sweep_rungs")["results"]
    names = list(next(iter(found.values()))["regret"])
    rows = []
    for key, entry in found.items():
        rungs, keep = key.split("; keep ")
        regrets = (", ".join(f"{value:.3f}" for value in entry["regret"][name]) for name in names)
        rows.append((rungs, keep, f"{entry['cost']:.2f}", *regrets))
    header = ("rungs", "keep", "cost", *(f"regret of three sweeps, {name}" for name in names))
    return table(header, rows) + made_by("sweep_rungs")


def sweep_smoke() -> str:
    found = load("sweep_smoke")["results"]
    seconds = {name: sorted(values)[len(values) // 2] for name, values in found["seconds"].items()}
    rows = [
        ("`fit`, one after the other", f"{seconds['one_after_the_other']:.1f}", "1"),
        ("`sweep`, all of them to the end", f"{seconds['at_once']:.1f}", f"{found['ratio']:.2f}"),
        ("`sweep`, default rungs", f"{seconds['with_halving']:.1f}", f"{found['ratio_with_halving']:.2f}"),
    ]
    header = (f"{found['settings']} settings, digits, 64-50-10, 20 epochs", "seconds", "ratio")
    return table(header, rows) + made_by("sweep_smoke")


TABLES: dict[str, Callable[[], str]] = {
    "digits": digits,
    "uci": uci,
    "mnist": mnist,
    "defaults": defaults,
    "mnist_choices": mnist_choices,
    "digits_choices": digits_choices,
    "sweep_rungs": sweep_rungs,
    "sweep_smoke": sweep_smoke,
    **speed.TABLES,
    **standards.TABLES,
}

# Tables that are made of other records than the one of their name.
SOURCES: dict[str, tuple[str, ...]] = {"speed": speed.SPEED}


def records_of(name: str) -> tuple[str, ...]:
    """The records that a table is made of."""
    return SOURCES.get(name, (name,))


def renewed(text: str) -> str:
    """A document with its tables made anew."""
    return PLACE.sub(lambda match: match[1] + TABLES[match[2]]() + match[4], text)


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    wrong = []
    for path in documents():
        text = path.read_text(encoding="utf-8")
        new = renewed(text)
        if new != text and check:
            wrong.append(str(path.relative_to(ROOT)))
        elif new != text:
            path.write_text(new, encoding="utf-8")
    if wrong:
        sys.exit(
            f"{', '.join(wrong)}: numbers that are not those of the records; python benchmarks/tables.py renews them"
        )


if __name__ == "__main__":
    main()
