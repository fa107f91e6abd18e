import itertools

from bayesprop.experiments.grid.page import page
from bayesprop.experiments.grid.settings import SMOKE
from bayesprop.experiments.record import Record


def made(**parts):
    axes = {"samples": [1, 2], "learning_rate": [1e-3, 1e-4]}
    rows = []
    for i, values in enumerate(itertools.product(*axes.values())):
        scores = [{"epoch": 100, "error": 0.02 + 0.01 * i, "nll": 0.1}]
        scores += [{"epoch": 600, "error": 0.015, "nll": 0.1}] * (i == 0)
        rows.append({"values": dict(zip(axes, values, strict=True)), "scores": scores, "steps": 10, "fate": "dropped"})
    rows[0]["fate"] = "finished, place 1 of 1, chosen"
    rows.append(
        {"values": {"samples": 2, "learning_rate": 1.0}, "scores": [], "steps": 1, "fate": "diverged: at step 1"}
    )
    found = {"rows": rows, "best": rows[0]["values"], "engine": "an engine", "plan": "a plan"}
    found |= {"training_seconds": 3600.0, "member_steps": 391_000, "steps_per_epoch": 391}
    settings = {"grid": axes, "optimizer": "adam", "batch_size": 128, "width": 400, "epochs": 600}
    done = {"sweep": {"result": found, "seconds": 1.0, "device": "a GPU"}} | parts
    return Record("grid", "paper", settings, done, ())


def test_what_it_cost():
    numbers = {n.label: (n.value, n.note) for n in page(made())[0].blocks[0].numbers}
    assert numbers["settings"] == ("5", "1 trained to the end, 1 diverged")
    assert numbers["epochs an hour"][0] == "1,000"
    assert numbers["time"] == ("60.0 min", "a GPU")


def test_errors_against_each_axis_are_those_of_the_first_rung():
    plots, table = page(made())[1].blocks[:-1], page(made())[1].blocks[-1]
    assert [plot.title for plot in plots] == ["Weight samples a step", "Learning rate"]
    assert list(table.rows) == [
        ("weight samples a step", "1", "2", "2.50", "2.00 to 3.00"),
        ("weight samples a step", "2", "2", "4.50", "4.00 to 5.00"),
        ("learning rate", "0.001", "2", "3.00", "2.00 to 4.00"),
        ("learning rate", "0.0001", "2", "4.00", "3.00 to 5.00"),
    ]


def test_the_best_settings():
    section = page(made())[2]
    assert section.title == "The best 4"
    assert section.blocks[0].rows[0] == ("1", "0.001", "600", "1.50")


def test_the_winner():
    curve = [{"epoch": 1, "error": 0.05}, {"epoch": 2, "error": 0.04}]
    result = {"test": {"error": [0.0136, 0.0136]}, "curves": [curve, curve]}
    section = page(made(winner={"result": result, "seconds": 1.0, "device": "a GPU"}))[-1]
    assert section.blocks[0].rows[0][1:] == ("1.36 [P]", "1.36 ± 0.00", "2", "+0.00")
    assert section.blocks[1].title == "Learning curve of the winner"
    assert (
        page(Record("grid", "smoke", {"width": SMOKE.width}, {}, ("sweep", "winner")))[0].blocks[0].rows[0][2]
        == "not run"
    )
