"""Sections that every page has: how the training went, what the weights know, and how to make the run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bayesprop.posteriors import Posterior
from bayesprop.report.blocks import Block, Plot, Section, Table
from bayesprop.report.figures import learning_curve, signal_to_noise_histogram, validation_curve
from bayesprop.report.provenance import run_table

__all__ = ["percent_text", "provenance_section", "signal_to_noise", "training_section", "weights_section"]

BLOCKS = 30  # rows of the table of weights; a network with more of them is shown by its noisiest


def percent_text(share: float, digits: int = 1) -> str:
    """0.984 as "98.4 %", in one piece."""
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def training_section(posterior: Posterior) -> Section | None:
    """Learning curve, and validation scores if there are any; None if the posterior has no history."""
    history = [entry for entry in posterior.context.history if "log_likelihood" in entry]
    if not history:
        return None
    blocks: list[Block] = [
        Plot(
            "Learning curve",
            learning_curve(history),
            f"−ELBO = data misfit + KL, in nats for all {posterior.context.num_data:,} training rows. The data misfit "
            "says how badly the weights explain the data, the KL how far they have moved away from the prior for it. "
            + _trend(history),
        )
    ]
    if any("validation_nll" in entry for entry in history):
        blocks.append(
            Plot(
                "Validation rows",
                validation_curve(history),
                "Scores of rows that training does not see: above the negative log-likelihood, below the error. Where "
                "they turn upwards, further training makes new rows worse.",
            )
        )
    else:
        blocks.append(_end_table(posterior, history[-1]))
    return Section("How the training went", blocks)


def _trend(history: Sequence[Mapping[str, Any]]) -> str:
    """Whether the objective still fell: the mean over the last tenth of the reports against that of the tenth before.

    A difference counts if it is more than 1 % and more than two standard errors, because each report is noisy.
    """
    curve = torch.tensor([entry["elbo"] for entry in history if "elbo" in entry], dtype=torch.float64)
    tenth = len(curve) // 10
    if tenth < 3:
        return ""
    before, last = -curve[-2 * tenth : -tenth], -curve[-tenth:]
    fall = (before.mean() - last.mean()).item()
    error = ((before.var() + last.var()) / tenth).sqrt().item()
    if fall <= max(0.01 * before.mean().abs().item(), 2 * error):
        return "−ELBO did not fall any more over the last tenth of the training."
    share = percent_text(fall / before.mean().abs().item(), 0)
    return f"−ELBO still fell by {share} over the last tenth of the training: a longer one may lower it further."


def _end_table(posterior: Posterior, last: Mapping[str, Any]) -> Table:
    """The last report in numbers."""
    rows = posterior.context.num_data
    found = [("epochs", f"{last['epoch']:,}")]
    found += [("steps", f"{last['step']:,}")] if "step" in last else []
    found.append(("data misfit for each row", f"{-last['log_likelihood'] / max(1, rows):.3g} nats"))
    if "kl" in last:
        weights = posterior.model.layout.random
        found.append(("KL for each row", f"{last['kl'] / max(1, rows):.3g} nats"))
        found.append(("KL for each weight", f"{last['kl'] / max(1, weights):.3g} nats"))
    return Table(("at the end", ""), found, title="In numbers", numeric=(1,), beside=True)


def signal_to_noise(posterior: Posterior) -> dict[str, Tensor]:
    """|mean| / std of the random weights by name, as vectors; weights without a spread are left out."""
    if "moments" not in posterior.capabilities:
        return {}
    found = {}
    for block in posterior.model.layout.of_kind("random"):
        mean, std = posterior.mean(block.name).double().reshape(-1), posterior.std(block.name).double().reshape(-1)
        spread = std > 0
        if bool(spread.any()):
            found[block.name] = (mean[spread].abs() / std[spread]).cpu()
    return found


def weights_section(posterior: Posterior) -> Section | None:
    """Signal to noise of the weights, all together and by parameter; None if the posterior has no moments."""
    ratios = signal_to_noise(posterior)
    if not ratios:
        return None
    everything = torch.cat(list(ratios.values()))
    below = (everything < 1).double().mean().item()
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
    plot = Plot(
        "Signal to noise of the weights",
        signal_to_noise_histogram(everything),
        f"|mean| / standard deviation of {everything.numel():,} weights. To the left of the dashed line "
        f"({percent_text(below, 0)} of them) a weight could as well be zero: such weights can often be pruned.",
    )
    table = Table(
        ("parameter", "shape", "weights", "median", "below\N{NO-BREAK SPACE}1"),
        rows,
        title="By parameter",
        caption=f"Median of the signal to noise, and the share of weights where it is below 1.{left_out}",
        numeric=(2, 3, 4),
        beside=True,
    )
    return Section("What the weights know", [plot, table])


def provenance_section(posterior: Posterior, further: Mapping[str, Any] | None = None) -> Section:
    """The table of everything that it takes to make this run again."""
    return Section("How it was made", [run_table(posterior, further)])
