from bayesprop.experiments.record import Record
from bayesprop.experiments.units.page import page
from bayesprop.experiments.units.settings import SOURCE


def row(draws, means):
    def scores(error):
        return {"error": [error, error], "nll": [0.1, 0.1], "calibration_error": [0.01, 0.01]}

    curve = [{"epoch": 1, "error": 0.05, "nll": 0.1, "kl": 5.0}, {"epoch": 2, "error": 0.04, "nll": 0.1, "kl": 4.0}]
    return {"chosen": SOURCE, "test": scores(draws), "test_of_the_means": scores(means), "curves": [curve, curve]}


def made(results):
    settings = {"mnist_widths": [400], "fashion_mnist_widths": [1200], "epochs": 10, "long_width": 400}
    settings |= {"long_epochs": 228, "point_epochs": 100, "choice_width": 400, "choice_seeds": 2}
    return Record("units", "paper", settings, {name: {"result": r, "seconds": 1.0} for name, r in results.items()}, ())


def test_the_source_predicts_with_the_means_and_the_chosen_by_draws():
    sections = page(made({"source-mnist-400": row(0.03, 0.02), "chosen-mnist-400": row(0.015, 0.5)}))
    rows = {tuple(line[:3]): line[3:] for line in sections[0].blocks[0].rows}
    assert rows["MNIST", "400", "settings of the source"] == ("2.33 [S], 1.82 [P]", "2.00 ± 0.00", "2", "−0.33")
    assert rows["MNIST", "400", "chosen on validation rows"][1] == "1.50 ± 0.00"
    assert rows["Fashion-MNIST", "1200", "settings of the source"][:2] == ("–", "not run")
    assert rows["MNIST", "400", "settings of the source, 228 epochs"][0] == "1.63 [S]"


def test_where_we_differ_is_said():
    sections = page(made({"source-mnist-400": row(0.03, 0.02), "chosen-mnist-400": row(0.015, 0.5)}))
    section = next(section for section in sections if section.title == "Where we differ")
    assert [line[1:4] for line in section.blocks[0].rows] == [
        ("400", "settings of the source", "0.33 points lower"),
        ("400", "chosen on validation rows", "0.83 points lower"),
    ]
    assert "Where we differ" not in [section.title for section in page(made({}))]


def test_curves_of_the_long_training_and_choices():
    candidates = [{"prior.scale": 0.1}, {"prior.scale": 0.3}]
    choice = {"candidates": candidates, "errors": [0.02, 0.03], "chosen": candidates[0]}
    sections = {s.title: s for s in page(made({"source-long": row(0.03, 0.02), "choose-mnist": choice}))}
    assert [plot.title for plot in sections["The long training"].blocks] == [
        "Error, settings of the source",
        "KL, settings of the source",
    ]
    assert [line[2:] for line in sections["What was chosen"].blocks[0].rows] == [("2.00", "chosen"), ("3.00", "")]
    assert "Points beside it" in sections
