import pytest
import torch

from bayesprop.report import shared
from bayesprop.report.shared import percent_text, provenance_section, training_section


def test_percent_text_stays_in_one_piece():
    assert [percent_text(0.984), percent_text(0.5, 0), percent_text(1.0)] == ["98.4\xa0%", "50\xa0%", "100.0\xa0%"]


def test_training_with_validation_has_two_curves(class_posterior):
    section = training_section(class_posterior)
    assert section is not None
    assert [block.title for block in section.blocks] == ["Learning curve", "Validation rows"]
    assert "for all 300 training rows" in section.blocks[0].caption


def test_training_without_validation_has_its_end_in_numbers(class_posterior):
    keys = ("epoch", "step", "log_likelihood", "kl", "elbo")
    history = class_posterior.context.history
    class_posterior.context.history = [{key: entry[key] for key in keys} for entry in history]
    section = training_section(class_posterior)
    assert section is not None
    plot, table = section.blocks
    assert plot.kind == "plot"
    # 10 nats of misfit and 90 of KL for 300 rows and 195 weights.
    assert table.rows == [
        ("epochs", "80"),
        ("steps", "320"),
        ("data misfit for each row", "0.0333 nats"),
        ("KL for each row", "0.3 nats"),
        ("KL for each weight", "0.462 nats"),
    ]


def test_a_method_without_a_kl_has_a_section_all_the_same(class_posterior):
    class_posterior.context.history = [{"epoch": 1, "log_likelihood": -3.0}]
    section = training_section(class_posterior)
    assert section is not None
    assert section.blocks[1].rows == [("epochs", "1"), ("data misfit for each row", "0.01 nats")]


def test_without_a_history_there_is_no_section(class_posterior):
    class_posterior.context.history = []
    assert training_section(class_posterior) is None


def trend(elbos):
    return shared._trend([{"epoch": i, "elbo": value} for i, value in enumerate(elbos)])


def test_whether_the_training_had_arrived():
    """Ten reports in each tenth; noise of 10 nats has a standard error of 10 sqrt(2 / 10) = 4.5 in the difference."""
    noise = 10 * torch.randn(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    flat = [-1000 + value for value in noise.tolist()]
    arrived = "−ELBO did not fall any more over the last tenth of the training."
    assert trend(flat) == arrived
    falling = [value + (200.0 if i >= 90 else 0.0) for i, value in enumerate(flat)]
    share = (sum(falling[90:]) - sum(falling[80:90])) / -sum(falling[80:90])
    assert 0.18 < share < 0.22
    assert trend(falling) == (
        f"−ELBO still fell by {100 * share:.0f}\xa0% over the last tenth of the training: a longer one may lower it "
        "further."
    )
    worse = [value - (200.0 if i >= 90 else 0.0) for i, value in enumerate(flat)]
    assert trend(worse) == arrived
    loud = [-1000.0 + 100.0 * (-1) ** i + (60.0 if i >= 90 else 0.0) for i in range(100)]
    assert trend(loud) == arrived, "6 % is less than two standard errors of 100 sqrt(2 / 10) = 45 nats"
    tiny = [-1000.0 + (5.0 if i >= 90 else 0.0) for i in range(100)]
    assert trend(tiny) == arrived, "half a percent is nothing, however exact"
    assert trend(falling[:29]) == "", "too few reports to say"


@pytest.mark.parametrize("further", [None, {"rows of this page": 7}])
def test_provenance_is_a_table(class_posterior, further):
    (table,) = provenance_section(class_posterior, further).blocks
    assert (("rows of this page", "7") in table.rows) is (further is not None)
    assert len(table.rows) > 20
