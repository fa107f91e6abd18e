"""Tables for README.md and docs/, made from the records in results/; nobody types a number.

    python benchmarks/tables.py          write them into the documents
    python benchmarks/tables.py --check  fail if a document says anything else

A document has a pair of comments, "<!-- table NAME -->" and "<!-- end -->"; what stands between them is made here.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))  # also for those who load this file by its path

import standards  # noqa: E402

PLACE = re.compile(r"(<!-- table (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def load(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "results" / f"{name}.json").read_text())


def score(value: dict[str, Any], form: str = ".3f", unit: float = 1.0) -> str:
    """Mean ± standard error, or the mean alone where there was one run."""
    mean = f"{value['mean'] * unit:{form}}"
    return mean if value["standard_error"] is None else f"{mean} ± {value['standard_error'] * unit:{form}}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *rows)]
    return "\n".join(lines) + "\n"


def made_by(*names: str) -> str:
    """Where the numbers come from."""
    records = [load(name) for name in names]
    commands = "; ".join(f"`{record['command']}`" for record in records)
    counts = {1: "1 thread"}
    places = (f"{r['device']}, {counts.get(r['threads'], str(r['threads']) + ' threads')}" for r in records)
    devices = "; ".join(dict.fromkeys(places))
    return f"\n{commands} ({devices}; records in `results/`)\n"


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


def step_gpu() -> str:
    found, rows = load("step_gpu")["results"], []
    for name, value in found.items():
        if isinstance(value, float):
            rows.append((name, "1", f"{value:.0f}", ""))
        else:
            prior, models = name.split(", ")
            ratio = f"{value['ratio']:.2f}" if "ratio" in value else ""
            rows.append((f"bayesprop, {prior} prior", models, f"{value['per model']:.1f}", ratio))
            if "ratio" in value:
                rows.append((f"by hand in JAX, {prior} prior", models, f"{value['by hand in JAX, per model']:.1f}", ""))
    header = (
        "784-400-400-10, batch 128, one sample",
        "models at once",
        "microseconds a step and model",
        "ratio to JAX",
    )
    return table(header, rows) + made_by("step_gpu")


def step_growth() -> str:
    rows = [
        (name, f"{line['bayesian']:.0f}", f"{line['deterministic']:.0f}", f"{line['ratio']:.2f}")
        for name, line in load("step_growth")["results"].items()
    ]
    rest = load("step_growth")["settings"]["rest"]
    header = (f"else {rest}", "Bayesian, microseconds a step", "torch's Adam in a graph", "ratio")
    return table(header, rows) + made_by("step_growth")


def same_result() -> str:
    found, rows = load("same_result")["results"], []
    for prior in ("normal", "mixture"):
        for key, words in (("own", "the GPU's own bodies"), ("plain", "the plain path")):
            line = found[f"{prior}, MNIST, {key}"]
            rows.append((f"{prior} prior, {words}", score(line["error"], ".2f", 100), score(line["nll"], ".4f")))
    settings = load("same_result")["settings"]
    header = (f"MNIST, {settings['epochs']} epochs, {settings['seeds']} seeds", "test error, %", "test NLL")
    return table(header, rows) + made_by("same_result")


def step_networks() -> str:
    rows = [
        (
            name,
            f"{value['deterministic']:.2f}",
            f"{value['bayesian']:.2f}",
            f"{value['ratio']:.2f}",
            f"{value['4 particles, each']:.2f}",
        )
        for name, value in load("step_networks")["results"].items()
    ]
    header = ("batch 128, TF32, both captured", "Adam, ms a step", "Bayesian", "ratio", "each of 4 at once")
    return table(header, rows) + made_by("step_networks")


def speed() -> str:
    """The engine in ten lines."""
    gpu, whole, networks, predicted, cpu, peak, slow = (load(name)["results"] for name in records_of("speed"))
    step = gpu["normal, 1"]["per model"]
    rows = [
        (
            "a training step, one model",
            f"{step:.0f} µs",
            f"hand-written JAX {gpu['normal, 1']['ratio'] ** -1 * step:.0f}",
        ),
        ("", "", f"NumPyro {gpu['numpyro']:.0f}"),
        ("", "", f"deterministic network under Adam, in a graph {gpu['deterministic, graph']:.0f}"),
        ("", "", ", ".join(f"{n} {gpu[n]:,.0f}" for n in ("bayesian-torch", "blitz", "torchbnn", "ivon"))),
        ("the same for 324 models at once, each", f"{gpu['normal, 324']['per model']:.1f} µs", ""),
        ("600 epochs of MNIST, everything included", f"{whole['seconds']:.0f} s", ""),
        *(
            (f"a step of {n}", f"{v['bayesian']:.2f} ms", f"deterministic, captured too {v['deterministic']:.2f}")
            for n, v in networks.items()
        ),
        (
            "prediction, 10,000 rows and 100 draws",
            f"{predicted['bayesprop']['mean'] * 1e3:.0f} ms",
            f"a loop over draws {predicted['loop']['mean'] * 1e3:.0f}",
        ),
        (
            "CPU: a training step, scale mixture",
            f"{cpu['bayesprop']['milliseconds']:.1f} ms",
            f"Adam {cpu['Adam, eager']['milliseconds']:.1f}, "
            f"hand-written JAX {cpu['by hand in JAX']['milliseconds']:.1f}",
        ),
        ("CPU: prediction", f"{slow['bayesprop']['mean']:.1f} s", f"a loop over draws {slow['loop']['mean']:.1f}"),
        (
            "peak memory of training",
            f"{peak['bayesprop, bytes a weight']:.0f} bytes a weight",
            f"Adam {peak['adam, bytes a weight']:.0f}",
        ),
    ]
    header = (
        "784-400-400-10, batch 128, one sample; NVIDIA H200 unless it says CPU",
        "bayesprop",
        "beside, in the same run",
    )
    return table(header, rows) + "\nCommands and records: [docs/performance.md](docs/performance.md)\n"


def mnist_gpu() -> str:
    record = load("mnist_gpu")
    found, epochs = record["results"], record["settings"]["epochs"]
    rows = [
        ("seconds, everything included", f"{found['seconds']:.1f}"),
        ("test error", f"{100 * found['test error']:.2f} %"),
        ("test negative log-likelihood", f"{found['test nll']:.3f}"),
    ]
    return table((f"MNIST, {epochs} epochs by `bp.fit`, defaults, one seed", ""), rows) + made_by("mnist_gpu")


def step_cpu() -> str:
    found = load("step_cpu")["results"]
    rows = [
        (name, f"{value['milliseconds']:.2f}", f"{value['ratio']:.2f}")
        for name, value in found.items()
        if isinstance(value, dict)
    ]
    header = ("784-400-400-10, batch 128, scale mixture", "ms a step", "ratio to torch's Adam, eager")
    return table(header, rows) + made_by("step_cpu")


def memory() -> str:
    record = load("memory")
    found = record["results"]
    rows = [(name, f"{found[f'{name}, bytes a weight']:.0f}") for name in ("adam", "bayesprop")]
    title = f"peak of a training, {found['weights'] / 1e6:.1f} million weights"
    return table((title, "bytes a weight"), [*rows, ("ratio", f"{found['ratio']:.2f}")]) + made_by("memory")


def _prediction(name: str, unit: float, form: str) -> str:
    record = load(name)
    found, settings = record["results"], record["settings"]
    rows = [(who, score(found[who], form, unit)) for who in ("loop", "bayesprop")]
    title = f"{settings['rows']} rows, {settings['draws']} draws"
    header = (title, "seconds" if unit == 1.0 else "milliseconds")
    return table(header, [*rows, ("ratio", f"{found['ratio']:.2f}")]) + made_by(name)


def prediction() -> str:
    return _prediction("prediction", 1.0, ".2f")


def prediction_gpu() -> str:
    return _prediction("prediction_gpu", 1e3, ".1f")


TABLES: dict[str, Callable[[], str]] = {
    "digits": digits,
    "uci": uci,
    "mnist": mnist,
    "defaults": defaults,
    "mnist_choices": mnist_choices,
    "digits_choices": digits_choices,
    "sweep_rungs": sweep_rungs,
    "sweep_smoke": sweep_smoke,
    "memory": memory,
    "mnist_gpu": mnist_gpu,
    "prediction": prediction,
    "prediction_gpu": prediction_gpu,
    "same_result": same_result,
    "step_cpu": step_cpu,
    "speed": speed,
    "step_gpu": step_gpu,
    "step_growth": step_growth,
    "step_networks": step_networks,
}


for _name, _table in standards.TABLES.items():
    TABLES[_name] = lambda name=_name, made=_table: made(load(name), table) + made_by(name)


# Tables that are made of other records than the one of their name.
SOURCES: dict[str, tuple[str, ...]] = {
    "speed": ("step_gpu", "mnist_gpu", "step_networks", "prediction_gpu", "step_cpu", "memory", "prediction"),
}


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
