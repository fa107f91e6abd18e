"""Tables of the records that hold methods against a standard: hmc_numpyro, two_moons and uci_gap; see tables.py."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

Table = Callable[[Sequence[str], Sequence[Sequence[str]]], str]


def hmc_numpyro(record: dict[str, Any], table: Table) -> str:
    found = record["results"]
    both = {"bayesprop HMC": found["runs"], f"NumPyro {found['numpyro'][0]['numpyro']} NUTS": found["numpyro"]}
    measures = {
        "seconds, all": ("seconds", ".0f"),
        "R-hat, largest": ("r_hat_max", ".4f"),
        "effective samples, least": ("ess_min", ",.0f"),
        "least a second": ("ess_min_per_second", ".1f"),
        "median a second": ("ess_median_per_second", ".1f"),
        "test NLL": ("test_nll", ".4f"),
    }
    rows = [
        (name, *(" / ".join(f"{run[key]:{form}}" for run in runs) for key, form in measures.values()))
        for name, runs in both.items()
    ]
    return table((f"{len(found['runs'])} runs of 4 chains", *measures), rows)


def two_moons(record: dict[str, Any], table: Table) -> str:
    found, rows, refused = record["results"], [], []
    for name, row in found.items():
        runs = list(row["runs"].values())
        if "refused" in row:
            refused.append((name, row["refused"]))
        elif runs:
            distances = [run["total_variation"] for run in runs]
            means = [statistics.fmean(run[key] for run in runs) for key in ("agreement", "test_nll", "cpu_seconds")]
            rows.append((statistics.fmean(distances), name, max(distances), len(runs), runs[0]["steps"], *means))
    header = (
        "method",
        "total variation",
        "worst seed",
        "seeds",
        "steps",
        "same class",
        "test NLL",
        "seconds of a core",
    )
    cells = [
        (n, f"{tv:.4f}", f"{worst:.4f}", str(count), f"{steps:,}", f"{100 * same:.1f} %", f"{nll:.4f}", f"{cpu:.0f}")
        for tv, n, worst, count, steps, same, nll, cpu in sorted(rows)
    ]
    told = "".join(f"\n{name} is not in the table: {reason}.\n" for name, reason in refused)
    return table(header, cells) + told


def uci_gap(record: dict[str, Any], table: Table) -> str:
    found, rows = record["results"], []
    sets = list(dict.fromkeys(name for sets in found.values() for name in sets))
    for method, by_set in found.items():
        cells = []
        for name in sets:
            for kind in ("random", "gap"):
                values = [run["log_likelihood"] for part, run in by_set.get(name, {}).items() if part.startswith(kind)]
                cells.append(f"{statistics.fmean(values):.2f}" if values else "")
        rows.append((method, *cells))
    header = ("log-likelihood", *(f"{name}, {kind}" for name in sets for kind in ("random", "gap")))
    return table(header, rows)
