"""The page of a classifier: sections made from an `Evaluation`.

evaluation = report.evaluate(posterior, (inputs, labels), foreign={"noise": noise})
report.save(report.class_sections(evaluation), "report.html", title="Digits")
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from bayesprop import metrics
from bayesprop.prediction import Prediction
from bayesprop.report.blocks import Block, Headline, Number, Plot, Section, Table
from bayesprop.report.evaluation import Evaluation, separation
from bayesprop.report.figures import reliability_diagram, risk_coverage_curve, uncertainty_histogram, wilson_interval
from bayesprop.report.pictures import as_pictures, find_shape, gallery
from bayesprop.report.shared import percent_text, provenance_section, training_section
from bayesprop.report.weights import weights_section

__all__ = ["class_sections", "headline"]

PICTURES = 9  # in a gallery: one line on a wide page, three on a phone
CLASSES = 30  # rows of the table of classes


def class_sections(evaluation: Evaluation, *, picture_shape: Sequence[int] | None = None) -> list[Section]:
    """All sections of a classifier's page, in their order; those that have nothing to show stay out."""
    posterior = evaluation.posterior
    further = {
        "rows of this page": evaluation.rows,
        "draws of the weights": evaluation.prediction.num_draws,
        "seed of the draws": evaluation.prediction.seed,
    }
    found = [
        Section("At a glance", [headline(evaluation)]),
        training_section(posterior),
        _confidence_section(evaluation),
        _uncertainty_section(evaluation),
        _pictures_section(evaluation, picture_shape),
        _classes_section(evaluation),
        weights_section(posterior),
        provenance_section(posterior, further),
    ]
    return [section for section in found if section is not None]


def headline(evaluation: Evaluation) -> Headline:
    """The five numbers that say most, each with a line how to read it."""
    rows, right = evaluation.rows, int(evaluation.right.sum())
    classes = len(evaluation.class_names)
    low, high = (float(end) for end in wilson_interval(evaluation.accuracy, rows))
    confidence = evaluation.confidence.double().mean().item()
    return Headline(
        [
            Number(
                "Accuracy",
                percent_text(evaluation.accuracy),
                f"{right:,} of {rows:,} right. With so many rows the truth lies between {percent_text(low)} and "
                f"{percent_text(high)} (95 % interval).",
            ),
            Number(
                "Negative log-likelihood",
                f"{evaluation.negative_log_likelihood:.3f}",
                f"Nats per row, lower is better. Whoever knows nothing gets {math.log(classes):.2f}.",
            ),
            Number(
                "Brier score",
                f"{evaluation.brier:.3f}",
                "Squared error of the probabilities, lower is better. Whoever knows nothing gets "
                f"{1 - 1 / classes:.2f}.",
            ),
            Number(
                "Calibration error",
                percent_text(evaluation.calibration_error),
                f"Mean gap between claimed confidence and accuracy, 15 bins; 0 is perfect. The mean confidence is "
                f"{percent_text(confidence)}.",
            ),
            Number(
                "Epistemic share",
                percent_text(evaluation.epistemic_share, 0),
                "Of the uncertainty, what comes from not knowing the weights: more data would remove it. The rest is "
                "noise.",
            ),
        ]
    )


def _confidence_section(evaluation: Evaluation) -> Section:
    prediction, wrong = evaluation.prediction, (~evaluation.right).double()
    curves = {
        "confidence": metrics.risk_coverage(evaluation.confidence, wrong),
        "total uncertainty": metrics.risk_coverage(-prediction.total, wrong),
        "epistemic": metrics.risk_coverage(-prediction.epistemic, wrong),
    }
    areas = ", ".join(f"{percent_text(curve.area, 2)} by {name}" for name, curve in curves.items())
    return Section(
        "Can the confidence be trusted?",
        [
            Plot(
                "Reliability",
                reliability_diagram(metrics.reliability_curve(prediction.mean, evaluation.labels)),
                "Accuracy of the rows whose confidence falls into a bin, with 95 % intervals. On the dashed line "
                "confidence is honest; points above it are too modest, points below it too sure. Below: where the rows "
                "are.",
            ),
            Plot(
                "Error if the least certain rows are passed on",
                risk_coverage_curve(curves),
                "Rows are answered in the order of their certainty, measured in three ways; the lower the curve, the "
                f"better the order. Mean error over all shares: {areas}.",
            ),
        ],
    )


