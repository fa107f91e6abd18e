import pytest

from bayesprop.experiments.choices.page import difference, page
from bayesprop.experiments.choices.settings import BASE
from bayesprop.experiments.record import Record
from bayesprop.experiments.values import Measured


def row(*errors):
    curve = [{"epoch": 1, "error": 0.05, "nll": 0.1}, {"epoch": 2, "error": 0.04, "nll": 0.1}]
    scores = {"error": list(errors), "nll": [0.1] * len(errors), "calibration_error": [0.01] * len(errors)}
    return {"chosen": BASE, "test": scores, "curves": [curve] * len(errors)}


def made(**results):
    settings = {"variants": ["base", "kl-geometric", "gaussian", "rho-5"], "width": 400, "epochs": 600}
    settings |= {"batch_size": 100, "draws": 10}
    parts = {name.replace("_", "-"): {"result": r, "seconds": 1.0} for name, r in results.items()}
    return Record("choices", "paper", settings, parts, ())


def test_differences_have_a_standard_error():
    gap, spread = difference(Measured((1.0, 2.0)), Measured((2.0, 2.0)))
    assert (gap, spread) == (pytest.approx(-0.5), pytest.approx(0.5))
    assert difference(Measured((1.0,)), Measured((2.0, 3.0)))[1] is None


def test_what_matters_beyond_noise():
    sections = page(made(base=row(0.020, 0.021), kl_geometric=row(0.017, 0.0172), gaussian=row(0.019, 0.022)))
    rows = {line[1]: line for line in sections[0].blocks[0].rows}
    assert rows["2^(M-i) / (2^M - 1)"][2:] == ("1.71 ± 0.01", "2", "−0.34 ± 0.05", "−0.30 [S]", "yes", "yes")
    assert rows["Gaussian of scale 1"][-2:] == ("no", "no: within noise")
    assert len(rows) == 2, "rho-5 was not run"
    assert "The base has 2.05 ± 0.05 %, 2 seeds" in sections[0].blocks[0].caption
    assert [section.title for section in sections] == [
        "Which arbitrary choices matter",
        "Beside source 000",
        "Learning curves",
    ]
    assert [plot.title for plot in sections[2].blocks] == ["How minibatches share the KL", "Prior"]


def test_one_seed_says_nothing_about_noise():
    sections = page(made(base=row(0.02), gaussian=row(0.01)))
    assert sections[0].blocks[0].rows[0][-2:] == ("one seed", "")


def test_errors_stand_beside_those_of_the_source():
    (errors,) = page(made(gaussian=row(0.0169, 0.0169)))
    assert errors.title == "Beside source 000"
    assert errors.blocks[0].rows[0][1:3] == ("2.03 [S]", "not run")
    assert errors.blocks[0].rows[1][1:5] == ("1.69 [S]", "1.69 ± 0.00", "2", "+0.00")


def test_what_goes_the_other_way_is_said():
    rows = page(made(base=row(0.02, 0.02), kl_geometric=row(0.03, 0.03)))[0].blocks[0].rows
    assert rows[0][-2:] == ("yes", "no: the other way")
