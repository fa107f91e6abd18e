import math

import pytest
import torch
from torch import nn

from bayesprop import likelihoods
from bayesprop.metrics import risk_coverage
from bayesprop.report.classification import class_sections, headline
from bayesprop.report.drawing import printable
from bayesprop.report.evaluation import evaluate, separation
from bayesprop.report.page import render

from .conftest import NAMES, delta

TITLES = [
    "At a glance",
    "How the training went",
    "Can the confidence be trusted?",
    "Does it know what it does not know?",
    "Pictures",
    "Class by class",
    "What the weights know",
    "How it was made",
]


@pytest.fixture
def evaluation(class_posterior, blobs):
    inputs, _ = blobs
    foreign = {"<b>noise</b>": inputs.flip(1), "shuffled": inputs.roll(17, 1)}
    return evaluate(class_posterior, blobs, foreign=foreign, draws=20)


def blocks(sections, kind):
    return [block for section in sections for block in section.blocks if block.kind == kind]


def test_a_whole_page(evaluation, parsed):
    sections = class_sections(evaluation)
    assert [section.title for section in sections] == TITLES
    text = render(sections, title="Page")
    root = parsed(text)
    assert len([element for element in root.iter() if element.get("class") == "plot"]) == 8
    assert len(list(root.iter("table"))) == 4
    assert len(list(root.iter("ul"))) == 5
    assert "<script" not in text
    assert "<b>" not in text


def test_headline_numbers_are_the_evaluations(evaluation):
    shown = {number.label: number for number in headline(evaluation).numbers}
    assert len(shown) == 5
    assert all(number.note for number in shown.values())
    assert shown["Accuracy"].value == f"{100 * evaluation.accuracy:.1f}\xa0%"
    assert shown["Accuracy"].note.startswith(f"{int(evaluation.right.sum())} of 60 right.")
    assert shown["Negative log-likelihood"].value == f"{evaluation.negative_log_likelihood:.3f}"
    assert shown["Negative log-likelihood"].note.endswith(f"knows nothing gets {math.log(3):.2f}.")
    assert shown["Brier score"].value == f"{evaluation.brier:.3f}"
    assert shown["Brier score"].note.endswith("knows nothing gets 0.67.")
    assert shown["Calibration error"].value == f"{100 * evaluation.calibration_error:.1f}\xa0%"
    assert f"{100 * evaluation.confidence.mean().item():.1f}\xa0%" in shown["Calibration error"].note
    assert shown["Epistemic share"].value == f"{100 * evaluation.epistemic_share:.0f}\xa0%"


def test_uncertainty_is_drawn_for_right_wrong_and_foreign_rows(evaluation):
    wrong = int((~evaluation.right).sum())
    assert 0 < wrong < 60
    expected = [f"right: {60 - wrong} rows", f"wrong: {wrong} rows", "<b>noise</b>: 60 rows", "shuffled: 60 rows"]
    plots = [plot for plot in blocks(class_sections(evaluation), "plot") if plot.title.endswith(" uncertainty")]
    assert [plot.title for plot in plots] == ["Total uncertainty", "Epistemic uncertainty"]
    for plot in plots:
        assert [axes.get_title(loc="left") for axes in plot.figure.axes] == expected


def test_rows_are_passed_on_in_three_orders(evaluation):
    (plot,) = [plot for plot in blocks(class_sections(evaluation), "plot") if "passed on" in plot.title]
    (axes,) = plot.figure.axes
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["confidence", "total uncertainty", "epistemic"]
    prediction, wrong = evaluation.prediction, (~evaluation.right).double()
    for line, sure in zip(axes.get_lines(), (evaluation.confidence, -prediction.total, -prediction.epistemic)):
        torch.testing.assert_close(torch.as_tensor(line.get_ydata()), risk_coverage(sure, wrong).risk)
        assert line.get_ydata()[-1] == pytest.approx(1 - evaluation.accuracy), "all rows answered: the plain error"
    assert plot.caption.count("%") == 3


def test_the_table_of_foreign_inputs(evaluation):
    (table,) = [table for table in blocks(class_sections(evaluation), "table") if table.title == "Foreign inputs"]
    assert [row[0] for row in table.rows] == ["with labels", "<b>noise</b>", "shuffled"]
    assert table.rows[0][-1] == "–"
    for row, strange in zip(table.rows[1:], evaluation.foreign.values(), strict=True):
        assert row[-1] == f"{separation(evaluation, strange.prediction):.3f}"
        assert row[-2] == f"{strange.prediction.epistemic.mean().item():.3f}"


