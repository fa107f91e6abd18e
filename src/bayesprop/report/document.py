"""A posterior and rows whose answers are known, as one page.

    report.write(posterior, (inputs, labels), "report.html", foreign={"noise": noise})

What a page shows follows from the likelihood: classes, or quantities and counts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bayesprop.errors import ConfigurationError
from bayesprop.posteriors import Posterior
from bayesprop.report.blocks import Section
from bayesprop.report.classification import class_sections
from bayesprop.report.evaluation import evaluate, rows_of
from bayesprop.report.extras import require
from bayesprop.report.figure_files import save_figures
from bayesprop.report.page import save
from bayesprop.report.regression import regression_sections
from bayesprop.report.regression_evaluation import evaluate_regression
from bayesprop.report.weights import Pruned, pruning_section

__all__ = ["page_sections", "subtitle", "write"]


def write(
    posterior: Posterior,
    data: Any,
    path: str | os.PathLike[str],
    *,
    foreign: Mapping[str, Any] | None = None,
    picture_shape: Sequence[int] | None = None,
    pruning: Sequence[Pruned] | None = None,
    figures: str | os.PathLike[str] | None = None,
    title: str = "",
    draws: int = 100,
    seed: int = 0,
) -> Path:
    """Write a page that needs nothing else (no network, no script) to `path`, and return the path.

    Args:
        data: rows to be judged by, `Data` or a pair (inputs, targets) in the user's own units; best of all rows that
            training has not seen.
        foreign: for classes: inputs that belong to none of them, by the name of their kind.
        picture_shape: shape of one input as a picture, if it is not found out by itself.
        pruning: what `bp.decisions.pruning_curve(posterior, data)` found, to be shown.
        figures: a folder for the figures as files of their own, SVG and PNG.
        draws, seed: how many draws of the weights predict, and which ones.
    """
    require("a report", "jinja2", "matplotlib", extra="report")
    sections = page_sections(
        posterior, data, foreign=foreign, picture_shape=picture_shape, pruning=pruning, draws=draws, seed=seed
    )
    if figures is not None:
        save_figures(sections, figures)
    return save(sections, path, title=title or _title(posterior), subtitle=subtitle(posterior, len(rows_of(data))))


def page_sections(
    posterior: Posterior,
    data: Any,
    *,
    foreign: Mapping[str, Any] | None = None,
    picture_shape: Sequence[int] | None = None,
    pruning: Sequence[Pruned] | None = None,
    draws: int = 100,
    seed: int = 0,
) -> list[Section]:
    """The sections of that page, to leave out some and to add others; `report.save` makes a page of them."""
    if pruning:
        score, shares = ("error", True) if posterior.model.likelihood.task == "classification" else ("RMSE", False)
        further = pruning_section(pruning, score=score, shares=shares)
        found = page_sections(posterior, data, foreign=foreign, picture_shape=picture_shape, draws=draws, seed=seed)
        return [*found[:-1], further, found[-1]]
    if posterior.model.likelihood.task == "classification":
        evaluation = evaluate(posterior, data, foreign=foreign, draws=draws, seed=seed)
        return class_sections(evaluation, picture_shape=picture_shape)
    if foreign or picture_shape is not None:
        raise ConfigurationError(
            "foreign inputs and pictures are shown with classes only",
            received=f"{posterior.model.likelihood!r}, a {posterior.model.likelihood.task}",
            write="report.write(posterior, data, path)",
        )
    return regression_sections(evaluate_regression(posterior, data, draws=draws, seed=seed))


def subtitle(posterior: Posterior, rows: int) -> str:
    """What was trained, and how many rows judge it."""
    context, random = posterior.context, posterior.model.layout.random
    method = type(context.method).__name__ if hasattr(context.method, "__dataclass_fields__") else ""
    made = f" by {method}" if method else ""
    return (
        f"A {type(posterior).__name__} posterior over {random:,} weights, fitted to {context.num_data:,} rows{made}. "
        f"What follows is judged by {rows:,} rows."
    )


def _title(posterior: Posterior) -> str:
    return {"classification": "Classification", "regression": "Regression", "count": "Counts"}[
        posterior.model.likelihood.task
    ]