def _uncertainty_section(evaluation: Evaluation) -> Section:
    prediction, right = evaluation.prediction, evaluation.right
    groups = {"right": (prediction, right), "wrong": (prediction, ~right)}
    groups |= {name: (strange.prediction, slice(None)) for name, strange in evaluation.foreign.items()}
    ending = "Certain rows are on the left. Wrong answers and foreign inputs should lie further to the right."
    captions = {
        "total": f"Entropy of the predicted probabilities. {ending}",
        "epistemic": "The part of it that draws of the weights disagree about: what the posterior knows that it does "
        "not know.",
    }
    blocks: list[Block] = [
        Plot(
            f"{kind.capitalize()} uncertainty",
            uncertainty_histogram(
                {name: getattr(of, kind)[rows].double().cpu().numpy() for name, (of, rows) in groups.items()},
                label=f"{kind} uncertainty in nats",
            ),
            caption,
        )
        for kind, caption in captions.items()
    ]
    if evaluation.foreign:
        blocks.append(_foreign_table(evaluation))
    return Section("Does it know what it does not know?", blocks)


def _foreign_table(evaluation: Evaluation) -> Table:
    everyone = {"with labels": evaluation.prediction}
    everyone |= {name: strange.prediction for name, strange in evaluation.foreign.items()}
    rows = []
    for name, prediction in everyone.items():
        own = prediction is evaluation.prediction
        rows.append(
            (
                name,
                f"{len(prediction):,}",
                percent_text(prediction.mean.max(1).values.double().mean().item()),
                f"{prediction.total.double().mean().item():.3f}",
                f"{prediction.epistemic.double().mean().item():.3f}",
                "–" if own else f"{separation(evaluation, prediction):.3f}",
            )
        )
    return Table(
        ("inputs", "rows", "confidence", "total", "epistemic", "AUROC"),
        rows,
        title="Foreign inputs",
        caption="Means over the rows; uncertainties in nats. AUROC: the chance that a foreign row has more epistemic "
        "uncertainty than one with a label. 1 would tell all of them apart, 0.5 none.",
        numeric=(1, 2, 3, 4, 5),
    )


def _pictures_section(evaluation: Evaluation, shape: Sequence[int] | None) -> Section | None:
    shape = shape if shape is not None else find_shape(evaluation.inputs)
    if shape is None:
        return None
    pictures = as_pictures(evaluation.inputs, shape)
    names, labels, right = evaluation.class_names, evaluation.labels, evaluation.right
    limits = (float(pictures.min()), float(pictures.max()))

    def gallery_of(title: str, from_pictures: Tensor, prediction: Prediction, rows: list[int], *, truth: bool) -> Block:
        def describe(row: int) -> tuple[str, str]:
            share, position = prediction.mean[row].max(0)
            verdict = "right" if bool(truth and right[row]) else f"is {names[int(labels[row])]}" if truth else ""
            return f"{names[int(position)]}, {percent_text(float(share), 0)}", verdict

        return gallery(title, from_pictures, rows[:PICTURES], describe, limits=limits)

    order = _by_certainty(evaluation.prediction)
    wrong = [row for row in order if not bool(right[row])]
    kinds = {"The most certain": order, "The least certain": order[::-1], "Wrong, the most certain of them": wrong}
    blocks = [
        gallery_of(title, pictures, evaluation.prediction, rows, truth=True) for title, rows in kinds.items() if rows
    ]
    for name, strange in evaluation.foreign.items():
        shown = as_pictures(strange.inputs, shape)
        order = _by_certainty(strange.prediction)
        blocks.append(gallery_of(f"{name}: the most certain", shown, strange.prediction, order, truth=False))
    return Section("Pictures", blocks, "Below each picture: what the posterior says, and how sure it is.")


def _by_certainty(prediction: Prediction) -> list[int]:
    return prediction.total.argsort(stable=True).tolist()


def _classes_section(evaluation: Evaluation) -> Section:
    names, labels, predicted = evaluation.class_names, evaluation.labels, evaluation.predicted
    total = evaluation.prediction.total.double()
    found = []
    for position in labels.unique().tolist():
        own = labels == position
        share = evaluation.right[own].double().mean().item()
        mistaken = torch.bincount(predicted[own & ~evaluation.right], minlength=len(names))
        most = int(mistaken.argmax())
        found.append(
            (
                share,
                (
                    names[position],
                    f"{int(own.sum()):,}",
                    percent_text(share),
                    percent_text(evaluation.confidence[own].double().mean().item()),
                    f"{total[own].mean().item():.3f}",
                    f"{names[most]} ({int(mistaken[most])})" if int(mistaken[most]) else "–",
                ),
            )
        )
    left_out = ""
    if len(found) > CLASSES:
        left_out = f" The {CLASSES} least accurate of {len(found)} classes."
        found = sorted(found, key=lambda pair: pair[0])[:CLASSES]
    table = Table(
        ("class", "rows", "accuracy", "confidence", "uncertainty", "most often mistaken for"),
        [row for _share, row in found],
        caption=f"Of the rows of each class: how many are right, the mean confidence, the mean total uncertainty in "
        f"nats.{left_out}",
        numeric=(1, 2, 3, 4),
    )
    return Section("Class by class", [table])