def test_without_foreign_inputs_there_is_no_table_of_them(class_posterior, blobs):
    sections = class_sections(evaluate(class_posterior, blobs, draws=5))
    assert [section.title for section in sections] == TITLES
    assert "Foreign inputs" not in [table.title for table in blocks(sections, "table")]


def test_pictures_are_the_most_and_the_least_certain(evaluation):
    galleries = {gallery.title: gallery.pictures for gallery in blocks(class_sections(evaluation), "pictures")}
    assert list(galleries) == [
        "The most certain",
        "The least certain",
        "Wrong, the most certain of them",
        "<b>noise</b>: the most certain",
        "shuffled: the most certain",
    ]
    wrong = int((~evaluation.right).sum())
    assert [len(pictures) for pictures in galleries.values()] == [9, 9, min(9, wrong), 9, 9]
    total = evaluation.prediction.total
    for title, row in (("The most certain", int(total.argmin())), ("The least certain", int(total.argmax()))):
        first = galleries[title][0]
        name = NAMES[int(evaluation.predicted[row])]
        assert first.caption == f"{name}, {100 * evaluation.confidence[row].item():.0f}\xa0%"
        label = NAMES[int(evaluation.labels[row])]
        assert first.note == ("right" if bool(evaluation.right[row]) else f"is {label}")
    assert all(picture.note.startswith("is ") for picture in galleries["Wrong, the most certain of them"])
    assert all(picture.note == "" for picture in galleries["shuffled: the most certain"])


def test_inputs_that_are_no_pictures_have_none(class_posterior, blobs):
    inputs, labels = blobs
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
    evaluation = evaluate(class_posterior, (inputs[:, order], labels), draws=2)
    assert "Pictures" not in [section.title for section in class_sections(evaluation)]
    shown = class_sections(evaluation, picture_shape=(8, 8))
    assert "Pictures" in [section.title for section in shown]


def test_class_by_class(evaluation, parsed):
    (section,) = [section for section in class_sections(evaluation) if section.title == "Class by class"]
    (table,) = section.blocks
    assert [row[0] for row in table.rows] == NAMES
    for position, row in enumerate(table.rows):
        own = evaluation.labels == position
        assert row[1] == "20"
        assert row[2] == f"{100 * evaluation.right[own].double().mean().item():.1f}\xa0%"
        mistaken = evaluation.predicted[own & ~evaluation.right]
        if mistaken.numel():
            assert row[5] == f"{NAMES[int(mistaken.mode().values)]} ({int((mistaken == mistaken.mode().values).sum())})"
        else:
            assert row[5] == "–"
    cells = ["".join(cell.itertext()) for cell in parsed(render([section], title="Page")).iter("th")]
    assert cells[-3:] == [printable(name) for name in NAMES]


def test_the_worst_of_many_classes_are_listed():
    """40 classes of one row each; the last ten are taken for class 0."""
    weights = torch.eye(40)
    weights[30:] = 0.0
    weights[0, 30:] = 1.0
    posterior = delta(nn.Linear(40, 40), likelihoods.Categorical(), [*(20 * weights).flatten().tolist(), *[0.0] * 40])
    evaluation = evaluate(posterior, (torch.eye(40), torch.arange(40)), draws=1)
    (table,) = class_sections(evaluation)[-3].blocks
    assert len(table.rows) == 30
    assert [row[0] for row in table.rows[:10]] == [str(i) for i in range(30, 40)]
    assert {row[5] for row in table.rows[:10]} == {"0 (1)"}
    assert table.caption.endswith("The 30 least accurate of 40 classes.")


def test_a_posterior_without_history_noise_or_mistakes_has_a_page(parsed):
    """Two classes under a Bernoulli likelihood, one row of each; what has nothing to show stays out."""
    posterior = delta(nn.Linear(1, 1), likelihoods.Bernoulli(), [5.0, 0.0])
    evaluation = evaluate(posterior, (torch.tensor([[-1.0], [1.0]]), torch.tensor([0, 1])), draws=2)
    assert evaluation.accuracy == 1.0
    sections = class_sections(evaluation)
    assert [section.title for section in sections] == [
        "At a glance",
        "Can the confidence be trusted?",
        "Does it know what it does not know?",
        "Class by class",
        "How it was made",
    ]
    parsed(render(sections, title="Page"))
