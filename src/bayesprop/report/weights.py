"""Sections about the weights: what is known of each of them, how they are distributed, and what pruning costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from bayesprop import diagnostics
from bayesprop.posteriors import Posterior
from bayesprop.report.blocks import Block, Plot, Section, Table
from bayesprop.report.figures import signal_to_noise_histogram
from bayesprop.report.shared import percent_text
from bayesprop.report.weight_figures import histogram, pruning_figure, weight_densities

__all__ = ["Pruned", "pruning_section", "signal_to_noise", "weights_section"]

BLOCKS = 30  # rows of the table of weights; a network with more of them is shown by its noisiest
BINS = 80
LEAST = 100  # weights, below which a density says nothing
NAMES = {"signal_to_noise": "signal to noise", "magnitude": "magnitude"}


class Pruned(Protocol):
    """What `decisions.pruning_curve` says of one pruned posterior."""

    @property
    def by(self) -> str: ...
    @property
    def share(self) -> float: ...
    @property
    def left(self) -> int: ...
    @property
    def at_means(self) -> float: ...
    @property
    def by_draws(self) -> float: ...


def signal_to_noise(posterior: Posterior) -> dict[str, Tensor]:
    """|mean| / std of the random weights by name, as vectors; weights without a spread are left out."""
    if "moments" not in posterior.capabilities:
        return {}
    found = {}
    for name, ratio in diagnostics.signal_to_noise(posterior).items():
        spread = posterior.std(name) > 0
        if bool(spread.any()):
            found[name] = ratio[spread].double().cpu()
    return found


def weights_section(posterior: Posterior) -> Section | None:
    """Signal to noise of the weights, all together and by parameter, and their densities; None if there is
    nothing to show."""
    if "moments" not in posterior.capabilities:
        return None
    ratios = signal_to_noise(posterior)
    blocks: list[Block] = [_noise_plot(ratios)] if ratios else []
    if posterior.model.layout.random >= LEAST:
        blocks.append(_density_plot(posterior, drawn=bool(ratios)))
    if ratios:
        blocks.append(_noise_table(posterior, ratios))
    return Section("What the weights know", blocks) if blocks else None


def _noise_plot(ratios: dict[str, Tensor]) -> Plot:
    everything = torch.cat(list(ratios.values()))
    below = (everything < 1).double().mean().item()
    return Plot(
        "Signal to noise of the weights",
        signal_to_noise_histogram(everything),
        f"|mean| / standard deviation of {everything.numel():,} weights. To the left of the dashed line "
        f"({percent_text(below, 0)} of them) a weight could as well be zero: such weights can often be pruned.",
    )


def _noise_table(posterior: Posterior, ratios: dict[str, Tensor]) -> Table:
    rows = [
        (
            name,
            "×".join(map(str, posterior.model.layout.block(name).shape)) or "1",
            f"{ratio.numel():,}",
            f"{ratio.median().item():.2g}",
            percent_text((ratio < 1).double().mean().item(), 0),
        )
        for name, ratio in sorted(ratios.items(), key=lambda item: item[1].median().item())[:BLOCKS]
    ]
    left_out = f" The {BLOCKS} noisiest of {len(ratios)} parameters." if len(ratios) > BLOCKS else ""
    if not left_out:
        order = list(ratios)
        rows.sort(key=lambda row: order.index(row[0]))
    return Table(
        ("parameter", "shape", "weights", "median", "below\N{NO-BREAK SPACE}1"),
        rows,
        title="By parameter",
        caption=f"Median of the signal to noise, and the share of weights where it is below 1.{left_out}",
        numeric=(2, 3, 4),
        beside=True,
    )


def _density_plot(posterior: Posterior, *, drawn: bool) -> Plot:
    """Means of all random weights, and one draw of them where they have a spread."""
    blocks = posterior.model.layout.of_kind("random")
    means = torch.cat([posterior.mean(block.name).double().reshape(-1) for block in blocks]).cpu().numpy()
    groups = {"means": means}
    if drawn:
        named = posterior.sample(1)
        groups["one draw"] = torch.cat([named[b.name].double().reshape(-1) for b in blocks]).cpu().numpy()
    # The middle 99.8 %: a few large weights would leave no room for the others.
    reach = max(float(np.quantile(np.abs(values), 0.998)) for values in groups.values()) or 1.0
    edges = np.linspace(-reach, reach, BINS + 1)
    caption = (
        f"Density of {means.size:,} weights. A peak at zero beside a wide foot is what a network that can be pruned"
    )
    return Plot(
        "Weights",
        weight_densities({name: histogram(values, edges) for name, values in groups.items()}),
        f"{caption} looks like. Weights beyond the axis are counted at its ends.",
    )


def pruning_section(scores: Sequence[Pruned], *, score: str = "error", shares: bool = True) -> Section:
    """What `decisions.pruning_curve` found, as a figure and as a table; `score` is what it measured."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for found in scores:
        name = NAMES.get(found.by, found.by)
        curves.setdefault(f"{name}, means", []).append((found.share, found.at_means))
        curves.setdefault(f"{name}, draws", []).append((found.share, found.by_draws))

    def text(value: float) -> str:
        return percent_text(value, 2) if shares else f"{value:.4g}"

    rows = [
        (NAMES.get(s.by, s.by), percent_text(s.share, 0), f"{s.left:,}", text(s.at_means), text(s.by_draws))
        for s in scores
    ]
    plot = Plot(
        "Pruning",
        pruning_figure(curves, score=score, shares=shares),
        "Weights with the smallest score are set to zero, their uncertainty with them, and nothing is trained again.",
    )
    header = ("order", "removed", "weights left", f"{score} of the means", f"{score} of draws")
    return Section("What can be pruned", [plot, Table(header, rows, numeric=(1, 2, 3, 4), beside=True)])
