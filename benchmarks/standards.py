"""Tables of methods against a standard, and against one another; tables.py puts them into the documents."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from cells import load, made_by, table

__all__ = ["TABLES"]


def hmc_numpyro() -> str:
    found = load("hmc_numpyro")["results"]
    both = {"bayesprop HMC": found["runs"], f"NumPyro {found['numpyro'][0]['numpyro']} NUTS": found["numpyro"]}
    measures = {
        "seconds, all": ("seconds", ".0f"),
        "R-hat, largest": ("r_hat_max", ".4f"),
        "effective samples, least": ("ess_min", ",.0f"),
        "least a second": ("ess_min_per_second", ".1f"),
        "median a second": ("ess_median_per_second", ".1f"),
        "least a second of a core": ("ess_min_per_cpu_second", ".0f"),
        "median": ("ess_median_per_cpu_second", ".0f"),
        "test NLL": ("test_nll", ".4f"),
    }
    rows = [
        (name, *(" / ".join(f"{run[key]:{form}}" for run in runs) for key, form in measures.values()))
        for name, runs in both.items()
    ]
    return table((f"{len(found['runs'])} runs of 4 chains", *measures), rows) + made_by("hmc_numpyro")


def two_moons() -> str:
    found, rows, refused = load("two_moons")["results"], [], []
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
    return table(header, cells) + told + made_by("two_moons")


def uci_gap() -> str:
    found, rows = load("uci_gap")["results"], []
    sets = list(dict.fromkeys(name for sets in found.values() for name in sets))
    for method, by_set in found.items():
        cells = []
        for name in sets:
            for kind in ("random", "gap"):
                values = [run["log_likelihood"] for part, run in by_set.get(name, {}).items() if part.startswith(kind)]
                cells.append(f"{statistics.fmean(values):.2f}" if values else "")
        rows.append((method, *cells))
    header = ("log-likelihood", *(f"{name}, {kind}" for name in sets for kind in ("random", "gap")))
    return table(header, rows) + made_by("uci_gap")


def laplace_forms() -> str:
    """Error and negative log-likelihood of each form, through the tangent and through the network."""
    found, rows = load("laplace_forms")["results"], []
    for name, key, form in (("digits", "error", ".1%"), ("concrete", "rmse", ".2f")):
        for method, row in found[name].items():
            pairs = [row, row] if method == "MAP" else [row["tangent"], row["network"]]
            rows.append((name, method, *(f"{pair[key]:{form}}, {pair['nll']:.3f}" for pair in pairs)))
    return table(("data", "form", "tangent", "network itself"), rows) + made_by("laplace_forms")


def method_cost() -> str:
    found = load("method_cost")["results"]
    names = list(next(iter(found.values())))
    rows = []
    for name in names:
        costs = [cells[name] for cells in found.values()]
        steps = (f"{cost['step']:.2f}" for cost in costs)
        predictions = (f"{cost['prediction']:.0f}" for cost in costs)
        rows.append((name, *steps, *predictions, f"{costs[-1]['memory']:.1f}"))
    header = (
        "relative to torch.optim.Adam",
        *(f"step, {n}" for n in found),
        *(f"prediction, {n}" for n in found),
        "memory",
    )
    return table(header, rows) + made_by("method_cost")


TABLES: dict[str, Callable[[], str]] = {
    "hmc_numpyro": hmc_numpyro,
    "laplace_forms": laplace_forms,
    "method_cost": method_cost,
    "two_moons": two_moons,
    "uci_gap": uci_gap,
}
