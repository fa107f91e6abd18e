"""Which order of removal wins, under which prior and which start: the part of the page that reads the grid."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bayesprop.experiments.pruning.parts import ORDERS
from bayesprop.experiments.record import Record
from bayesprop.experiments.values import Measured
from bayesprop.report import Section, Table

__all__ = ["JUDGED", "NAMES", "winners"]

NAMES = {"signal_to_noise": "signal to noise", "magnitude": "magnitude"}
JUDGED = (0.5, 0.75, 0.95, 0.98)  # shares at which the orders are compared


def winners(record: Record) -> Section | None:
    """One line for each setting of the grid: both orders at some shares, and which one wins beyond noise."""
    shares = list(record.settings["shares"])
    rows = []
    won: dict[tuple[str, str], dict[str, int]] = {}  # by prior and weight of the KL
    for name, result in record.results("grid-"):
        _, prior, start = name.split("-", 2)
        for key, curves in _by_setting(result).items():
            cells = []
            for share in [share for share in JUDGED if share in shares]:
                place = shares.index(share)
                pair = [[100.0 * c[order]["means"][place] for c in curves] for order in ORDERS]
                cells.append(" / ".join(f"{statistics.fmean(values):.2f}" for values in pair))
            winner = _winner(curves, shares)
            count = won.setdefault((_prior_text(prior, key), f"{key[-1]:g}"), dict.fromkeys((*ORDERS, ""), 0))
            count[winner] += 1
            whole = Measured.of([c[ORDERS[0]]["means"][0] for c in curves], 100.0)
            rows.append(
                (_prior_text(prior, key), start, *map(str, key[-2:]), whole.shown(), *cells, NAMES.get(winner, "–"))
            )
    if not rows:
        return None
    judged = [f"{100 * share:g} %" for share in JUDGED if share in shares]
    header = ("prior", "means start", "rho", "KL weight", "0 %", *judged, "wins")
    seeds, width = record.settings["grid_seeds"], record.settings["grid_width"]
    table = Table(
        header,
        rows,
        "Test error in %, signal to noise / magnitude",
        f"{width} units, {record.settings['grid_epochs']} epochs, {seeds} seeds. An order wins a line if its error, "
        "summed over the shares, is lower for every seed and by more than 0.2 points in the mean.",
        tuple(range(2, 5 + len(judged))),
    )
    total = {order: sum(count[order] for count in won.values()) for order in ORDERS}
    text = (
        f"Signal to noise wins {total['signal_to_noise']} of {len(rows)} settings, magnitude {total['magnitude']}; the "
        "others are even. Source 000 found that magnitude wins, for one prior and one start."
    )
    by_prior = Table(
        ("prior", "KL weight", "signal to noise wins", "magnitude wins", "even"),
        [(*key, *(str(count[order]) for order in (*ORDERS, ""))) for key, count in sorted(won.items())],
        "Settings by prior and weight of the KL",
        numeric=(1, 2, 3, 4),
    )
    return Section("Which order wins when", [by_prior, table], text)


def _by_setting(result: Mapping[str, Any]) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """Curves of all seeds by (numbers of the prior, rho, temperature); members that diverged are left out."""
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for member, curve in zip(result["members"], result["curves"], strict=True):
        numbers = tuple(value for key, value in member.items() if key.startswith("prior."))
        if curve is not None:
            found.setdefault((*numbers, member["initial_rho"], member["temperature"]), []).append(curve)
    return found


def _winner(curves: Sequence[Mapping[str, Any]], shares: Sequence[float]) -> str:
    places = [shares.index(share) for share in JUDGED if share in shares]
    differences = [
        100.0 * sum(c["magnitude"]["means"][i] - c["signal_to_noise"]["means"][i] for i in places) for c in curves
    ]
    if all(d > 0 for d in differences) and statistics.fmean(differences) > 0.2:
        return "signal_to_noise"
    if all(d < 0 for d in differences) and statistics.fmean(differences) < -0.2:
        return "magnitude"
    return ""


def _prior_text(prior: str, key: Sequence[Any]) -> str:
    numbers = ", ".join(f"{value:.2g}" for value in key[:-2])
    return f"{prior} {numbers}"
