"""Sections that every page has: how the training went, and how to make the run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from bayesprop.posteriors import Posterior
from bayesprop.report.blocks import Block, Plot, Section, Table
from bayesprop.report.figures import learning_curve, validation_curve
from bayesprop.report.provenance import run_table

__all__ = ["percent_text", "provenance_section", "training_section"]


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


def provenance_section(posterior: Posterior, further: Mapping[str, Any] | None = None) -> Section:
    """The table of everything that it takes to make this run again."""
    return Section("How it was made", [run_table(posterior, further)])
