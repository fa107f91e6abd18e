"""The page of a regression: sections made from a `RegressionEvaluation`.

evaluation = report.evaluate_regression(posterior, (inputs, targets))
report.save(report.regression_sections(evaluation), "report.html", title="Yachts")
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from bayesprop.report.blocks import Block, Headline, Number, Plot, Section
from bayesprop.report.quantity_figures import (
    POINTS,
    coverage_curve,
    prediction_band,
    rank_histogram,
    residual_plot,
    target_plot,
)
from bayesprop.report.regression_evaluation import RegressionEvaluation
from bayesprop.report.shared import percent_text, provenance_section, training_section
from bayesprop.report.weights import weights_section

__all__ = ["coverage_headline", "headline", "regression_sections"]

LEVELS = (0.5, 0.9, 0.95)
GRID = 200  # places of a prediction band
TARGETS = 4  # of a row that are drawn one by one


def regression_sections(evaluation: RegressionEvaluation) -> list[Section]:
    """All sections of a regression's page, in their order; those that have nothing to show stay out."""
    further = {
        "rows of this page": evaluation.rows,
        "draws of the weights": evaluation.prediction.num_draws,
        "seed of the draws": evaluation.prediction.seed,
    }
    found = [
        Section("At a glance", [headline(evaluation), coverage_headline(evaluation)]),
        _predictions_section(evaluation),
        training_section(evaluation.posterior),
        _intervals_section(evaluation),
        weights_section(evaluation.posterior),
        provenance_section(evaluation.posterior, further),
    ]
    return [section for section in found if section is not None]


def headline(evaluation: RegressionEvaluation) -> Headline:
    """The numbers that say most, each with a line how to read it."""
    spread = (evaluation.targets.double() - evaluation.targets.double().mean(0)).square().mean().sqrt().item()
    numbers = [
        Number(
            "RMSE",
            _number(evaluation.root_mean_squared_error),
            f"Root mean squared error in the units of the target, lower is better. Always saying the mean of these "
            f"{evaluation.rows:,} rows gives {_number(spread)}.",
        ),
        Number(
            "Log-likelihood",
            _number(evaluation.log_likelihood),
            "Mean log-density of the targets, nats per row, higher is better. It changes with the units of the target.",
        ),
        Number(
            "CRPS",
            _number(evaluation.crps),
            "Distance of the predictions from the targets, spread included, in their units; lower is better. Without "
            "spread it is the mean absolute error.",
        ),
        Number(
            "Epistemic share",
            percent_text(evaluation.epistemic_share, 0),
            "Of the variance, what comes from not knowing the weights: more data would remove it. The rest is noise.",
        ),
    ]
    return Headline(numbers)


def coverage_headline(evaluation: RegressionEvaluation) -> Headline:
    """How many targets lie in intervals of 50, 90 and 95 %."""
    count = evaluation.ranks[1].numel()
    numbers = []
    for level in LEVELS:
        off = 1.96 * (level * (1 - level) / count) ** 0.5
        low, high = evaluation.prediction.interval(level)
        width = (high - low).double().mean().item()
        numbers.append(
            Number(
                f"Inside {100 * level:g} % intervals",
                percent_text(evaluation.coverage(level)),
                f"of the targets; honest intervals hold {percent_text(max(0.0, level - off), 0)} to "
                f"{percent_text(min(1.0, level + off), 0)}. Their mean width is {_number(width)}.",
            )
        )
    return Headline(numbers)


def _predictions_section(evaluation: RegressionEvaluation) -> Section | None:
    prediction, targets = evaluation.prediction, evaluation.targets
    mean, std = prediction.mean.double().cpu(), prediction.std.double().cpu()
    truth = targets.double().cpu()
    shown = f" {POINTS:,} of {truth.numel():,} targets are drawn." if truth.numel() > POINTS else ""
    blocks: list[Block] = list(_bands(evaluation))
    if not bool(std.isfinite().all()):  # Student's t with so few degrees of freedom has no deviation
        return Section("Predictions", blocks) if blocks else None
    if not blocks:
        blocks.append(
            Plot(
                "Predictions and targets",
                target_plot(mean, truth, std),
                f"Good predictions lie along the dashed line, and their bars reach it in two cases of three.{shown}",
            )
        )
    blocks.append(
        Plot(
            "Residuals and their predicted size",
            residual_plot(std, truth - mean),
            "Between the dashed lines lie 95 % of the residuals if the predicted standard deviations are right, to the "
            f"left as well as to the right.{shown}",
        )
    )
    return Section("Predictions", blocks)


def _bands(evaluation: RegressionEvaluation) -> list[Plot]:
    """One plot for each target, if there is one input only."""
    inputs = evaluation.inputs
    if not isinstance(inputs, Tensor) or inputs[0].numel() != 1:
        return []
    places = inputs.double().reshape(-1)
    low, high = places.min(), places.max()
    margin = 0.25 * (high - low)
    if float(margin) <= 0:
        return []
    grid = torch.linspace(float(low - margin), float(high + margin), GRID, dtype=torch.float64)
    at = grid.to(inputs.dtype).reshape(-1, *inputs.shape[1:])
    source = evaluation.prediction
    prediction = evaluation.posterior.predict(at, source.num_draws, seed=source.seed)
    mean, spread = _columns(prediction.mean), _columns(1.645 * prediction.epistemic.sqrt())
    bottom, top = (_columns(end) for end in prediction.interval(0.9))
    truth = _columns(evaluation.targets)
    plots = []
    for target in range(min(TARGETS, mean.shape[1])):
        m, s = mean[:, target], spread[:, target]
        figure = prediction_band(
            grid.numpy(),
            m,
            (bottom[:, target], top[:, target]),
            (m - s, m + s),
            (places.cpu().numpy(), truth[:, target]),
        )
        number = f" of target {target}" if mean.shape[1] > 1 else ""
        plots.append(
            Plot(
                f"Prediction{number}",
                figure,
                "The line is the mean. The wide band should hold nine of ten targets. The narrow one is where the "
                "posterior expects the function itself; it should widen where there are no data, and beyond them.",
            )
        )
    return plots


def _intervals_section(evaluation: RegressionEvaluation) -> Section:
    levels = [round(0.05 * step, 2) for step in range(1, 20)]
    _, reached = evaluation.ranks
    blocks: list[Block] = [
        Plot(
            "Coverage",
            coverage_curve(levels, [evaluation.coverage(level) for level in levels], reached.numel()),
            "How many targets lie in the central intervals of each probability. Below the grey band intervals are too "
            "narrow, above it too wide.",
        )
    ]
    if evaluation.prediction.task == "regression":
        blocks.append(
            Plot(
                "Ranks of the targets",
                rank_histogram(reached.cpu().numpy()),
                "Flat if predictions are honest. Bars that are high at both ends say too sure, a hill in the middle "
                "says too modest, a slope says that the mean is off.",
            )
        )
    return Section("Can the intervals be trusted?", blocks)


def _columns(tensor: Tensor) -> np.ndarray:
    """(rows, targets) in float64."""
    return tensor.detach().double().cpu().reshape(tensor.shape[0], -1).numpy()


def _number(value: float) -> str:
    """Three significant digits, without an exponent for numbers of everyday size."""
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        text = f"{value:.2e}"
    else:
        text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return text.replace("-", "−")
