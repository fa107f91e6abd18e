from bayesprop.experiments.record import Record
from bayesprop.experiments.table_1.page import page

CURVE = [{"epoch": 300, "error": 0.02, "nll": 0.1, "kl": 9.0}, {"epoch": 600, "error": 0.015, "nll": 0.1, "kl": 8.0}]


def cell(row, errors, temperature=None):
    chosen = {"learning_rate": 0.1} | ({} if temperature is None else {"temperature": temperature})
    scores = {"error": errors, "nll": [0.05] * len(errors), "calibration_error": [0.01] * len(errors)}
    return {"chosen": chosen, "test": scores, "test_of_the_means": scores, "curves": [CURVE] * len(errors)}


def made():
    results = {
        "choose-mixture": {"candidates": [{"a": 1.0}, {"a": 2.0}], "errors": [0.02, None], "chosen": {"a": 1.0}},
        "sgd-1200": cell("sgd", [0.0188, 0.0190]),
        "mixture-1200": cell("mixture", [0.0100, 0.0101], 0.1),
        "mixture-full-1200": cell("mixture-full", [0.0150, 0.0150], 1.0),
    }
    settings = {"widths": [1200], "full_widths": [1200], "epochs": 600, "batch_size": 128, "pixels": "/126"}
    settings |= {
        "choice_epochs": 150,
        "point_choice_epochs": 60,
        "long_choices": ["mixture"],
        "long_choice_seeds": 2,
        "choice_seeds": 1,
    }
    parts = {name: {"result": result, "seconds": 1.0} for name, result in results.items()}
    return Record("table-1", "paper", settings, parts, ())


def test_our_table_stands_beside_the_published_one():
    sections = {section.title: section for section in page(made())}
    headline, table = sections["MNIST test error"].blocks
    rows = {(row[0], row[1]): row for row in table.rows}
    assert rows["SGD", "1200"][2:6] == ("1.88 [P], 1.67 [C], 1.94 [R]", "1.89 ± 0.01", "2", "+0.01")
    assert rows["SGD, dropout", "1200"][3] == "not run"
    assert rows["Bayes by Backprop, scale mixture prior, full KL", "1200"][5] == "+0.18"
    assert [number.value for number in headline.numbers] == ["1.00 %", "1.50 %", "1.89 %"]


def test_where_we_differ_is_said():
    section = next(section for section in page(made()) if section.title == "Where we differ")
    (row,) = section.blocks[0].rows
    assert row[:3] == ("Bayes by Backprop, scale mixture prior, tempered", "1200", "0.32 points lower")
    assert "What the paper does not state" in section.text


def test_all_networks_of_a_cell_together():
    record = made()
    assert "All networks of a cell together" not in [section.title for section in page(record)]
    record.parts["mixture-1200"]["result"]["test"] |= {"together_error": [0.0095], "together_nll": [0.03]}
    section = next(section for section in page(record) if section.title == "All networks of a cell together")
    assert section.blocks[0].rows[0][2:] == ("2", "1.00 ± 0.01", "0.95", "0.0500 ± 0.0000", "0.0300")


def test_curves_carry_the_figure_of_the_paper():
    section = next(section for section in page(made()) if section.title == "Learning curves")
    (plot,) = section.blocks
    assert "figure 2 of the paper" in plot.caption
    assert len(plot.figure.axes[0].lines) == 3 + 4 + 4


def test_the_full_kl_and_the_tempered_one_apart():
    section = next(section for section in page(made()) if section.title == "The full KL and less of it")
    assert [row[:3] for row in section.blocks[0].rows] == [
        ("mixture, tempered", "1200", "0.1"),
        ("mixture, full KL", "1200", "1"),
    ]


def test_what_tempering_changes():
    section = next(section for section in page(made()) if section.title == "The full KL and less of it")
    assert list(section.blocks[1].rows) == [("mixture", "1200", "−0.50 ± 0.01", "+0.0000 ± 0.0000", "+0.00 ± 0.00")]


def test_what_was_chosen():
    section = page(made())[-1]
    assert (
        "1200 units, 150 epochs (SGD and dropout 60; mixture, tempered 600 with 2 seeds), 1 seeds each" in section.text
    )
    assert [row[2:] for row in section.blocks[0].rows] == [("2.00", "chosen"), ("diverged", "")]


def test_a_record_without_parts():
    record = Record("table-1", "paper", made().settings, {}, ("sgd-1200",))
    assert [section.title for section in page(record)] == ["MNIST test error"]
